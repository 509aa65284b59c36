package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestInitOrder(t *testing.T) {
	pod := func(s *script) string {
		s.setDesired(spec("u1", always, "init-1", "init-2", "app"))
		return s.sandbox("u1", 0)
	}
	runCases(t, []testCase{
		{"in order", "", func(s *script) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseSelf)
			s.start(box, "init-2", 0).exit(0, truth.CauseSelf)
			s.start(box, "app", 0)
		}},
		{"second before the first", "init-order", func(s *script) {
			box := pod(s)
			s.start(box, "init-1", 0)
			s.start(box, "init-2", 0)
		}},
		{"app after a failed init container", "init-order", func(s *script) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseSelf)
			s.start(box, "init-2", 0).exit(1, truth.CauseSelf)
			s.start(box, "app", 0)
		}},
		{"initialized in an old sandbox", "init-order", func(s *script) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseSelf)
			s.start(box, "init-2", 0).exit(0, truth.CauseSelf)
			s.changeSandbox(truth.SandboxStopped, box)
			s.start(s.sandbox("u1", 1), "app", 0)
		}},
		{"an old spec, before the agent has seen the new one", "", func(s *script) {
			box := pod(s)
			s.setDesired(spec("u1", always, "init-3", "app"))
			s.start(box, "init-1", 0).exit(0, truth.CauseSelf)
			s.start(box, "init-2", 0).exit(0, truth.CauseSelf)
			s.start(box, "app", 0)
		}},
	})
}
