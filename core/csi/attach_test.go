package csi

import (
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/world"
)

// newFull returns a node whose driver reports in every period, in seconds, how many volumes it can
// have, and a pod whose volume fails to be attached with a code of gRPC.
func newFull(t *testing.T, period int64, code int32) *node {
	n := newNode(t)
	policy := storagev1.NoneFSGroupPolicy
	n.setDriverObject(&storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &period,
		FSGroupPolicy:        &policy,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}})
	n.attachment = &storagev1.VolumeAttachmentStatus{
		AttachError: &storagev1.VolumeError{Message: "too many", ErrorCode: &code}}
	n.run().register()
	n.need(use("a"))
	n.calls, n.planned = nil, nil
	return n
}

func (n *node) isFull(uid string) bool {
	u := use(uid)
	return n.node.UseStateOf(&u).NodeFull
}

// A pod that waits long for a volume, which cannot be attached because the node has too many, waits
// in vain. Its driver is asked again how many the node can have.
func TestNodeIsFull(t *testing.T) {
	n := newFull(t, 3600, resourceExhausted)
	if n.wait(attachOverdue - time.Second); n.isFull("a") {
		t.Error("the pod does not wait")
	}
	n.need(use("b"))
	n.planned = nil
	n.wait(allocatableRetry + time.Second)
	if !n.isFull("a") || !slices.Contains(n.planned, "a") {
		t.Errorf("not full, planned %q", n.planned)
	}
	if n.isFull("b") {
		t.Error("the pod that came last does not wait")
	}
	if !slices.Contains(n.calls, "info") {
		t.Errorf("the driver is not asked again: %q", n.calls)
	}
	n.end("a")
	n.attachment = nil
	n.attach()
	if n.run(); !n.isReady(use("b")) {
		t.Error("the volume is attached, and the pod that has waited does not get it")
	}
	n.end("b")
	n.expectClean()
}

// Nothing but the answer that the node is full ends a pod: no other error, no driver whose number
// is fixed, no failed read, and no volume that is attached by then.
func TestNodeIsNotFull(t *testing.T) {
	for name, change := range map[string]func(n *node){
		"another error": nil, "a fixed number": nil,
		"unknown outcome": func(n *node) {
			n.fail["GetObject"] = &failure{world.Errorf(world.KindTimeout, "GetObject", "late"), 1, false}
		},
		"attached by then": func(n *node) {
			n.attachment = &storagev1.VolumeAttachmentStatus{Attached: true}
		},
		"no error any more": func(n *node) { n.attachment = &storagev1.VolumeAttachmentStatus{} },
	} {
		period, code := int64(3600), int32(resourceExhausted)
		switch name {
		case "another error":
			code = 13
		case "a fixed number":
			period = 0
		}
		n := newFull(t, period, code)
		if change != nil {
			change(n)
		}
		if n.wait(attachOverdue + time.Second); n.isFull("a") {
			t.Errorf("%s: the pod does not wait", name)
		}
		if name != "unknown outcome" {
			continue
		}
		if n.wait(attachOverdue); !n.isFull("a") {
			t.Errorf("%s: not asked again", name)
		}
	}
}

// An agent that is started again has the pod wait once more: it may be attached meanwhile.
func TestNodeIsFullAfterRestart(t *testing.T) {
	n := newFull(t, 3600, resourceExhausted)
	n.wait(attachOverdue - time.Second)
	n.restart().register()
	n.need(use("a"))
	if n.wait(attachOverdue - time.Second); n.isFull("a") {
		t.Error("the pod does not wait")
	}
	if n.wait(2 * time.Second); !n.isFull("a") {
		t.Error("the pod waits in vain")
	}
}

// A pod that comes while the attachment is read, after the one that has waited has gone, waits.
func TestPodComesWhileAttachmentIsRead(t *testing.T) {
	n := newFull(t, 3600, resourceExhausted)
	n.hold["GetObject"] = true
	n.wait(attachOverdue)
	n.end("a")
	n.need(use("b"))
	if n.release("GetObject"); n.isFull("b") {
		t.Error("the pod does not wait")
	}
}
