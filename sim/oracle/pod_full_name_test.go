package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestFullName(t *testing.T) {
	runCases(t, []testCase{
		{"one after the other", "", func(s *script) {
			r := s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(spec("u2", always, "app"))
			r.exit(0, truth.CauseStop)
			s.start(s.sandbox("u2", 0), "app", 0)
		}},
		{"two at once", "full-name", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.setDesired(spec("u2", always, "app"))
			s.start(s.sandbox("u2", 0), "app", 0)
		}},
	})
}
