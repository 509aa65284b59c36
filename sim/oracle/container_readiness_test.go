package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestReadiness(t *testing.T) {
	runCases(t, []testCase{
		{"served late", "", func(s *script) {
			s.startPod(always)
			s.serve("u1", v1.PodPending, "app#0 waiting")
			s.serve("u1", v1.PodRunning, "app#0 ready")
			s.AgentStarted(s.now)
			s.serve("u1", v1.PodUnknown)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"taken back after an agent restart", "readiness", func(s *script) {
			s.startPod(always)
			s.serve("u1", v1.PodRunning, "app#0 ready")
			s.AgentStarted(s.now)
			s.serve("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"after its exit", "", func(s *script) {
			r := s.startPod(always)
			s.serve("u1", v1.PodRunning, "app#0 ready")
			r.exit(1, truth.CauseSelf)
			s.serve("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"served as terminated while it runs", "readiness", func(s *script) {
			s.startPod(always)
			s.serve("u1", v1.PodRunning, "app#0 terminated")
		}},
		{"the pod condition disagrees", "readiness", func(s *script) {
			s.startPod(always)
			p := s.served("u1", v1.PodRunning, "app#0 ready")
			p.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse},
			}
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
	})
}
