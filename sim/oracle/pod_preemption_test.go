package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestPreemption(t *testing.T) {
	preempts := func(cpus string, priority int32, message string, changes ...func(*v1.Pod)) func(
		*script) {
		return func(s *script) {
			s.setCPUs("2")
			c := s.runPod(podWithCPUs("u1", "1500m", changes...))
			s.wait(60)
			s.setDesired(podWithCPUs("u2", cpus, withPriority(priority)))
			c.change(truth.StopRequested, "")
			c.exit(143, truth.CauseStop)
			s.reportFailed(s.pods["u1"], reasonPreempted, message)
		}
	}
	runCases(t, []testCase{
		{"needed", "", preempts("1", systemCriticalPriority, messagePreempted)},
		{"no reason in the status", "preemption", preempts("1", systemCriticalPriority, "")},
		{"not needed", "preemption needless-stop",
			preempts("500m", systemCriticalPriority, messagePreempted)},
		{"no critical pod", "preemption needless-stop", preempts("1", 1000, messagePreempted)},
		{"an equally critical pod", "preemption needless-stop",
			preempts("1", systemCriticalPriority, messagePreempted, withPriority(systemCriticalPriority))},
		{"a less critical pod", "",
			preempts("1", systemCriticalPriority+1000, messagePreempted,
				withPriority(systemCriticalPriority))},
		{"a static pod", "preemption needless-stop",
			preempts("1", systemCriticalPriority, messagePreempted, asStatic)},
	})
}
