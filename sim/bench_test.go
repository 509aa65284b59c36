package sim_test

import (
	"runtime"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// BenchmarkNode runs a node of 30 pods with faults, on one core. It reports virtual seconds per
// second, events per second, and allocations per event.
func BenchmarkNode(b *testing.B) {
	s, err := plan.ReadScenario(scenarios.Files, "runtime-flaky.yaml")
	if err != nil {
		b.Fatal(err)
	}
	s.Spec.Pods[0].Count = plan.Count{Least: 24, Most: 24}
	s.Spec.Pods[1].Count = plan.Count{Least: 6, Most: 6}
	var virtual float64
	var events, seed uint64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		seed++
		p, err := plan.Generate(s, seed%50+1)
		if err != nil {
			b.Fatal(err)
		}
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if f := verdict.Failure; f != nil {
			b.Fatalf("seed %d: %s: %s", seed, f.Oracle, f.Message)
		}
		virtual += verdict.Virtual.Seconds()
		events += verdict.Events
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(events), "allocs/event")
	b.ReportMetric(virtual/b.Elapsed().Seconds(), "virtual-s/s")
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
