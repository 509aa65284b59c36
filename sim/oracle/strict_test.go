package oracle

import (
	"testing"
	"time"

	"seedlet.dev/sim/truth"
)

// An excuse is a violation while the run is calm, and none later.
func TestStrict(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes func(*script)
	}{
		{"a fault", func(s *script) {
			s.model.opts.FaultPossible = func(string, time.Time, time.Time) bool { return true }
			s.model.faultPossible("StopContainer", s.now, s.now)
		}},
		{"the last fault", func(s *script) {
			s.model.opts.LastFault = func(now time.Time) time.Time { return now }
			s.model.lastFault(s.now)
		}},
		{"the clock", func(s *script) {
			s.model.opts.ClockSkew = func(time.Time) time.Duration { return time.Second }
			s.model.clockSkew(s.now)
		}},
		{"the date", func(s *script) {
			s.model.opts.DateOffset = func(time.Time) time.Duration { return time.Second }
			s.model.dateOffset(s.now)
		}},
		{"another agent", func(s *script) {
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.model.agentUpSince(s.now)
		}},
		{"a later start of the agent, which oracles look at themselves", func(s *script) {
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
		}},
		{"an agent that is down", func(s *script) {
			s.AgentStarted(s.now)
			s.AgentKilled(s.now)
		}},
		{"a container that is lost", func(s *script) {
			s.model.containers["u1-app#0"].wasLost = true
		}},
		{"a sandbox that is removed by hand", func(s *script) {
			s.model.pods["u1"].removedByHand = true
		}},
		{"a loss of power", func(s *script) { s.model.pods["u1"].hadPowerLoss = true }},
	} {
		for _, isCalm := range []bool{true, false} {
			s := newScript()
			s.model.opts.IsCalm = func() bool { return isCalm }
			run := s.startPod(always)
			c.takes(s)
			s.wait(5)
			run.exit(0, truth.CauseSelf)
			s.wait(1)
			s.addFact(truth.PathWritten, truth.Fact{Path: "/x"})
			fired := false
			for _, v := range s.Violations() {
				fired = fired || v.Oracle == "strict"
			}
			if fired != isCalm {
				t.Errorf("%s, calm %t: strict fires: %t, %v", c.name, isCalm, fired, s.Violations())
			}
		}
	}
}
