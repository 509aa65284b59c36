package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// cinderDriver is the name of the driver that has replaced the plugin for volumes of the kind
// cinder (KEP-625).
const cinderDriver = "cinder.csi.openstack.org"

// testMigratedVolumes has a pod with two volumes of the kind cinder, one with a claim and one that
// is written in it. A driver of the name that has replaced the plugin makes them on loop devices. A
// restarted agent lets go of them.
func (c *csiSuite) testMigratedVolumes(t *testing.T) {
	driver := newCSIDriver(t, c.agent, cinderDriver)
	c.createDriverObject(t, cinderDriver, false)
	driver.start(t)
	claimed, own := driver.makeVolume(t, "claimed"), driver.makeVolume(t, "own")
	c.createClaimOn(t, "cloud", v1.ReadWriteOnce, v1.PersistentVolumeSource{
		Cinder: &v1.CinderPersistentVolumeSource{VolumeID: claimed, FSType: "ext4"}})
	newPod := func(name string) *v1.Pod {
		pod := c.claimPod(name, "cloud")
		addVolume(pod, "own", v1.VolumeSource{
			Cinder: &v1.CinderVolumeSource{VolumeID: own, FSType: "ext4"}})
		return pod
	}
	first, second := newPod("cloud"), newPod("cloud-again")
	c.createPods(t, first)
	c.waitReady(t, first)
	c.writeFile(t, first, "/disk/file", "claimed")
	c.writeFile(t, first, "/own/file", "own")
	if at := c.csiMounts(t, "/"+cinderDriver+"-"+own+"/mount"); len(at) != 1 {
		t.Errorf("the pod's own volume is mounted at %q, want one directory of its name", at)
	}
	c.restartAgent(t)
	c.createPods(t, second)
	c.waitReady(t, second)
	c.deletePods(t, first)
	for path, want := range map[string]string{"/disk/file": "claimed", "/own/file": "own"} {
		c.expectFile(t, second, path, want)
	}
	c.deletePods(t, second)
	c.waitReleased(t)
	for _, handle := range []string{claimed, own} {
		if n := driver.count(t, "NodeUnstageVolume", handle); n != 1 {
			t.Errorf("%s was unstaged %d times, want once", handle, n)
		}
	}
	c.kubectl(t, "delete", "persistentvolumeclaim/cloud", "persistentvolume/cloud", patience)
	driver.removeVolume(t, claimed)
	driver.removeVolume(t, own)
	driver.Stop()
}
