package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/csi/loopcsi"
	"seedlet.dev/realworld/loopdevice"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// csiSuite is a cluster with a node with a CSI driver.
type csiSuite struct {
	*clusterSuite
	driver *csiDriver
	delays map[string]int // of calls, by name, that tests have waited for

	sidecars  []*cleanup.Daemon
	plainArgs []string // of the driver, while it runs with a zone and a limit

	// Pods of several parts, which wait at once for what takes a minute or two.
	republished, grower, neighbor, waiting, forced *v1.Pod
	publication                                    int // the last one seen in republished
}

// TestCSI gives pods of a real cluster volumes of a real CSI driver, which makes them on loop
// devices. After each part nothing of its volumes is left on the node.
func TestCSI(t *testing.T) {
	t.Parallel()
	cluster.Require(t)
	c := &csiSuite{clusterSuite: newClusterOn(t, nodetest.Options{Version: nodetest.V2},
		cluster.Options{}), delays: map[string]int{}}
	c.history, c.connections = newWatchHistory(t, c.api), newConnectionRecorder(t)
	c.joinNode(t)
	c.driver = newCSIDriver(t, c.agent, loopcsi.Name)
	t.Cleanup(func() { // of a test that has failed: what holds devices of the driver
		c.agent.killIfRunning()
		for _, d := range c.heldDevices(t) {
			detachLoop(t, d.Path())
		}
	})
	c.kubectl(t, "wait", "--for=condition=Ready", patience, "node/"+nodeName)
	c.kubectl(t, "create", "namespace", testNamespace)
	c.kubectl(t, "wait", "--for=create", patience, "serviceaccount/default")
	c.createDriverObject(t, loopcsi.Name, false)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"pods wait for a driver that comes late", c.testLateDriver},
		{"a persistent volume keeps its data", c.testPersistentVolume},
		{"pods share a volume, each in its own way", c.testSharedVolume},
		{"a volume of one pod is refused a second", c.testReadWriteOncePod},
		{"the agent is killed in each call", func(t *testing.T) { c.testKills(t, c.restartAgent) }},
		{"the driver is killed in each call", func(t *testing.T) { c.testKills(t, c.restartDriver) }},
		{"restarts alone disturb nothing", c.testUndisturbed},
		{"volumes go whose objects have gone", c.testForgottenObjects},
		{"volumes of an in-tree kind are those of its driver", c.testMigratedVolumes},
		{"sidecars start", c.startSidecars},
		{"a StatefulSet keeps its data", c.testStatefulSet},
		{"a volume is attached late", c.testLateAttachment},
		{"a sidecar expands a volume", c.testControllerExpansion},
		{"a file system grows before its pod", c.testOfflineExpansion},
		{"raw block volumes are devices", c.testRawBlock},
		{"local volumes are on devices", c.testLocalDevices},
		{"a driver gets its secrets", c.testSecrets},
		{"a pod waits for a claim of its own", c.testUnownedClaim},
		{"volumes are where their nodes are", c.testTopology},
		{"a node is full of volumes", c.testVolumeLimit},
		{"a restarted agent publishes a volume again", c.testRepublish},
		{"a pod says why NFS is not mounted", c.testNFS},
		{"a file system grows below its pod", c.testOnlineExpansion},
		{"a volume is published every minute", c.testPeriodicRepublish},
		{"a pod fails that a full node cannot have", c.testExceededLimit},
		{"the agent is killed while a file system grows", c.testKilledExpansion},
		{"the machine reboots", c.testReboot},
		{"the agent and the driver are killed at random", c.testRandomKills},
	} {
		start := time.Now()
		if !t.Run(part.name, part.run) {
			t.Fatalf("the end of the agent's log:\n%s\n%s", c.agent.logTail(t, 100),
				sidecarLogs(c.sidecars))
		}
		t.Logf("%5.1f s: %s", time.Since(start).Seconds(), part.name)
	}
	for _, violation := range c.history.violations() {
		t.Error(violation)
	}
}

// createDriverObject creates the CSIDriver of a driver.
func (c *csiSuite) createDriverObject(t testing.TB, name string, attachRequired bool) {
	t.Helper()
	_, err := c.api.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &attachRequired, PodInfoOnMount: new(true),
			FSGroupPolicy: new(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
				storagev1.VolumeLifecycleEphemeral}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// csiPod returns a pod that sleeps, with a volume at /disk.
func (c *csiSuite) csiPod(name string, disk v1.VolumeSource) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []v1.Container{
			{Name: "main", Image: c.agent.sampleImage, Args: []string{"sleep"}}}}}
	addVolume(pod, "disk", disk)
	return pod
}

// inlinePod returns a pod with a volume that lives as long as it.
func (c *csiSuite) inlinePod(name string) *v1.Pod { return c.csiPod(name, inlineVolume()) }

func inlineVolume() v1.VolumeSource {
	return v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: loopcsi.Name,
		VolumeAttributes: map[string]string{"size": "16Mi"}}}
}

// claimPod returns a pod with the volume of a claim.
func (c *csiSuite) claimPod(name, claim string) *v1.Pod {
	return c.csiPod(name, v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

// createClaim creates a volume at the driver and at the API server, and a claim that is bound to
// it. It returns the handle. All have the same name.
func (c *csiSuite) createClaim(t *testing.T, name string,
	mode v1.PersistentVolumeAccessMode) (handle string) {
	t.Helper()
	handle = c.driver.makeVolume(t, name)
	c.createClaimOn(t, name, mode, v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
		Driver: loopcsi.Name, VolumeHandle: handle, FSType: "ext4"}})
	return handle
}

// createClaimOn creates a persistent volume, and a claim that is bound to it. Both have one name.
func (c *csiSuite) createClaimOn(t testing.TB, name string, mode v1.PersistentVolumeAccessMode,
	source v1.PersistentVolumeSource) {
	t.Helper()
	c.createBoundClaim(t, name, v1.PersistentVolumeSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{mode}, PersistentVolumeSource: source})
}

// createBoundClaim is createClaimOn with more of the spec of the volume.
func (c *csiSuite) createBoundClaim(t testing.TB, name string, spec v1.PersistentVolumeSpec) {
	t.Helper()
	spec.Capacity = sizeOf("32Mi")
	spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
	spec.ClaimRef = &v1.ObjectReference{Namespace: testNamespace, Name: name}
	_, err := c.api.CoreV1().PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.createClaimOf(t, name, v1.PersistentVolumeClaimSpec{AccessModes: spec.AccessModes,
		VolumeMode: spec.VolumeMode, VolumeName: name, StorageClassName: new(""),
		Resources: v1.VolumeResourceRequirements{Requests: spec.Capacity}})
}

// createClaimOf creates a claim with a spec.
func (c *csiSuite) createClaimOf(t testing.TB, name string, spec v1.PersistentVolumeClaimSpec) {
	t.Helper()
	_, err := c.api.CoreV1().PersistentVolumeClaims(testNamespace).Create(t.Context(),
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func sizeOf(storage string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(storage)}
}

// deleteClaim deletes what createClaim has created. The driver refuses to remove a volume that is
// still staged.
func (c *csiSuite) deleteClaim(t *testing.T, name, handle string) {
	t.Helper()
	c.kubectl(t, "delete", "persistentvolumeclaim/"+name, "persistentvolume/"+name, patience)
	c.driver.removeVolume(t, handle)
}

func (c *csiSuite) createPods(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		_, err := c.api.CoreV1().Pods(testNamespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (c *csiSuite) waitReady(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		c.waitUntil(t, pod.Name+" is ready", func() bool { return isPodReady(c.apiPod(t, pod.Name)) })
	}
}

func (c *csiSuite) deletePods(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		err := c.api.CoreV1().Pods(testNamespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// waitReleased waits until nothing of any pod and of any volume is left on the node.
func (c *csiSuite) waitReleased(t testing.TB) {
	t.Helper()
	var left []string
	deadline := time.Now().Add(porttest.Patience)
	for left = c.volumesLeft(t); len(left) > 0; left = c.volumesLeft(t) {
		if time.Now().After(deadline) {
			t.Fatalf("the node still has\n%s\n%s", strings.Join(left, "\n"), c.podOverview(t))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// volumesLeft returns the mounts, directories and loop devices of CSI volumes and of local volumes
// on devices, and the directories of pods.
func (c *csiSuite) volumesLeft(t testing.TB) []string {
	t.Helper()
	left := c.csiMounts(t, "")
	const csi = "/plugins/kubernetes.io/csi/"
	for _, pattern := range []string{"/pods/*", csi + "*/*", csi + "volumeDevices/*/*",
		"/plugins/kubernetes.io/local-volume/*/*", "/plugins/kubernetes.io~local-volume/*/*"} {
		found, err := filepath.Glob(c.agent.rootDir + pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	left = slices.DeleteFunc(left, func(path string) bool { // these stay, as those of a kubelet
		return strings.HasSuffix(path, csi+"volumeDevices/publish") ||
			strings.HasSuffix(path, csi+"volumeDevices/staging")
	})
	devices, err := loopcsi.Leftovers(c.driver.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range c.heldDevices(t) {
		left = append(left, held.Name+" of "+held.Backing)
	}
	return append(left, devices...)
}

// heldDevices returns the loop devices with which the agent keeps devices of block volumes from
// being detached.
func (c *csiSuite) heldDevices(t testing.TB) []loopdevice.Device {
	t.Helper()
	all, err := loopdevice.List()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(d loopdevice.Device) bool {
		return !strings.HasPrefix(d.Backing, c.agent.rootDir+"/")
	})
}

// csiMounts returns the paths at which CSI volumes are mounted and that contain a text.
func (c *csiSuite) csiMounts(t testing.TB, text string) (paths []string) {
	t.Helper()
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(c.agent.rootDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		isCSI := strings.Contains(m.Mountpoint, "/kubernetes.io~csi/") ||
			strings.Contains(m.Mountpoint, "/plugins/kubernetes.io/csi/")
		if isCSI && strings.Contains(m.Mountpoint, text) {
			paths = append(paths, m.Mountpoint)
		}
	}
	return paths
}

// runSample runs a subcommand of the sample in a pod, and returns its exit code.
func (c *csiSuite) runSample(t *testing.T, pod *v1.Pod, args ...string) int32 {
	t.Helper()
	response, err := c.node.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: onlyContainerID(c.apiPod(t, pod.Name).Status.ContainerStatuses),
		Timeout:     int64(porttest.Patience.Seconds()), Cmd: append([]string{"/sample"}, args...)})
	if err != nil {
		t.Fatalf("running %v in %s: %v", args, pod.Name, err)
	}
	return response.ExitCode
}

func (c *csiSuite) writeFile(t *testing.T, pod *v1.Pod, path, text string) {
	t.Helper()
	if code := c.runSample(t, pod, "write", path, text); code != 0 {
		t.Errorf("writing %s in %s: exit code %d", path, pod.Name, code)
	}
}

func (c *csiSuite) expectFile(t *testing.T, pod *v1.Pod, path, want string) {
	t.Helper()
	got := c.runReport(t, c.apiPod(t, pod.Name), path).Paths[path]
	if got.Text != want+"\n" {
		t.Errorf("%s in %s is %+v, want %q", path, pod.Name, got, want)
	}
}

// testLateDriver has pods wait for the driver, one with an inline volume and one with a claim.
func (c *csiSuite) testLateDriver(t *testing.T) {
	inline := c.inlinePod("inline")
	c.createPods(t, inline)
	missing := "driver name " + loopcsi.Name + " not found in the list of registered CSI drivers"
	c.waitUntil(t, "an event says that the driver is missing", func() bool {
		return strings.Contains(c.eventText(t, inline.Name), missing)
	})
	c.driver.start(t)
	c.waitReady(t, inline)
	c.writeFile(t, inline, "/disk/file", "inline")
	c.expectFile(t, inline, "/disk/file", "inline")
	node, err := c.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil || len(node.Spec.Drivers) != 1 || node.Spec.Drivers[0].Name != loopcsi.Name ||
		node.Spec.Drivers[0].NodeID != nodeName {
		t.Errorf("the CSINode is %+v, %v", node, err)
	}
	c.deletePods(t, inline)
	c.waitReleased(t)
}

// testPersistentVolume has a pod read what another has written.
func (c *csiSuite) testPersistentVolume(t *testing.T) {
	handle := c.createClaim(t, "keeper", v1.ReadWriteOnce)
	for n := range 2 {
		pod := c.claimPod("keeper", "keeper")
		c.createPods(t, pod)
		c.waitReady(t, pod)
		if n > 0 {
			c.expectFile(t, pod, "/disk/file", "run 0")
		}
		c.writeFile(t, pod, "/disk/file", fmt.Sprint("run ", n))
		c.deletePods(t, pod)
		c.waitReleased(t)
		c.waitUntil(t, "the pod has gone", func() bool { return c.apiPod(t, pod.Name) == nil })
	}
	c.deleteClaim(t, "keeper", handle)
}

// testSharedVolume has pods share a volume: one owns its files by a group, one reads, one sees a
// part of it. The volume is staged once, until the last of them has gone.
func (c *csiSuite) testSharedVolume(t *testing.T) {
	handle := c.createClaim(t, "shared", v1.ReadWriteOnce)
	owner, reader, part := c.claimPod("owner", "shared"), c.claimPod("reader", "shared"),
		c.claimPod("part", "shared")
	const group = 4321
	owner.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(group)),
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000))}
	c.createPods(t, owner)
	c.waitReady(t, owner)
	c.writeFile(t, owner, "/disk/file", "shared")
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	part.Spec.Containers[0].VolumeMounts[0].SubPath = "inner/most"
	c.createPods(t, reader, part)
	c.waitReady(t, reader, part)
	c.expectFile(t, reader, "/disk/file", "shared")
	if code := c.runSample(t, reader, "write", "/disk/file", "refused"); code == 0 {
		t.Error("a volume is writable that is mounted read-only")
	}
	c.writeFile(t, part, "/disk/file", "inner")
	c.expectFile(t, owner, "/disk/inner/most/file", "inner")
	report := c.fullReport(t, owner, "/disk", "/disk/file")
	for path, got := range report.Paths {
		if got.GID != group {
			t.Errorf("%s is %+v, want group %d", path, got, group)
		}
	}
	if staged := c.csiMounts(t, "/globalmount"); len(staged) != 1 {
		t.Errorf("staged at %q, want one path", staged)
	}
	c.deletePods(t, owner, part)
	c.waitUntil(t, "the owner and the part are unpublished", func() bool {
		return len(c.csiMounts(t, "/pods/")) == 1
	})
	c.expectFile(t, reader, "/disk/file", "shared")
	if n := c.driver.count(t, "NodeUnstageVolume", handle); n > 0 {
		t.Errorf("unstaged %d times below a publication", n)
	}
	c.deletePods(t, reader)
	c.waitReleased(t)
	if n := c.driver.count(t, "NodeStageVolume", handle); n != 1 {
		t.Errorf("staged %d times, want once", n)
	}
	c.deleteClaim(t, "shared", handle)
}

// fullReport returns the report of a pod with all that it says of paths.
func (c *csiSuite) fullReport(t *testing.T, pod *v1.Pod, paths ...string) report {
	t.Helper()
	var r report
	out := c.kubectl(t, append([]string{"exec", pod.Name, "--", "/sample", "report"}, paths...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// testReadWriteOncePod has the scheduler, and then the agent, refuse a volume to a second pod.
func (c *csiSuite) testReadWriteOncePod(t *testing.T) {
	handle := c.createClaim(t, "single", v1.ReadWriteOncePod)
	first, second, third := c.claimPod("first", "single"), c.claimPod("second", "single"),
		c.claimPod("third", "single")
	c.createPods(t, first)
	c.waitReady(t, first)
	third.Spec.NodeName = nodeName // without the scheduler
	c.createPods(t, second, third)
	c.waitUntil(t, "the agent refuses the third pod", func() bool {
		return strings.Contains(c.eventText(t, third.Name), "volume uses the ReadWriteOncePod access "+
			"mode and is already in use by another pod")
	})
	c.waitUntil(t, "the scheduler refuses the second pod", func() bool {
		return strings.Contains(c.eventText(t, second.Name), "ReadWriteOncePod")
	})
	if published := c.csiMounts(t, "/pods/"); len(published) != 1 {
		t.Errorf("published at %q, want one path", published)
	}
	c.deletePods(t, second, first)
	c.waitReady(t, third)
	c.deletePods(t, third)
	c.waitReleased(t)
	c.deleteClaim(t, "single", handle)
}
