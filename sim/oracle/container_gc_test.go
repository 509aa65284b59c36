package oracle

import (
	"testing"
	"time"

	"seedlet.dev/sim/truth"
)

// The event is right only if something has failed for a minute and still fails.
func TestContainerGCEvents(t *testing.T) {
	report := func(from, to int) func(*script) {
		return func(s *script) {
			begin := s.now
			s.model.opts.FaultPossible = func(call string, since, until time.Time) bool {
				return call == "RemoveContainer" && !until.Before(begin.Add(time.Duration(from)*time.Second)) &&
					!since.After(begin.Add(time.Duration(to)*time.Second))
			}
			s.wait(600)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: "ContainerGCFailed",
				Message: "failed to remove container"})
		}
	}
	runCases(t, []testCase{
		{"failing for minutes", "", report(480, 600)},
		{"failing again, a minute later", "", report(480, 590)},
		{"failing for less than a minute", "container-gc", report(570, 600)},
		{"failing a while ago", "container-gc", report(300, 500)},
		{"nothing fails", "container-gc", report(601, 700)},
	})
}
