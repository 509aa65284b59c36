package core

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHostile drives an agent with the largest objects, and reports its longest step and what
// all steps have allocated. The goal is that no step takes longer than 20 ms. An agent is driven
// once per iteration; the longest step is the median of those of the iterations. Steps are measured
// in CPU time of their thread, because others use the machine too.
func BenchmarkHostile(b *testing.B) {
	for _, h := range hostiles {
		b.Run(h.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var longest []time.Duration
			var c cost
			for b.Loop() {
				_, c = h.drive(h.size, func() time.Duration { return threadTime(b) })
				longest = append(longest, c.longest)
			}
			b.ReportMetric(float64(median(longest).Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(c.bytes)/(1<<20), "MiB")
			b.ReportMetric(float64(c.atOnce)/(1<<20), "MiB-in-one-step")
			b.ReportMetric(float64(c.steps), "steps")
			b.Logf("the longest step was that of %s", c.longestEvent)
		})
	}
}

// threadTime returns the CPU time that the current thread has used.
func threadTime(b *testing.B) time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
