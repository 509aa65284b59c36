package oracle

import (
	"testing"

	"seedlet.dev/sim/truth"
)

func TestGracePeriod(t *testing.T) {
	// end runs a container, removes its manifest, and has it stopped and killed.
	end := func(ran float64, stopped bool, waited float64, cause string) func(*script) {
		return func(s *script) {
			r := s.startPod(always)
			s.wait(ran)
			s.PodNoLongerDesired(s.now, "u1")
			if stopped {
				r.change(truth.StopRequested, "")
			}
			s.wait(waited)
			r.change(truth.KillRequested, cause)
			r.exit(137, cause)
		}
	}
	runCases(t, []testCase{
		{"after the grace period", "", end(100, true, 30, truth.CauseStop)},
		{"too early", "grace-period", end(100, true, 29, truth.CauseStop)},
		{"with the sandbox, too early", "grace-period", end(100, true, 2, truth.CauseSandbox)},
		{"with the sandbox, in time", "", end(100, true, 31, truth.CauseSandbox)},
		{"removed while it ran", "grace-period", end(100, true, 1, truth.CauseRemove)},
		{"without a request to stop", "grace-period", end(100, false, 40, truth.CauseSandbox)},
		{"killed just after its start", "", end(1, false, 0, truth.CauseSandbox)},
		{"by an administrator", "", end(100, false, 0, truth.CauseKilled)},
		{"its record removed while it runs", "grace-period", func(s *script) {
			s.startPod(always).change(truth.ContainerRemoved, "")
		}},
		{"the shorter grace period after a change", "", func(s *script) {
			r := s.startPod(always)
			short, five := spec("u1", always, "app"), int64(5)
			short.Spec.TerminationGracePeriodSeconds = &five
			s.setDesired(short)
			s.PodNoLongerDesired(s.now, "u1")
			r.change(truth.StopRequested, "")
			s.wait(5)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
	})
}
