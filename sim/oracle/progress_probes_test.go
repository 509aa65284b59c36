package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// In the end every probe runs, and containers are killed for their results.
func TestUnsettledProbes(t *testing.T) {
	for _, c := range []struct {
		name, problem string
		tell          func(s *script)
	}{
		{"probed and served", "", func(s *script) {
			s.startPodWith(ready).probe(readinessRequest, "gggggggg")
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"never probed", "has not had its readiness probe for 1m1s", func(s *script) {
			s.startPodWith(ready)
			s.wait(60)
		}},
		{"not served as ready", "served with ready false, it is true", func(s *script) {
			s.startPodWith(ready).probe(readinessRequest, "gggggggggg")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"probed only before the heal", "has not had its readiness probe yet", func(s *script) {
			s.startPodWith(ready).probe(readinessRequest, "gggggggg")
			s.Healed(s.now)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"liveness failed", "runs although its liveness probe has failed", func(s *script) {
			r := s.startPodWith(alive)
			for range 60 {
				r.probe(livenessRequest, "b")
			}
		}},
		{"startup failed", "runs although its startup probe has failed",
			func(s *script) {
				r := s.startPodWith(started)
				for range 60 {
					r.probe(startupRequest, "b")
				}
			}},
		{"postStart failed", "its postStart hook has failed",
			func(s *script) {
				s.startPodWith(postStart).probe(postStartRequest, "b")
				s.wait(60)
			}},
		{"hook just after a fault", "", func(s *script) {
			r := s.startPodWith(postStart)
			over := s.now.Sub(begin).Seconds() - 0.005
			s.faultBetween(0, over)
			s.wait(0.01)
			r.startRequest(postStartRequest)
			r.endRequest(postStartRequest, truth.ReplySuccess)
			s.wait(5)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"past its deadline", "it must be terminal, but app runs",
			func(s *script) {
				s.startPodWithDeadline("app#0 ready")
				s.wait(150)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.Healed(s.now)
			c.tell(s)
			s.wait(0.5)
			if got := s.unsettled(); c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
				t.Errorf("unsettled %q, want %q", got, c.problem)
			}
		})
	}
}
