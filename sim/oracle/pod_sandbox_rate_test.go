package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

// loseSandboxes creates sandboxes of the pod "u1", each of which is lost at once.
func loseSandboxes(s *script, count uint32, period float64) {
	for attempt := range count {
		s.changeSandbox(truth.SandboxRemoved, s.sandbox("u1", attempt))
		s.wait(period)
	}
}

func TestSandboxRate(t *testing.T) {
	runCases(t, []testCase{
		{"thirteen within 30 s", "sandbox-rate", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			loseSandboxes(s, 13, 2.4)
		}},
		{"thirteen in a longer time", "", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			loseSandboxes(s, 40, 2.6)
		}},
		{"some by another agent", "", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			loseSandboxes(s, 12, 0.3)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			loseSandboxes(s, 12, 0.3)
		}},
	})
}
