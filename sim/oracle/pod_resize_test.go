package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// Limits of the container in the pod of withPodCgroups that are within the pod's.
var withinPod = truth.Limits{CPUShares: 512, MemoryBytes: 64 << 20}

// resized adds the pod's container with limits, and then gives it others.
func (s *script) resized(limits ...truth.Limits) run {
	s.createCgroup(ownCgroup, podLimits)
	r := run{s, truth.Fact{PodUID: "u1", SandboxID: s.sandboxIn("u1", ownCgroup, truth.IDs{}),
		Container: "app", ContainerID: "c", Limits: limits[0]}}
	s.addFact(truth.ContainerCreated, r.fact)
	s.addFact(truth.ContainerStarted, r.fact)
	for _, l := range limits[1:] {
		r.fact.Limits = l
		s.addFact(truth.ContainerResized, r.fact)
	}
	return r
}

func TestResize(t *testing.T) {
	changed := func(change func(*truth.Limits)) truth.Limits {
		l := withinPod
		change(&l)
		return l
	}
	more := changed(func(l *truth.Limits) { l.MemoryBytes++ })
	runCases(t, []testCase{
		{"within its pod", "", withPodCgroups(func(s *script) { s.resized(withinPod, withinPod) })},
		{"started above its pod", "resize", withPodCgroups(func(s *script) { s.resized(more) })},
		{"resized above its pod", "resize", withPodCgroups(func(s *script) {
			s.resized(withinPod, more)
		})},
		{"without a limit", "resize", withPodCgroups(func(s *script) {
			s.resized(changed(func(l *truth.Limits) { l.MemoryBytes = 0 }))
		})},
		{"with more CPU", "resize", withPodCgroups(func(s *script) {
			s.resized(changed(func(l *truth.Limits) { l.CPUShares++ }))
		})},
		{"its pod shrinks", "resize", withPodCgroups(func(s *script) {
			s.resized(withinPod)
			less := podLimits
			less.MemoryBytes--
			s.createCgroup(ownCgroup, less)
		})},
		{"its pod shrinks after it has exited", "", withPodCgroups(func(s *script) {
			s.resized(withinPod).exit(0, truth.CauseStop)
			less := podLimits
			less.MemoryBytes--
			s.createCgroup(ownCgroup, less)
		})},
		{"another swap while it runs", "resize", withPodCgroups(func(s *script) {
			s.resized(changed(func(l *truth.Limits) { l.Files = "memory.low 1, memory.swap.max 5" }),
				changed(func(l *truth.Limits) { l.Files = "memory.swap.max 6" }))
		})},
		{"its request becomes its limit", "", withPodCgroups(func(s *script) {
			s.resized(changed(func(l *truth.Limits) { l.Files = "memory.swap.max 5" }),
				changed(func(l *truth.Limits) { l.Files = "memory.swap.max 0" }))
		})},
		{"below its usage", "resize", withPodCgroups(func(s *script) {
			s.addFact(truth.LimitRefused, s.resized(withinPod).fact)
		})},
	})
}

// A status does not take back what is allocated while the spec asks for it.
func TestAllocationStays(t *testing.T) {
	version := func(generation, observed int64, allocated string) *v1.Pod {
		p := podWithLimits()
		p.Generation, p.Status.ObservedGeneration = generation, observed
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("2")}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "c",
			State:              v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			AllocatedResources: v1.ResourceList{"cpu": resource.MustParse(allocated)}}}
		return p
	}
	ended := version(2, 2, "1")
	ended.Status.ContainerStatuses[0].State = v1.ContainerState{}
	cases := []struct {
		name          string
		before, after *v1.Pod
		want          string
	}{
		{"taken back", version(2, 2, "2"), version(2, 2, "1"), "resize"},
		{"allocated", version(2, 2, "1"), version(2, 2, "2"), ""},
		{"the spec has changed", version(2, 1, "2"), version(2, 2, "1"), ""},
		{"it does not run any more", version(2, 2, "2"), ended, ""},
		{"another spec was between", version(3, 3, "2"), version(3, 3, "1"), ""},
	}
	var all []testCase
	for _, c := range cases {
		all = append(all, testCase{c.name, c.want, withPodCgroups(func(s *script) {
			s.setDesired(version(2, 0, "0"))
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
				Resource: api.ResourcePods, Namespace: "ns", Name: "web", Incarnation: 1, Status: true,
				Before: api.Object{Pod: c.before}, After: api.Object{Pod: c.after}}})
		})})
	}
	runCases(t, all)
}

// Pods that ran when more was allocatable may stay; nothing more is allocated to them after that.
func TestAllocatableShrinks(t *testing.T) {
	list := func(cpu string) v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"),
			"pods": resource.MustParse("9")}
	}
	version := func(allocated string) *v1.Pod {
		p := podWithLimits()
		p.Status.Phase = v1.PodRunning
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "c",
			State:              v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			AllocatedResources: v1.ResourceList{"cpu": resource.MustParse(allocated)}}}
		return p
	}
	var all []testCase
	for _, c := range []struct {
		name, then string
		want       string
	}{{"stays", "2", ""}, {"grows", "3", "resize"}, {"shrinks", "1500m", ""}} {
		all = append(all, testCase{c.name, c.want, func(s *script) {
			s.model.opts.Allocatable = list("4")
			withPodCgroups(func(s *script) {
				s.setDesired(version("2"))
				s.resized(withinPod)
				s.ConfigurationChanged(list("1"), s.model.opts.Tiers, nil)
				s.AgentKilled(s.now)
				s.AgentStarted(s.now)
				before := version("2")
				for _, after := range []*v1.Pod{before, version(c.then), version(c.then), version(c.then)} {
					s.wait(180)
					s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
						Resource: api.ResourcePods, Namespace: "ns", Name: "web", Incarnation: 1, Status: true,
						Before: api.Object{Pod: before}, After: api.Object{Pod: after}}})
					before = after
				}
			})(s)
		}})
	}
	runCases(t, all)
}

// A resize of requested memory is infeasible if a container that has swap does not restart for it.
func TestPendingResizeOfSwap(t *testing.T) {
	version := func(cpu, memory string, policy v1.ResourceResizeRestartPolicy) *v1.Pod {
		p := podWithLimits()
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{
			"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
			{ResourceName: v1.ResourceMemory, RestartPolicy: policy}}
		return p
	}
	const inPlace, restart = v1.NotRequired, v1.RestartContainer
	const no = v1.PodReasonInfeasible
	for name, c := range map[string]struct { //ordered: each by itself
		from, to *v1.Pod
		limited  bool
		reason   string
		isWrong  bool
	}{
		"memory":    {version("1", "1Mi", inPlace), version("1", "2Mi", inPlace), true, no, false},
		"CPU":       {version("1", "1Mi", inPlace), version("2", "1Mi", inPlace), true, no, true},
		"a restart": {version("1", "1Mi", restart), version("1", "2Mi", restart), true, no, true},
		"without":   {version("1", "1Mi", inPlace), version("1", "2Mi", inPlace), false, no, true},
		"is deferred": {version("1", "1Mi", inPlace), version("2", "2Mi", inPlace), true,
			v1.PodReasonDeferred, true},
	} {
		s := newScript()
		s.model.opts.Cgroups, s.model.opts.Tiers = Cgroups{PerPod: true}, &Tiers{LimitedSwap: c.limited}
		s.model.opts.Allocatable = v1.ResourceList{"cpu": resource.MustParse("1"),
			"memory": resource.MustParse("1Mi")} // a resize that is deferred does not fit
		s.setDesired(c.from)
		s.setDesired(c.to)
		p := s.model.podByUID("u1")
		s.createCgroup(ownCgroup, s.model.limitsOf(c.from))
		problem := p.pendingProblem(&v1.PodCondition{Reason: c.reason}, c.to)
		if (problem != "") != c.isWrong {
			t.Errorf("%s: %q", name, problem)
		}
	}
}
