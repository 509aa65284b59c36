package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/csi/loopcsi"
)

// loopClass is the class of volumes that the sidecars make.
const loopClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: loop}
provisioner: ` + loopcsi.Name + `
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: ext4}
`

const shelfManifest = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shelf, namespace: town}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  serviceName: shelf
  selector: {matchLabels: {app: shelf}}
  template:
    metadata: {labels: {app: shelf}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: IMAGE
        args: [sleep]
        volumeMounts: [{name: disk, mountPath: /disk}]
  volumeClaimTemplates:
  - metadata: {name: disk}
    spec:
      storageClassName: loop
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 32Mi}}
`

// startSidecars restarts the driver as one whose volumes are attached, beside the sidecars that
// make, attach and expand them for the API server.
func (c *csiSuite) startSidecars(t *testing.T) {
	t.Helper()
	c.kubectl(t, "delete", "csidriver/"+loopcsi.Name, patience)
	c.createDriverObject(t, loopcsi.Name, true)
	c.apply(t, loopClass)
	c.createClass(t, "loop-xfs", storagev1.VolumeBindingWaitForFirstConsumer,
		map[string]string{fileSystemKey: "xfs"})
	for _, program := range []string{cluster.Provisioner, cluster.Attacher, cluster.Resizer} {
		d, err := c.cluster.NewSidecar(t.Context(), program, c.driver.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		c.sidecars = append(c.sidecars, d)
	}
	c.driver.args = append(c.driver.args, "--attach")
	c.restartDriver(t)
}

// sidecarLogs returns the ends of the logs of all sidecars.
func sidecarLogs(sidecars []*cleanup.Daemon) string {
	var logs strings.Builder
	for _, d := range sidecars {
		fmt.Fprintf(&logs, "%s:\n%s\n", d.Program, d.LogTail())
	}
	return logs.String()
}

// testStatefulSet has a StatefulSet keep the data of its claims while it is scaled, and while it is
// deleted and created again. Its volumes are made, attached, detached and removed by the sidecars.
func (c *csiSuite) testStatefulSet(t *testing.T) {
	shelf := func(n int) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("shelf-", n)}}
	}
	c.apply(t, shelfManifest)
	c.waitReady(t, shelf(0), shelf(1))
	for n := range 2 {
		c.writeFile(t, shelf(n), "/disk/file", fmt.Sprint("of ", n))
	}
	if attached := c.apiNode(t).Status.VolumesAttached; len(attached) != 2 {
		t.Errorf("attached are %v, want two volumes", attached)
	}
	c.kubectl(t, "scale", "--replicas=1", "statefulset/shelf")
	c.waitDetached(t, 1)
	c.restartAgent(t)
	c.kubectl(t, "scale", "--replicas=2", "statefulset/shelf")
	c.waitReady(t, shelf(1))
	c.expectFile(t, shelf(1), "/disk/file", "of 1")
	c.expectFile(t, shelf(0), "/disk/file", "of 0")
	c.kubectl(t, "delete", "statefulset/shelf", patience)
	c.waitReleased(t)
	c.waitDetached(t, 0)
	c.apply(t, shelfManifest)
	c.waitReady(t, shelf(0), shelf(1))
	for n := range 2 {
		c.expectFile(t, shelf(n), "/disk/file", fmt.Sprint("of ", n))
	}
	c.kubectl(t, "delete", "statefulset/shelf", patience)
	c.kubectl(t, "delete", "persistentvolumeclaim", "--all", patience)
	c.waitReleased(t)
	c.waitVolumesRemoved(t)
}

// waitDetached waits until a number of volumes is attached.
func (c *csiSuite) waitDetached(t *testing.T, count int) {
	t.Helper()
	c.waitUntil(t, fmt.Sprint("attached volumes: ", count), func() bool {
		list, err := c.api.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		node := c.apiNode(t)
		return err == nil && len(list.Items) == count && len(node.Status.VolumesAttached) == count &&
			len(node.Status.VolumesInUse) == count
	})
}

// waitVolumesRemoved waits until neither the API server nor the driver has a volume.
func (c *csiSuite) waitVolumesRemoved(t *testing.T) {
	t.Helper()
	c.waitDetached(t, 0)
	c.waitUntil(t, "all volumes are removed", func() bool {
		list, err := c.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	if left := c.driver.volumes(t); len(left) != 0 {
		t.Errorf("the driver still has volumes %v", left)
	}
}

// passingPod returns a pod with a claim that lives as long as it, named by the pod and "-disk".
func (c *csiSuite) passingPod(name string) *v1.Pod {
	return c.csiPod(name, v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: loopClaim()}}})
}

// loopClaim is a claim for which the provisioner makes a volume.
func loopClaim() v1.PersistentVolumeClaimSpec { return claimOfClass("loop", "32Mi") }

func claimOfClass(class, size string) v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: sizeOf(size)}}
}

// testLateAttachment kills the agent while a pod waits for its volume to be attached, and again
// after the pod was deleted.
func (c *csiSuite) testLateAttachment(t *testing.T) {
	const call = "ControllerPublishVolume"
	c.restartDriver(t, delays([]string{call})...)
	pod := c.passingPod("passing")
	c.createPods(t, pod)
	c.killWithin(t, call, nil, c.restartAgent)
	c.waitReady(t, pod)
	c.writeFile(t, pod, "/disk/file", "passing")
	c.agent.signalAndWait(t, syscall.SIGKILL)
	c.deletePods(t, pod)
	c.agent.startProcess(t)
	c.waitReleased(t)
	c.waitVolumesRemoved(t)
}

// testControllerExpansion has a sidecar expand the volume of a running pod.
func (c *csiSuite) testControllerExpansion(t *testing.T) {
	pod := c.passingPod("grown")
	c.createPods(t, pod)
	c.waitReady(t, pod)
	c.kubectl(t, "patch", "persistentvolumeclaim", "grown-disk", "-p",
		`{"spec": {"resources": {"requests": {"storage": "48Mi"}}}}`)
	c.waitUntil(t, "the volume has the new capacity", func() bool {
		list, err := c.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 &&
			list.Items[0].Spec.Capacity.Storage().Equal(resource.MustParse("48Mi"))
	})
	c.deletePods(t, pod)
	c.waitReleased(t)
	c.waitVolumesRemoved(t)
}
