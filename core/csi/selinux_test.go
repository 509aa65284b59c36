package csi

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// Where SELinux is enabled, the files of a published volume are relabeled if the mount that its
// path is in has labels that can be changed. An agent that is started again finds that out without
// a call to the driver.
func TestVolumeIsRelabeled(t *testing.T) {
	at := func(n *node) string { return n.node.PodsDir + "/a/volumes/kubernetes.io~csi/pv-1/mount" }
	root := world.Mount{Path: "/", Device: "8:0", SELinuxLabels: true}
	for name, c := range map[string]struct {
		selinux bool
		mounts  func(n *node) []world.Mount
		want    bool
	}{
		"labels": {true, func(n *node) []world.Mount {
			return []world.Mount{{Path: at(n), SELinuxLabels: true}}
		}, true},
		"no labels": {true, func(n *node) []world.Mount {
			return []world.Mount{root, {Path: at(n)}}
		}, false},
		"the upper of two": {true, func(n *node) []world.Mount {
			return []world.Mount{{Path: at(n)}, {Path: at(n), SELinuxLabels: true}}
		}, true},
		"another one": {true, func(n *node) []world.Mount {
			return []world.Mount{{Path: at(n)}, {Path: at(n) + "-2", SELinuxLabels: true}}
		}, false},
		"disabled": {false, func(n *node) []world.Mount {
			return []world.Mount{{Path: at(n), SELinuxLabels: true}}
		}, false},
	} {
		n := newReady(t)
		n.selinux = c.selinux
		n.mounts = c.mounts(n)
		if got := n.need(use("a")); got != (UseState{Ready: true, Relabel: c.want}) {
			t.Errorf("%s: %+v", name, got)
		}
		n.restart().register()
		u := use("a")
		u.HasRun = true
		if got := n.need(u); got != (UseState{Ready: true, Relabel: c.want}) {
			t.Errorf("%s, after a restart: %+v", name, got)
		}
		n.expect("info")
	}
}

// A volume that its driver has not mounted is in the file system of the node.
func TestVolumeWithoutMountIsRelabeled(t *testing.T) {
	n := newReady(t)
	n.selinux, n.lies = true, 1
	n.mounts = []world.Mount{{Path: "/", Device: "8:0", SELinuxLabels: true}}
	n.files[n.node.PodsDir+"/a/volumes/kubernetes.io~csi/pv-1/mount"] = "/"
	if got := n.need(use("a")); !got.Ready || !got.Relabel {
		t.Errorf("got %+v", got)
	}
}

// Until the mount table was read, a pod does not get its volume. The driver is not called again.
func TestMountTableCannotBeRead(t *testing.T) {
	n := newReady(t)
	n.selinux = true
	n.fail["ListMounts"] = &failure{world.Errorf(world.KindTimeout, "ListMounts", "late"), 1, false}
	const want = `MountVolume.SetUp failed for volume "pv-1" : ` +
		"error checking for SELinux support: late"
	if got := n.need(use("a")); got.Ready || got.Problem != want {
		t.Errorf("got %+v", got)
	}
	n.expect("stage "+n.sha(), "publish pv-1")
	if n.wait(time.Second); !n.isReady(use("a")) {
		t.Error("not ready although the mount table was read")
	}
	n.expect()
	n.end("a")
	n.expectClean()
}
