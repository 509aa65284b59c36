package csi

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/core/volumeop"
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

// Pods that wait are ended once their driver was asked again and the CSINode has its answer.
// However many they are, it is asked in time, and no more often than the shortest period allows.
func TestDriverIsAskedWhilePodsWait(t *testing.T) {
	n := newFull(t, 3600, resourceExhausted)
	for i := range 12 { // of each a volume is found to be one too many, five seconds after another
		n.wait(5 * time.Second)
		u := use(fmt.Sprint("p", i))
		u.Handle, u.SpecName = fmt.Sprint("h-", i), fmt.Sprint("pv-", i)
		n.need(u)
	}
	n.infos = map[string]*world.CSINodeInfo{driverName: {NodeID: "id-1", VolumesMax: 2,
		Topology: map[string]string{"zone": "a"}}}
	n.calls = nil
	n.wait(attachOverdue - time.Minute + time.Second)
	if !n.isFull("a") || *entryIn(n.csiNode, driverName).Allocatable.Count != 2 {
		t.Errorf("full %v, the CSINode has %+v", n.isFull("a"), n.csiNode.Spec)
	}
	n.expect("info", "update CSINode")
	n.wait(time.Minute)
	asked := 0
	for _, call := range n.calls {
		if call == "info" {
			asked++
		}
	}
	if asked < 5 || asked > 6 {
		t.Errorf("asked %d times in a minute", asked)
	}
}

// A driver that does not answer holds the pods that wait no longer than a bound.
func TestDriverDoesNotAnswerWhilePodsWait(t *testing.T) {
	n := newFull(t, 3600, resourceExhausted)
	n.hold["GetCSINodeInfo"] = true
	if n.wait(attachOverdue + fullWaitMax - time.Second); n.isFull("a") {
		t.Error("the pod does not wait for the driver")
	}
	if n.wait(2 * time.Second); !n.isFull("a") {
		t.Error("the pod waits for a driver that does not answer")
	}
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

// A pod with many volumes that are not attached asks about some of them in a period, in turns: all
// of them would take most of the rate of requests of the node.
func TestReadsOfManyOverdueVolumes(t *testing.T) {
	const volumes = 4 * overdueReadsMax
	n := newFull(t, 3600, 13)
	for i := 1; i < volumes; i++ {
		u := use("a")
		u.Handle, u.SpecName = fmt.Sprint("h", i+1), fmt.Sprint("pv-", i+1)
		n.need(u)
	}
	for range 4 {
		before := n.attachmentReads
		n.wait(attachOverdue)
		if got := n.attachmentReads - before; got == 0 || got > overdueReadsMax {
			t.Errorf("%d reads in a period", got)
		}
	}
	if got := n.attachmentReads; got < volumes {
		t.Errorf("%d reads of %d volumes in as many periods as are needed", got, volumes)
	}
}

// The volume that a pod waits for in vain need not be the first one: few volumes are all asked
// about in one period.
func TestReadsOfFewOverdueVolumes(t *testing.T) {
	n := newFull(t, 3600, 13)
	for i := range 3 {
		u := use("a")
		u.Handle, u.SpecName = fmt.Sprint("h", i+2), fmt.Sprint("pv-", i+2)
		n.need(u)
	}
	before := n.attachmentReads
	if n.wait(attachOverdue); n.attachmentReads-before != 4 {
		t.Errorf("%d reads of 4 volumes", n.attachmentReads-before)
	}
}

// A volume waits for the Node to name it only if it can be attached: not while its driver, which
// the author of its pod may have invented, is missing.
func TestVolumeOfMissingDriverIsNotNamed(t *testing.T) {
	n := newNode(t)
	n.run()
	n.need(use("a"))
	if got, known := n.node.VolumesInUse(n.object, n.env()); len(got) != 0 || !known {
		t.Errorf("in use are %v without the driver", got)
	}
	n.register().run()
	if n.wait(volumeop.BackoffMax); len(n.object.Status.VolumesInUse) != 1 {
		t.Errorf("in use are %v with the driver", n.object.Status.VolumesInUse)
	}
	n.attach()
	n.run()
	if !n.isReady(use("a")) {
		t.Error("not ready")
	}
	n.observe()
	if got, _ := n.node.VolumesInUse(n.object, n.env()); len(got) != 1 {
		t.Errorf("in use are %v after the driver has gone, want what is mounted", got)
	}
}

// A change of the Node has only those volumes planned that it lets go on.
func TestChangeOfNodePlansFewVolumes(t *testing.T) {
	n := newFull(t, 3600, 13)
	for i := 2; i <= 5; i++ {
		u := use("a")
		u.Handle, u.SpecName = fmt.Sprint("h", i), fmt.Sprint("pv-", i)
		n.need(u)
	}
	if waiting, unnamed := n.node.WaitingToAttach(n.env()); len(waiting) != 0 || unnamed {
		t.Errorf("%q are planned, unnamed %t, and nothing is attached", waiting, unnamed)
	}
	n.object = n.object.DeepCopy()
	n.object.Status.VolumesAttached = []v1.AttachedVolume{{Name: n.object.Status.VolumesInUse[2]}}
	want := string(n.object.Status.VolumesInUse[2])
	if waiting, _ := n.node.WaitingToAttach(n.env()); len(waiting) != 1 || waiting[0] != want {
		t.Errorf("%q are planned, want %s", waiting, want)
	}
	n.withdraws = true
	if _, unnamed := n.node.WaitingToAttach(n.env()); !unnamed {
		t.Error("the Node is not compared although it may not name the volumes")
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
