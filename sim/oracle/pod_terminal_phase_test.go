package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

func TestTerminalPhase(t *testing.T) {
	failed := func(s *script) {
		s.startPod(never).exit(1, truth.CauseSelf)
		s.serve("u1", v1.PodFailed, "app#0 terminated")
	}
	runCases(t, []testCase{
		{"final", "", func(s *script) {
			failed(s)
			s.AgentStarted(s.now)
			s.serve("u1", v1.PodUnknown)
			s.serve("u1", v1.PodFailed, "app#0 terminated")
		}},
		{"served as running again", "terminal-phase", func(s *script) {
			failed(s)
			s.serve("u1", v1.PodRunning, "app#0 terminated")
		}},
		{"the other terminal phase", "terminal-phase", func(s *script) {
			failed(s)
			s.serve("u1", v1.PodSucceeded, "app#0 terminated")
		}},
		{"while it runs", "terminal-phase", func(s *script) {
			s.startPod(never)
			s.serve("u1", v1.PodSucceeded)
		}},
		{"served late", "", func(s *script) {
			s.startPod(never).exit(0, truth.CauseSelf)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"a container starts after it", "terminal-phase", func(s *script) {
			s.setDesired(spec("u1", never, "app", "more"))
			s.start(s.sandbox("u1", 0), "app", 0).exit(1, truth.CauseSelf)
			s.serve("u1", v1.PodFailed)
			s.start("u1-s0", "more", 0)
		}},
		{"its manifest came back", "", func(s *script) {
			failed(s)
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(s.pods["u1"])
			s.serve("u1", v1.PodFailed, "app#0 terminated") // the agent has not noticed yet
			s.serve("u1", v1.PodPending)
		}},
		{"while terminating", "", func(s *script) {
			r := s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(0, truth.CauseStop)
			p := s.served("u1", v1.PodSucceeded, "app#0 terminated")
			p.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
	})
}
