package eviction

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// answerAll answers everything that is due: memory by a measurement, or by a failure if it is nil,
// and file systems by one that is nearly empty.
func (h *harness) answerAll(memory *world.NodeMeasured) {
	h.now = h.now.Add(period)
	for issued := h.plan(); len(issued) > 0; issued = h.plan() {
		for _, eff := range issued {
			_, isNode := eff.Body.(*world.MeasureNode)
			_, isDisk := eff.Body.(*world.MeasureFilesystem)
			ev := world.Event{Time: h.now, Op: eff.Op}
			switch {
			case isNode && memory != nil:
				ev.Body = memory
			case isDisk:
				ev.Body = &world.FilesystemMeasured{Device: 1, CapacityBytes: 1000, AvailableBytes: 900}
			default:
				ev.Err = world.Errorf(world.KindTimeout, "Measure", "late")
			}
			h.effects.Reset(&h.table, h.now)
			h.table.Complete(eff.Op)
			h.m.HandleCompletion(eff.Op, ev, h.env())
		}
	}
}

// A condition stays true while its signal cannot be measured, whatever is observed of others, and
// ends a transition period after the signal was last met or unknown. No pod is evicted meanwhile.
func TestConditionOfUnmeasuredSignal(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%", "nodefs.available": "5%"}})
	h.answerAll(&world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 900})
	h.addPod("a", 0, 0)
	has := func() bool { return slices.Contains(h.m.Pressure, v1.NodeMemoryPressure) }
	for range 12 {
		if h.answerAll(nil); !has() {
			t.Fatalf("the condition ended at %v without a measurement", h.now.Sub(start))
		}
	}
	h.expect("without a measurement")
	enough := &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 100}
	if h.answerAll(enough); !has() {
		t.Error("the condition ended before the transition period")
	}
	for range 6 {
		h.answerAll(enough)
	}
	if has() {
		t.Error("the condition did not end after the transition period")
	}
}

// The memory that pods may use is known without pods: a condition for it ends when the last one has
// ended. It stays while the cgroup of the pods cannot be read.
func TestConditionOfAllocatableMemory(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"pods"},
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.podsMemoryMax = 1000
	measured := &world.NodeMeasured{MemoryBytes: 4000, WorkingSetBytes: 1000, PodsMeasured: true,
		PodsWorkingSetBytes: 900}
	h.answerAll(measured)
	has := func() bool { return slices.Contains(h.m.Pressure, v1.NodeMemoryPressure) }
	for range 12 {
		unknown := *measured
		unknown.PodsMeasured, unknown.PodsWorkingSetBytes = false, 0
		if h.answerAll(&unknown); !has() {
			t.Fatalf("the condition ended at %v without a measurement", h.now.Sub(start))
		}
	}
	for range 7 {
		without := *measured
		without.PodsWorkingSetBytes = 0
		h.answerAll(&without)
	}
	if has() {
		t.Error("the condition did not end without pods")
	}
}

// The age of an observation is recorded of signals that have one.
func TestAgeOfUnmeasuredSignal(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%", "pid.available": "25%"}})
	h.addPod("a", 0, 0)
	for i := range h.m.Thresholds {
		h.m.Thresholds[i].MetForGrace = true
	}
	h.m.Observed = map[Signal]Observation{PIDAvailable: {AsOf: h.now}}
	h.m.Attempt = &Attempt{Answered: true, Candidates: map[string]bool{"a": false}}
	h.m.Attempt.Threshold = slices.IndexFunc(h.m.Thresholds,
		func(t Threshold) bool { return t.Signal == PIDAvailable })
	h.now = h.now.Add(time.Second)
	env, ages := h.env(), map[Signal]time.Duration{}
	env.RecordAge = func(s Signal, age time.Duration) { ages[s] = age }
	h.effects.Reset(&h.table, h.now)
	h.m.Plan(env)
	if len(h.evicted) != 1 || len(ages) != 1 || ages[PIDAvailable] != time.Second {
		t.Errorf("evicted %q, ages %v", h.evicted, ages)
	}
}
