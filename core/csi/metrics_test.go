package csi

import (
	"slices"
	"testing"
	"time"

	"seedlet.dev/world"
)

func (n *node) expectCounted(want ...string) {
	n.t.Helper()
	if !slices.Equal(n.counted, want) {
		n.t.Errorf("counted\n%q, want\n%q", n.counted, want)
	}
	n.counted = nil
}

// Each attempt to give a pod a volume is counted, from its first step to its end, the stage of the
// volume included, and so is each attempt to undo that, and each expansion.
func TestOperationsAreCounted(t *testing.T) {
	n := newReady(t)
	n.fail["StageVolume"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.hold["PublishVolume"] = true
	n.need(claimed("a"))
	n.expectCounted("volume_mount 0s true")
	n.wait(time.Second) // staged half a second later
	n.release("PublishVolume")
	n.expectCounted("volume_mount 500ms false")
	n.need(claimed("b"))
	n.expectCounted("volume_mount 0s false")

	n.fail["ExpandVolume"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.resize("2Gi")
	n.run()
	n.wait(time.Minute)
	n.expectCounted("volume_fs_resize 0s true", "volume_fs_resize 0s false")

	n.end("b")
	n.expectCounted("volume_unmount 0s false")
	n.fail["UnpublishVolume"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.hold["UnstageVolume"] = true
	n.end("a")
	n.wait(time.Second)
	n.wait(time.Second)
	n.release("UnstageVolume")
	n.expectCounted("volume_unmount 0s true", "volume_unmount 0s false", "unmount_device 1.5s false")
	n.expectClean()
}

// Those of block volumes have names of their own. After a restart of the agent alone nothing is
// counted of a file system; a device is held again.
func TestOperationsOfBlockVolumesAreCounted(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.counted = nil
	n.restart().register()
	found := use("a")
	found.HasRun = true
	if n.need(found); !n.isReady(found) {
		t.Error("not ready")
	}
	n.expectCounted()

	n = newReady(t)
	n.need(device("a"))
	n.expectCounted("map_volume 0s false")
	n.restart().register()
	u := device("a")
	u.HasRun = true
	if n.need(u); !n.isReady(u) {
		t.Error("not ready")
	}
	n.expectCounted("map_volume 0s false")
	n.end("a")
	n.expectCounted("unmap_volume 0s false", "unmap_device 0s false")
}

// A volume that waits to be attached, or for its driver to be undone, is in no operation.
func TestWaitsAreNotCounted(t *testing.T) {
	n := newNode(t)
	n.run().register()
	n.need(use("a"))
	n.wait(10 * time.Second)
	n.expectCounted()
	n.attach()
	n.run()
	n.expectCounted("volume_mount 0s false")
	n.observe() // the driver is gone
	n.end("a")
	n.wait(time.Minute)
	n.expectCounted()
	n.register()
	n.wait(time.Minute)
	n.expectCounted("volume_unmount 0s false", "unmount_device 0s false")
}

// Directories without readable data are counted, and the attempts to remove them.
func TestCleaningsAreCounted(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	for file := range n.files {
		if n.files[file] != "/" {
			n.files[file] = "{"
		}
	}
	delete(n.pods, "a")
	n.restart()
	n.wait(time.Minute)
	if s := &n.node.Search; s.Found != 1 || s.Unread != 1 {
		t.Errorf("found %+v", s)
	}
	failed := n.node.Search.FailedCleanings
	if n.mounts = nil; failed == 0 || n.node.Search.Cleanings != failed {
		t.Errorf("a mount is left: %+v", n.node.Search)
	}
	n.wait(5 * time.Minute)
	if s := &n.node.Search; s.Cleanings != s.FailedCleanings+1 {
		t.Errorf("removed: %+v", s)
	}
	n.expectCounted("volume_mount 0s false")
}
