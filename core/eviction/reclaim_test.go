package eviction

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// startReclaim has a disk run short, on a node with enough memory, and containers being removed.
func startReclaim(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"imagefs.available": "15%", "memory.available": "25%"}})
	h.addPod("a", 0, 0)
	h.observeDisks(0, 2, 100)
	h.observeDisks(time.Second, 2, 100)
	if h.expect("the node has enough memory"); h.m.ReclaimSince.IsZero() || h.collections != 1 {
		t.Fatalf("%d requests to remove containers, since %v", h.collections, h.m.ReclaimSince)
	}
	return h
}

// Memory is observed while containers and images are removed, and a pod is evicted for it before
// that has ended.
func TestMemoryStarvesDuringReclaim(t *testing.T) {
	h := startReclaim(t)
	h.now = h.now.Add(period)
	for issued := h.plan(); len(issued) > 0; issued = h.plan() {
		for _, eff := range issued {
			if _, isNode := eff.Body.(*world.MeasureNode); isNode {
				h.complete(eff.Op, &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 900})
				continue
			}
			h.complete(eff.Op, statsOf(map[string]int64{"a": 1}))
		}
	}
	if len(h.evicted) != 1 || h.m.ReclaimSince.IsZero() {
		t.Errorf("evicted %q, removing since %v", h.evicted, h.m.ReclaimSince)
	}
}

// While a victim of memory ends, containers and images are removed for a file system before the
// victim is left a second, and it is left its time if that was enough. A victim of a file system is
// left a second at once.
func TestReclaimBeforeAVictimIsHastened(t *testing.T) {
	begin := func(ofDisk bool) *harness {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"imagefs.available": "15%"}})
		h.addPod("a", 0, 0)
		h.observeDisks(0, 2, 500)
		h.m.Victim = &Victim{UID: "a", Soft: true, HoldsDisk: ofDisk, Deadline: h.now.Add(time.Hour)}
		h.observeDisks(period, 2, 100)
		return h
	}
	if h := begin(true); len(h.hastened) != 1 || h.collections != 0 {
		t.Errorf("a victim of the disk: hastened %q, %d requests to remove", h.hastened, h.collections)
	}
	for available, want := range map[int]int{100: 1, 500: 0} { //ordered: each by itself
		h := begin(false)
		if h.collections != 1 || len(h.hastened) != 0 {
			t.Fatalf("hastened %q after %d requests to remove containers", h.hastened, h.collections)
		}
		h.observeDisks(time.Second, 2, available)
		if len(h.hastened) != 0 {
			t.Errorf("hastened %q while containers are removed", h.hastened)
		}
		h.m.NoteRemoval(h.now)
		h.collected, h.reclaimed = true, true
		h.observeDisks(time.Second, 2, available)
		if len(h.hastened) != 0 {
			t.Errorf("hastened %q while the runtime may hold layers", h.hastened)
		}
		h.observeDisks(period, 2, available)
		h.observeDisks(period, 2, available)
		if len(h.hastened) != want || h.collections != 1 || h.reclaims != 1 || len(h.evicted) != 0 {
			t.Errorf("%d MiB left: hastened %q, evicted %q, %d and %d requests to remove", available,
				h.hastened, h.evicted, h.collections, h.reclaims)
		}
	}
}

// Removals of containers put off an eviction for 260 seconds, however many follow: a tenant
// determines when its containers are removed.
func TestRemovalsPutOffAnEvictionForATime(t *testing.T) {
	h := startReclaim(t)
	h.reclaimed = true
	for since := h.m.ReclaimSince; h.now.Before(since.Add(255 * time.Second)); {
		h.node = world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 100}
		h.observeDisks(5*time.Second, 2, 100)
		h.m.NoteRemoval(h.now)
	}
	h.expect("while containers are removed")
	for range 8 {
		h.observeDisks(5*time.Second, 2, 100)
		h.m.NoteRemoval(h.now)
	}
	if len(h.evicted) != 1 {
		t.Errorf("evicted %q after removals of 260 s, want one pod", h.evicted)
	}
}

// Nothing observes the disks during a removal, however long it takes: their condition stays.
func TestDiskPressureStaysDuringReclaim(t *testing.T) {
	h := startReclaim(t)
	h.isRemoving = true
	for range 9 { // the transition period is a minute
		h.answerAll(&world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 100})
		if h.m.ReclaimSince.IsZero() || !slices.Contains(h.m.Pressure, v1.NodeDiskPressure) {
			t.Fatalf("at %v the conditions are %q, removing since %v", h.now.Sub(start), h.m.Pressure,
				h.m.ReclaimSince)
		}
	}
}

// After a victim has ended, its containers and images are removed before the next pod is evicted,
// although the last removal is only seconds old.
func TestReclaimAfterAVictim(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"imagefs.available": "15%"}})
	h.addPod("a", 0, 0)
	h.addPod("b", 0, 0)
	h.collected, h.reclaimed = true, true
	h.observeDisks(0, 2, 100)
	h.observeDisks(time.Second, 2, 100)
	if len(h.evicted) != 1 || h.collections != 1 || h.reclaims != 1 {
		t.Fatalf("evicted %q after %d and %d removals", h.evicted, h.collections, h.reclaims)
	}
	h.now = h.now.Add(time.Second)
	if !h.m.PodEnded("a", h.now) {
		t.Fatalf("the victim is %+v", h.m.Victim)
	}
	h.candidates, h.collected = h.candidates[1:], false
	if h.observeDisks(time.Second, 2, 100); len(h.evicted) != 1 || h.collections != 2 {
		t.Errorf("evicted %q, %d requests to remove containers, want a second at once", h.evicted,
			h.collections)
	}
	h.collected = true
	h.observeDisks(layersHeldMax-2*time.Second, 2, 100)
	if len(h.evicted) != 1 {
		t.Errorf("evicted %q while the runtime may hold layers of the victim", h.evicted)
	}
	h.observeDisks(period, 2, 100)
	if len(h.evicted) != 2 || h.collections != 2 || h.reclaims != 2 {
		t.Errorf("evicted %q after %d and %d removals", h.evicted, h.collections, h.reclaims)
	}
}

// The runtime frees the layers of containers that were removed some time later: no pod is evicted
// before that can be seen, unless none was removed.
func TestLayersAreFreedLater(t *testing.T) {
	for _, removed := range []bool{false, true} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"imagefs.available": "15%"}})
		h.addPod("a", 0, 0)
		h.reclaimed = true
		h.observeDisks(0, 2, 100)
		h.now = h.now.Add(time.Second)
		if h.collected = true; removed {
			h.m.NoteRemoval(h.now)
		}
		h.observeDisks(time.Second, 2, 100)
		if (len(h.evicted) == 0) != removed {
			t.Errorf("removed %t: evicted %q two seconds later", removed, h.evicted)
		}
		for range 2 {
			h.observeDisks(period, 2, 100)
		}
		if len(h.evicted) != 1 {
			t.Errorf("removed %t: evicted %q in the end", removed, h.evicted)
		}
	}
}

// Layers are waited for on their own file system, after a victim that has ended, and after all pods
// are known: an earlier agent may have removed some.
func TestWhichLayersAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		signal  string
		prepare func(h *harness)
		want    int
	}{
		{"imagefs.available", func(h *harness) { h.m.LayersHeldUntil = h.now.Add(time.Minute) }, 0},
		{"nodefs.available", func(h *harness) { h.m.LayersHeldUntil = h.now.Add(time.Minute) }, 1},
		{"imagefs.available", func(h *harness) { h.m.ListedAt = time.Time{} }, 0},
		{"nodefs.available", func(h *harness) { h.m.ListedAt = time.Time{} }, 1},
		{"imagefs.available", func(h *harness) {
			h.m.Victim = &Victim{UID: "b", Deadline: h.now, HoldsDisk: true}
		}, 1},
		{"imagefs.available", func(h *harness) {
			h.m.Victim = &Victim{UID: "b", Deadline: h.now.Add(time.Minute), HoldsDisk: true}
			h.m.PodEnded("b", h.now)
		}, 0},
	} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{c.signal: "15%"}})
		h.addPod("a", 0, 0)
		h.collected, h.reclaimed = true, true
		h.observeDisks(0, 2, 900) // the devices are known
		h.now = h.now.Add(period)
		c.prepare(h)
		for range 8 {
			h.observeDisks(time.Second, 2, 100)
		}
		if len(h.evicted) != c.want {
			t.Errorf("%s: evicted %q, held until %v", c.signal, h.evicted, h.m.LayersHeldUntil)
		}
	}
}

// Layers of pods that were evicted for limits of their own may be held too, but their authors
// cannot keep a disk waiting by one such pod after the other.
func TestLayersOfPodsOverTheirLimits(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"imagefs.available": "15%"}})
	h.addPod("a", 0, 0)
	h.restart() // nothing is evicted yet
	h.observeDisks(0, 2, 100)
	h.m.NoteLimitFreed(h.now)
	if want := h.now.Add(layersHeldMax); !h.m.LayersHeldUntil.Equal(want) {
		t.Errorf("held until %v, want %v", h.m.LayersHeldUntil, want)
	}
	bound := h.now.Add(immediateGrace + CleanupMax + layersHeldMax)
	for range 20 {
		h.now = h.now.Add(5 * time.Second)
		h.m.NoteLimitFreed(h.now)
	}
	if !h.m.LayersHeldUntil.Equal(bound) {
		t.Errorf("held until %v, want %v", h.m.LayersHeldUntil, bound)
	}
}
