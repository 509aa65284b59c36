package oracle

import (
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// ranked has the pod "u1" of priority 5 be desired, whose container requests something and runs.
func (s *script) ranked(name v1.ResourceName, requested, overhead int64) (*pod, run) {
	p := spec("u1", always, "app")
	priority := int32(5)
	p.Spec.Priority = &priority
	if requested > 0 {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			name: *resource.NewQuantity(requested, resource.BinarySI)}
	}
	p.Spec.Overhead = v1.ResourceList{name: *resource.NewQuantity(overhead, resource.BinarySI)}
	s.AgentStarted(s.now)
	s.setDesired(p)
	return s.model.pods["u1"], s.start(s.sandbox("u1", 0), "app", 0)
}

// A pod ranks by its usage above its request. One whose usage is not known comes first.
func TestRank(t *testing.T) {
	const memory, storage, all = v1.ResourceMemory, v1.ResourceEphemeralStorage, math.MaxInt64
	uses := func(u podUsage) *usageSample {
		return &usageSample{pods: map[string]podUsage{"u1": u}}
	}
	bytes := func(n int64) *usageSample { return uses(podUsage{memoryBytes: n, diskBytes: n + 10}) }
	for _, c := range []struct {
		name                string
		resource            string
		of                  v1.ResourceName
		requested, overhead int64
		usage               *usageSample
		class               int
		excess              int64
	}{
		{"above its request", resourceMemory, memory, 100, 0, bytes(101), 1, 1},
		{"at its request", resourceMemory, memory, 100, 0, bytes(100), 2, 0},
		{"below its request", resourceMemory, memory, 100, 0, bytes(90), 2, -10},
		{"above its request, which has an overhead", resourceMemory, memory, 100, 50, bytes(151), 1, 1},
		{"at its request, which has an overhead", resourceMemory, memory, 100, 50, bytes(150), 2, 0},
		{"an overhead and no request", resourceMemory, memory, 0, 50, bytes(1), 1, 1},
		{"above its request of another resource", resourceMemory, storage, 100, 0, bytes(90), 1, 90},
		{"above its request of storage", resourceStorage, storage, 100, 0, bytes(91), 1, 1},
		{"at its request of storage", resourceStorage, storage, 100, 0, bytes(90), 2, 0},
		{"inodes", resourceInodes, storage, 100, 0, uses(podUsage{inodes: 3, diskBytes: 9}), 1, 3},
		{"no inodes", resourceInodes, storage, 0, 0, uses(podUsage{diskBytes: 9}), 2, 0},
		{"processes", resourcePIDs, memory, 100, 0, uses(podUsage{processes: 7}), 0, 7},
		{"no processes", resourcePIDs, memory, 0, 0, uses(podUsage{}), 0, 0},
		{"others are known", resourceMemory, memory, 100, 0, &usageSample{}, 0, all},
		{"others are known of processes", resourcePIDs, memory, 100, 0, &usageSample{}, 0, all},
		{"nothing is known", resourceStorage, memory, 100, 0, nil, 0, all},
	} {
		s := newScript()
		p, _ := s.ranked(c.of, c.requested, c.overhead)
		if got := rankOf(p, c.usage, c.resource); got != (rank{c.class, 5, c.excess}) {
			t.Errorf("%s: %+v, want class %d and excess %d", c.name, got, c.class, c.excess)
		}
	}
}

// The class comes before the priority, and that before the excess.
func TestOrderOfRanks(t *testing.T) {
	first := rank{1, 5, 10}
	for _, c := range []struct {
		other rank
		want  bool
	}{
		{rank{2, 0, 99}, true}, {rank{1, 6, 99}, true}, {rank{1, 5, 9}, true},
		{first, false}, {rank{0, 9, 0}, false}, {rank{1, 4, 0}, false}, {rank{1, 5, 11}, false},
	} {
		if got := first.isBefore(c.other); got != c.want {
			t.Errorf("before %+v: %t", c.other, got)
		}
	}
}

// Nothing that runs uses nothing: such a pod needs no statistics to be known.
func TestRankOfIdlePod(t *testing.T) {
	unknown, idle := rank{0, 5, math.MaxInt64}, rank{2, 5, -100}
	for _, c := range []struct {
		name string
		want rank
		then func(s *script, r run)
	}{
		{"it runs", unknown, func(s *script, _ run) { s.wait(60) }},
		{"it has ended", idle, func(s *script, r run) {
			r.exit(1, truth.CauseSelf)
			s.wait(16)
		}},
		{"it has just ended", unknown, func(s *script, r run) {
			r.exit(1, truth.CauseSelf)
			s.wait(14)
		}},
		{"it is about to run again", unknown, func(s *script, r run) {
			r.exit(1, truth.CauseSelf)
			s.wait(16)
			s.create("u1-s0", "app", 1)
		}},
		{"it has ended, under a fault", unknown, func(s *script, r run) {
			r.exit(1, truth.CauseSelf)
			s.wait(16)
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "ListContainers"
			}
		}},
	} {
		s := newScript()
		p, r := s.ranked(v1.ResourceMemory, 100, 0)
		c.then(s, r)
		s.model.pressure.usageAskedAt = s.now
		if got := rankOf(p, &usageSample{}, resourceMemory); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	s := newScript()
	s.setDesired(spec("u1", always, "app"))
	s.model.pressure.usageAskedAt = s.now
	if got := rankOf(s.model.pods["u1"], nil, resourceMemory); got.class != 0 {
		t.Errorf("one that has never run: %+v", got)
	}
}

// A pod without statistics is not known on the file system of the writable layers, while it runs.
func TestUsageWithoutStatistics(t *testing.T) {
	for _, c := range []struct {
		name   string
		apart  bool
		source string
		ended  bool
		want   bool
	}{
		{"one disk", false, fromNodefs, false, false},
		{"the layers apart", true, fromNodefs, false, true},
		{"the layers", true, fromImagefs, false, false},
		{"one disk, and it has ended", false, fromNodefs, true, true},
	} {
		s := newScript()
		_, r := s.ranked(v1.ResourceMemory, 0, 0)
		if c.ended {
			r.exit(1, truth.CauseSelf)
		}
		s.wait(60)
		s.model.pressure.usageAskedAt = s.now
		s.model.opts.ImagesApart, s.model.opts.LayersApart = c.apart, c.apart
		sample := &usageSample{pods: map[string]podUsage{"u1": {diskBytes: 1, lacksStats: true}}}
		if u, isKnown := sample.on(s.model, c.source).pods["u1"]; isKnown != c.want {
			t.Errorf("%s: %+v", c.name, u)
		}
	}
}

// statsOf returns the statistics of a sandbox of the pod "u1".
func statsOf(attempt uint32, memory, processes, layer uint64) *runtimeapi.PodSandboxStats {
	value := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1", Attempt: attempt}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Memory:  &runtimeapi.MemoryUsage{WorkingSetBytes: value(memory)},
			Process: &runtimeapi.ProcessUsage{ProcessCount: value(processes)},
			Containers: []*runtimeapi.ContainerStats{{WritableLayer: &runtimeapi.FilesystemUsage{
				UsedBytes: value(layer), InodesUsed: value(layer)}}}},
	}
}

// Of two sandboxes the newest has the memory and the processes of the pod, and both have layers.
func TestUsageOfTwoSandboxes(t *testing.T) {
	older, newer := statsOf(1, 5, 6, 10), statsOf(2, 7, 8, 20)
	want := podUsage{memoryBytes: 7, processes: 8, layerBytes: 30, layerInodes: 30}
	for _, all := range [][]*runtimeapi.PodSandboxStats{{older, newer}, {newer, older}} {
		if got := podUsageOf(all)["u1"]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// The files of a pod that is evicted for a file system were measured, unless it may not have been a
// candidate then.
func TestVictimWithoutFiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		want     bool
		resource string
		measured string  // the pod whose files are measured
		age      float64 // of the pod when the pods are observed, in seconds
		tries    int
	}{
		{"they were not measured", true, resourceStorage, "u2", 60, 1},
		{"they were not measured for inodes", true, resourceInodes, "u2", 60, 1},
		{"they were measured", false, resourceStorage, "u1", 60, 1},
		{"memory is short", false, resourceMemory, "u2", 60, 1},
		{"it has just started", false, resourceStorage, "u2", 14, 1},
		{"after the last try", false, resourceStorage, "u2", 60, usageTriesMax},
	} {
		s := newScript()
		p, _ := s.ranked(v1.ResourceMemory, 0, 0)
		s.wait(c.age)
		n, since := &s.model.pressure, s.now
		for range c.tries {
			s.ask(1, &runtimeapi.ListPodSandboxStatsRequest{})
		}
		s.answer(1, &runtimeapi.ListPodSandboxStatsResponse{})
		s.ask(2, &world.MeasureTrees{Paths: []string{podsDir + "/" + c.measured}})
		s.answer(2, &world.TreesMeasured{Trees: []world.TreeMeasured{{Bytes: 1}}})
		f := n.findBetterVictim(s.model, p, lack{c.resource, fromNodefs}, since)
		if (f != nil && strings.Contains(f.message, "not measured")) != c.want {
			t.Errorf("%s: %v", c.name, f)
		}
	}
}
