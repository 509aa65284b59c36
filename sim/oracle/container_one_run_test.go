package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestOneRun(t *testing.T) {
	runCases(t, []testCase{
		{"one after the other", "", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
		}},
		{"two at once", "one-run", func(s *script) {
			s.startPod(always)
			s.start("u1-s0", "app", 1)
		}},
		{"one runs on in a stopped sandbox", "one-run", func(s *script) {
			s.startPod(always)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "app", 1)
		}},
	})
}
