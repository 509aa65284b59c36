package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

// fileSystemKey is the parameter of a class with the file system of its volumes.
const fileSystemKey = "csi.storage.k8s.io/fstype"

// createClass creates a class of volumes that sidecars make, as parameters say.
func (c *csiSuite) createClass(t *testing.T, name string, binding storagev1.VolumeBindingMode,
	parameters map[string]string) {
	t.Helper()
	_, err := c.api.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: loopcsi.Name,
		VolumeBindingMode: &binding, AllowVolumeExpansion: new(true), Parameters: parameters},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testOnlineExpansion has a volume and its file system grow below a pod of testVolumeLimit, at
// first with a driver that fails. The file system is xfs, because mounted ext4 does not grow
// without CAP_SYS_RESOURCE. The agent reads the claims of running pods once a minute.
func (c *csiSuite) testOnlineExpansion(t *testing.T) {
	const call = "NodeExpandVolume"
	pod := c.grower
	c.writeFile(t, pod, "/disk/file", "small")
	before := c.runningPods(t)
	c.checkSize(t, pod, "/disk", "320Mi")
	c.restartDriver(t, call+":before=INTERNAL")
	c.requestSize(t, "online", "512Mi")
	const problem = "rpc error: code = Internal desc = injected before " + call
	c.waitUntil(t, "an event of the pod says that the expansion failed", func() bool {
		return hasLine(c.eventText(t, pod.Name), "VolumeResizeFailed: ", problem)
	})
	c.waitUntil(t, "a condition of the claim says that the expansion failed", func() bool {
		shown := c.kubectl(t, "describe", "persistentvolumeclaim/online")
		return hasLine(shown, string(v1.PersistentVolumeClaimNodeResizeError), problem)
	})
	if got := c.apiClaim(t, "online").Status.Capacity.Storage().String(); got != "320Mi" {
		t.Errorf("the claim has %s before the driver has expanded it", got)
	}
	c.restartDriver(t)
	c.waitExpanded(t, "online", "512Mi")
	c.checkSize(t, pod, "/disk", "512Mi")
	for _, name := range []string{pod.Name, "online"} {
		c.waitUntil(t, "an event of "+name+" says that it was expanded", func() bool {
			return hasLine(c.eventText(t, name), "FileSystemResizeSuccessful: ", "succeeded for volume")
		})
	}
	c.checkUnchanged(t, before, c.runningPods(t))
}

// testKilledExpansion kills the agent before and while the driver makes a file system larger. Then
// the driver is replaced by one without a zone and a limit.
func (c *csiSuite) testKilledExpansion(t *testing.T) {
	const call = "NodeExpandVolume"
	pod, before := c.grower, c.runningPods(t)
	c.restartDriver(t, delays([]string{call})...)
	c.requestSize(t, "online", "640Mi")
	c.waitControllerExpanded(t, "online")
	c.restartAgent(t)
	c.killWithin(t, call, nil, c.restartAgent)
	c.waitExpanded(t, "online", "640Mi")
	c.checkSize(t, pod, "/disk", "640Mi")
	c.checkUnchanged(t, before, c.runningPods(t))
	c.expectFile(t, pod, "/disk/file", "small")
	c.deletePods(t, pod)
	c.waitReleased(t)
	c.kubectl(t, "delete", "persistentvolumeclaim/online", patience)
	c.waitVolumesRemoved(t)
	c.replaceDriver(t, c.plainArgs)
	if entry := c.driverOfNode(t); len(entry.TopologyKeys) > 0 || entry.Allocatable != nil {
		t.Errorf("the CSINode has %+v, want neither topology nor limit", entry)
	}
}

// testOfflineExpansion has a volume grow that no pod uses. Its file system follows before the next
// pod starts.
func (c *csiSuite) testOfflineExpansion(t *testing.T) {
	c.createClaimOf(t, "offline", loopClaim())
	first, second := c.claimPod("first", "offline"), c.claimPod("second", "offline")
	c.createPods(t, first)
	c.waitReady(t, first)
	c.checkSize(t, first, "/disk", "32Mi")
	c.writeFile(t, first, "/disk/file", "small")
	c.deletePods(t, first)
	c.waitReleased(t)
	c.waitDetached(t, 0)
	c.requestSize(t, "offline", "64Mi")
	c.waitUntil(t, "the claim waits for a pod", func() bool {
		shown := c.kubectl(t, "describe", "persistentvolumeclaim/offline")
		return hasLine(shown, string(v1.PersistentVolumeClaimFileSystemResizePending),
			"Waiting for user to (re-)start a pod")
	})
	c.createPods(t, second)
	c.waitReady(t, second)
	c.checkSize(t, second, "/disk", "64Mi")
	c.waitExpanded(t, "offline", "64Mi")
	c.expectFile(t, second, "/disk/file", "small")
	c.deletePods(t, second)
	c.waitReleased(t)
	c.kubectl(t, "delete", "persistentvolumeclaim/offline", patience)
	c.waitVolumesRemoved(t)
}

// requestSize has a claim request another size.
func (c *csiSuite) requestSize(t *testing.T, claim, size string) {
	t.Helper()
	c.kubectl(t, "patch", "persistentvolumeclaim", claim, "-p",
		fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size))
}

// waitControllerExpanded waits until only the node has to expand the volume of a claim.
func (c *csiSuite) waitControllerExpanded(t *testing.T, name string) {
	t.Helper()
	c.waitUntil(t, "the node has to expand the volume of "+name, func() bool {
		status := c.apiClaim(t, name).Status.AllocatedResourceStatuses[v1.ResourceStorage]
		return status == v1.PersistentVolumeClaimNodeResizePending
	})
}

// waitExpanded waits until a claim has a size, and says nothing more of an expansion.
func (c *csiSuite) waitExpanded(t *testing.T, name, size string) {
	t.Helper()
	c.waitUntil(t, fmt.Sprintf("claim %s has %s and no conditions", name, size), func() bool {
		status := c.apiClaim(t, name).Status
		return status.Capacity.Storage().Equal(resource.MustParse(size)) &&
			len(status.Conditions) == 0 && len(status.AllocatedResourceStatuses) == 0
	})
}

func (c *csiSuite) apiClaim(t *testing.T, name string) *v1.PersistentVolumeClaim {
	t.Helper()
	claim, err := c.api.CoreV1().PersistentVolumeClaims(testNamespace).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// checkSize checks that a pod sees a volume of a size at a path. A file system has up to a quarter
// of that for itself.
func (c *csiSuite) checkSize(t *testing.T, pod *v1.Pod, path, size string) {
	t.Helper()
	want := resource.MustParse(size)
	got := c.runReport(t, c.apiPod(t, pod.Name), path).Paths[path].Size
	if got > want.Value() || got < want.Value()*3/4 {
		t.Errorf("%s in %s has %d bytes, want nearly %s", path, pod.Name, got, size)
	}
}

// hasLine reports whether a line of a text has all of some parts.
func hasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		found := 0
		for _, part := range parts {
			if strings.Contains(line, part) {
				found++
			}
		}
		if found == len(parts) {
			return true
		}
	}
	return false
}
