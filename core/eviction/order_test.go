package eviction

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// shortNode is a node of 1000 MiB of memory and of disk, whose pod "disk" has the most on the disk
// and whose pod "memory" uses the most memory.
type shortNode struct {
	*harness
	memory, disk int64 // MiB available
	stamp        int64
	failsNode    bool // the machine cannot be observed
	oneDevice    bool // images are on the same file system
}

func newShortNode(t *testing.T) *shortNode {
	n := &shortNode{harness: newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%", "nodefs.available": "15%"}}),
		memory: 500, disk: 500}
	n.addPod("disk", 0, 500)
	n.addPod("memory", 0, 0)
	n.collected, n.reclaimed = true, true
	return n
}

func (n *shortNode) answer(eff world.Effect) {
	switch body := eff.Body.(type) {
	case *world.MeasureFilesystem:
		device, available := uint64(1), n.disk
		if body.Path == "/images" && !n.oneDevice {
			device, available = 2, 500
		}
		n.complete(eff.Op, &world.FilesystemMeasured{Device: device, CapacityBytes: 1000 * mib,
			AvailableBytes: available * mib})
	case *runtimeapi.ImageFsInfoRequest:
		images := &runtimeapi.FilesystemUsage{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}}
		n.complete(eff.Op, &runtimeapi.ImageFsInfoResponse{
			ImageFilesystems: []*runtimeapi.FilesystemUsage{images}})
	case *world.MeasureTrees:
		if n.failsTrees {
			n.fail(eff.Op)
			return
		}
		trees := &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(body.Paths))}
		trees.Trees[0].Bytes = 1000
		n.complete(eff.Op, trees)
	case *world.MeasureNode:
		if n.failsNode {
			n.fail(eff.Op)
			return
		}
		n.complete(eff.Op, &world.NodeMeasured{MemoryBytes: 1000 * mib,
			WorkingSetBytes: (1000 - n.memory) * mib})
	default:
		n.stamp++
		listed := statsOf(map[string]int64{"disk": 10, "memory": 700})
		for _, s := range listed.Stats {
			s.Linux.Memory.Timestamp = n.stamp
			if s.Attributes.Metadata.Uid == "disk" {
				s.Linux.Containers = []*runtimeapi.ContainerStats{{WritableLayer: &runtimeapi.FilesystemUsage{
					UsedBytes: &runtimeapi.UInt64Value{Value: 800 * mib}}}}
			}
		}
		n.complete(eff.Op, listed)
	}
}

// run lets time pass and answers everything; the machine is the first or the last to answer.
func (n *shortNode) run(wait time.Duration, nodeFirst bool) {
	n.now = n.now.Add(wait)
	for issued := n.plan(); len(issued) > 0; issued = n.plan() {
		for _, first := range []bool{true, false} {
			for _, eff := range issued {
				if _, isNode := eff.Body.(*world.MeasureNode); isNode == nodeFirst == first {
					n.answer(eff)
				}
			}
		}
	}
}

func (n *shortNode) victim(t *testing.T, want string) {
	t.Helper()
	if len(n.evicted) != 1 || !strings.HasPrefix(n.evicted[0], want+" ") {
		t.Errorf("evicted %q, want %s", n.evicted, want)
	}
}

func TestMemoryComesBeforeDisks(t *testing.T) {
	for _, nodeFirst := range []bool{true, false} {
		n := newShortNode(t)
		n.run(0, nodeFirst)
		n.run(period, nodeFirst)
		n.memory, n.disk = 1, 1
		n.run(period, nodeFirst)
		n.victim(t, "memory")
	}
}

// A disk does not wait for memory that is not short, or that cannot be observed.
func TestDiskWaitsForMemoryOnce(t *testing.T) {
	for _, fails := range []bool{true, false} {
		n := newShortNode(t)
		n.run(0, false)
		n.run(period, false)
		n.disk, n.failsNode = 1, fails
		n.run(period, false)
		n.victim(t, "disk")
		if n.m.DisksAfterMemory {
			t.Error("the disks still wait")
		}
	}
}

// If trees cannot be measured, pods are ranked by the writable layers that are known.
func TestKnownLayersCount(t *testing.T) {
	n := newShortNode(t)
	n.failsTrees = true
	n.candidates[0].UID, n.candidates[1].UID = "memory", "disk" // the first UID must not decide
	n.run(0, true)
	n.run(period, true)
	n.disk = 1
	for range 3 {
		n.run(period, true)
	}
	n.victim(t, "disk")
}

// A removal in flight is waited for, but not for ever.
func TestRemovalInFlightIsAwaited(t *testing.T) {
	n := newShortNode(t)
	n.oneDevice = true
	n.run(0, true)
	n.run(period, true)
	n.collected, n.isRemoving, n.disk = false, true, 1
	n.run(period, true)
	for range removalMax/period - 1 {
		n.run(period, true)
	}
	if n.expect("a removal is in flight"); n.collections != 1 {
		t.Errorf("%d requests to remove containers, want 1", n.collections)
	}
	n.m.NoteRemoval(n.now) // of one of many
	for range removalMax/period - 1 {
		n.run(period, true)
	}
	n.expect("another removal is in flight")
	for range 2 {
		n.run(period, true)
	}
	n.victim(t, "disk")
}
