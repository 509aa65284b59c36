package e2e

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

// replaceDriver ends the driver, as an upgrade does, and starts it with more arguments when the
// CSINode has it no more: the API server lets no agent change the topology of an entry.
func (c *csiSuite) replaceDriver(t *testing.T, args []string) {
	t.Helper()
	c.driver.volumes(t) // it serves, and so removes the socket of its registration when it ends
	for _, d := range c.sidecars {
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	c.driver.Stop()
	c.waitUntil(t, "the CSINode has no driver", func() bool { return c.driverOfNode(t) == nil })
	c.driver.args = args
	c.driver.start(t)
	c.waitUntil(t, "the CSINode has the driver", func() bool { return c.driverOfNode(t) != nil })
	for _, d := range c.sidecars {
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// driverOfNode returns the entry of the driver in the CSINode; nil if it has none.
func (c *csiSuite) driverOfNode(t *testing.T) *storagev1.CSINodeDriver {
	t.Helper()
	node, err := c.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == loopcsi.Name
	})
	if i < 0 {
		return nil
	}
	return &node.Spec.Drivers[i]
}

// zone is the topology segment of the driver from testTopology to testKilledExpansion.
const zone = "here"

// volumesMax is the driver's limit of volumes from then on.
const volumesMax = 2

// testTopology has a driver whose volumes are in a zone. The agent labels its Node, the sidecar
// makes volumes for that zone, and neither the scheduler nor the agent takes one of another zone.
func (c *csiSuite) testTopology(t *testing.T) {
	c.plainArgs = c.driver.args
	c.replaceDriver(t, append(slices.Clip(c.plainArgs), "--zone="+zone, "--volumes-max=2"))
	entry := c.driverOfNode(t)
	if !slices.Equal(entry.TopologyKeys, []string{loopcsi.ZoneKey}) || entry.Allocatable == nil ||
		*entry.Allocatable.Count != volumesMax {
		t.Errorf("the CSINode has %+v", entry)
	}
	if got := c.apiNode(t).Labels[loopcsi.ZoneKey]; got != zone {
		t.Errorf("the Node is labeled with zone %q when the CSINode has the driver", got)
	}
	near := c.passingPod("near")
	c.createPods(t, near)
	c.waitReady(t, near)
	volume := c.apiVolume(t, c.apiClaim(t, "near-disk").Spec.VolumeName)
	if a := volume.Spec.NodeAffinity; a == nil || a.Required == nil ||
		!hasRequirement(a.Required.NodeSelectorTerms, loopcsi.ZoneKey, zone) {
		t.Errorf("the node affinity of the volume is %+v", a)
	}

	handle := c.driver.makeVolume(t, "far")
	c.createBoundClaim(t, "far", v1.PersistentVolumeSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
			Driver: loopcsi.Name, VolumeHandle: handle, FSType: "ext4"}},
		NodeAffinity: affinityTo(loopcsi.ZoneKey, "elsewhere")})
	scheduled, forced := c.claimPod("far-scheduled", "far"), c.claimPod("far-forced", "far")
	forced.Spec.NodeName = nodeName // without the scheduler
	c.createPods(t, scheduled, forced)
	c.waitUntil(t, "the scheduler refuses a volume of another zone", func() bool {
		return hasLine(c.eventText(t, scheduled.Name), "FailedScheduling: ", "node affinity")
	})
	c.waitUntil(t, "the agent refuses a volume of another zone", func() bool {
		return hasLine(c.eventText(t, forced.Name), "FailedMount: MountVolume.NodeAffinity check failed",
			"no matching NodeSelectorTerms")
	})
	c.deletePods(t, near, scheduled, forced)
	c.waitReleased(t)
	c.deleteClaim(t, "far", handle)
	c.waitVolumesRemoved(t)
}

func hasRequirement(terms []v1.NodeSelectorTerm, key, value string) bool {
	return slices.ContainsFunc(terms, func(term v1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(r v1.NodeSelectorRequirement) bool {
			return r.Key == key && slices.Contains(r.Values, value)
		})
	})
}

// testVolumeLimit fills the node up to the driver's limit of volumes. The scheduler lets a pod with
// one more wait. One that comes without the scheduler says that its volume cannot be attached.
func (c *csiSuite) testVolumeLimit(t *testing.T) {
	c.changeDriverObject(t, func(spec *storagev1.CSIDriverSpec) {
		spec.NodeAllocatableUpdatePeriodSeconds = new(int64(10)) // a limit that the agent looks after
	})
	c.createClaimOf(t, "online", claimOfClass("loop-xfs", "320Mi"))
	c.grower, c.neighbor = c.claimPod("grower", "online"), c.passingPod("neighbor")
	c.createPods(t, c.grower, c.neighbor)
	c.waitReady(t, c.grower, c.neighbor)
	c.createClaim(t, "forced", v1.ReadWriteOnce)
	c.waiting, c.forced = c.passingPod("waiting"), c.claimPod("forced", "forced")
	c.forced.Spec.NodeName = nodeName // without the scheduler
	c.createPods(t, c.waiting, c.forced)
	c.waitUntil(t, "the scheduler lets a pod wait for the limit", func() bool {
		return hasLine(c.eventText(t, c.waiting.Name), "FailedScheduling: ", "max volume count")
	})
	c.waitUntil(t, "kubectl says that a volume cannot be attached", func() bool {
		return hasLine(c.kubectl(t, "describe", "pod", c.forced.Name), "FailedAttachVolume",
			"code = ResourceExhausted desc = node e2e has 2 volumes of 2")
	})
}

// testExceededLimit waits until the pod of testVolumeLimit fails that the scheduler has not seen,
// as a kubelet has it after two minutes (KEP-4876): its controller may make another elsewhere. When
// the node has less volumes, a new pod starts. The one that the scheduler has let wait could take
// five minutes more: the scheduler tries it again then, or when it is notified of something that it
// takes for a reason, and the end of an attachment is none for a claim in a pod.
func (c *csiSuite) testExceededLimit(t *testing.T) {
	c.waitUntil(t, "a pod fails whose volume the full node cannot have", func() bool {
		status := c.apiPod(t, c.forced.Name).Status
		return status.Phase == v1.PodFailed && status.Reason == "VolumeAttachmentLimitExceeded"
	})
	t.Log(c.apiPod(t, c.forced.Name).Status.Message)
	c.deletePods(t, c.forced, c.neighbor, c.waiting)
	c.waitDetached(t, 1)
	next := c.passingPod("next")
	c.createPods(t, next)
	c.waitReady(t, next)
	c.deletePods(t, next)
	c.waitUntil(t, "the pods have gone", func() bool {
		return c.apiPod(t, c.forced.Name) == nil && c.apiPod(t, next.Name) == nil
	})
	c.waitDetached(t, 1)
	handle := c.apiVolume(t, "forced").Spec.CSI.VolumeHandle
	c.deleteClaim(t, "forced", handle)
	c.changeDriverObject(t, func(spec *storagev1.CSIDriverSpec) {
		spec.NodeAllocatableUpdatePeriodSeconds = nil
	})
}

func (c *csiSuite) apiVolume(t *testing.T, name string) *v1.PersistentVolume {
	t.Helper()
	volume, err := c.api.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return volume
}

// changeDriverObject changes the spec of the driver's CSIDriver.
func (c *csiSuite) changeDriverObject(t *testing.T, change func(*storagev1.CSIDriverSpec)) {
	t.Helper()
	drivers := c.api.StorageV1().CSIDrivers()
	object, err := drivers.Get(t.Context(), loopcsi.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(&object.Spec)
	if _, err := drivers.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
