package csi

import (
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/world"
)

// sharing returns a node with a volume that is being given to the group of a pod.
func sharing(t *testing.T) *node {
	n := newReady(t)
	driver := noAttach()
	policy := storagev1.FileFSGroupPolicy
	driver.FSGroupPolicy = &policy
	n.setDriverObject(driver)
	n.hold["ShareWithGroup"] = true
	n.need(inGroup("a"))
	if n.held["ShareWithGroup"].Body == nil {
		t.Fatal("the volume is not given to the group")
	}
	return n
}

func inGroup(uid string) Use {
	u, gid := use(uid), int64(7)
	u.FSGroup = &gid
	return u
}

// A pod reports that its volume takes long to be given to its group, after half a minute and then
// once a minute.
func TestSlowGroupIsReported(t *testing.T) {
	n := sharing(t)
	var got []string
	for range 4 {
		n.wait(25 * time.Second)
		got = append(got, strings.Join(n.events, ", "))
		n.events = nil
	}
	const first = "a VolumePermissionChangeInProgress Setting volume ownership for " +
		"a/volumes/kubernetes.io~csi/pv-1/mount is taking longer than expected, consider using " +
		"OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/" +
		"#configure-volume-permission-and-ownership-change-policy-for-pods"
	const again = "a VolumePermissionChangeInProgress Setting volume ownership for " +
		"a/volumes/kubernetes.io~csi/pv-1/mount is still in progress."
	if want := []string{"", first, "", again}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n.release("ShareWithGroup"); !n.isReady(inGroup("a")) {
		t.Error("not ready")
	}
	if n.wait(time.Hour); len(n.events) > 0 {
		t.Errorf("reported after its end: %q", n.events)
	}
}

// What gives a volume to the group of a pod that has ended is canceled once; nothing else is done
// with the volume before it has ended. A pod that is there again gets its volume.
func TestSlowGroupEndsWithItsPod(t *testing.T) {
	for _, isBack := range []bool{false, true} {
		n := sharing(t)
		n.calls = nil
		id := n.held["ShareWithGroup"].Op
		if !n.end("a") {
			t.Error("not held while its files are being changed")
		}
		n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
		n.wait(time.Minute)
		if !slices.Equal(n.canceled, []world.OpID{id}) {
			t.Errorf("canceled %v, want %v once", n.canceled, id)
		}
		if n.expect(); len(n.events) > 0 {
			t.Errorf("reported for a pod that has ended: %q", n.events)
		}
		if isBack {
			n.need(inGroup("a"))
		}
		n.fail["ShareWithGroup"] = &failure{world.Errorf(world.KindTimeout, "ShareWithGroup",
			"canceled"), 1, false}
		n.release("ShareWithGroup")
		if n.wait(time.Second); isBack != n.isReady(inGroup("a")) {
			t.Errorf("ready %v, want %v", !isBack, isBack)
		}
		if n.end("a") {
			t.Error("held in the end")
		}
		n.expectClean()
	}
}

// A driver that is registered again while it publishes a volume has not yet been asked whether the
// volume needs a group. Once it is registered again, the pod gets its volume.
func TestVolumeIsPublishedWithoutRegistration(t *testing.T) {
	n := newReady(t)
	n.hold["PublishVolume"] = true
	n.need(use("a"))
	n.observe()
	if n.release("PublishVolume"); n.isReady(use("a")) {
		t.Error("ready before its group is known")
	}
	if n.register(); !n.isReady(use("a")) {
		t.Error("not ready once the driver is registered again")
	}
}
