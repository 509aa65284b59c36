package oracle

import (
	"testing"
	"time"

	"seedlet.dev/sim/truth"
)

func TestBackoff(t *testing.T) {
	// crash exits after each run, and restarts after each wait, in seconds.
	crash := func(runs, cause string, waits ...float64) func(*script) {
		return func(s *script) {
			r := s.startPod(always)
			for i, wait := range waits {
				s.wait(map[string]float64{"short": 1, "long": 601}[runs])
				r.exit(1, cause)
				s.wait(wait)
				if i%2 == 1 {
					s.AgentKilled(s.now)
					s.AgentStarted(s.now)
				}
				r = s.start("u1-s0", "app", uint32(i+1))
			}
		}
	}
	own := truth.CauseSelf
	runCases(t, []testCase{
		{"doubled up to the maximum", "", crash("short", own, 0, 10, 20, 40, 80, 160, 300, 300)},
		{"the second restart at once", "back-off", crash("short", own, 0, 0)},
		{"not doubled", "back-off", crash("short", own, 0, 10, 10)},
		{"below the maximum", "back-off", crash("short", own, 0, 10, 20, 40, 80, 160, 299)},
		{"after long runs", "", crash("long", own, 0, 0, 0, 0)},
		{"killed by an administrator", "back-off", crash("short", truth.CauseKilled, 0, 0)},
		{"stopped by the agent", "", crash("short", truth.CauseStop, 0, 0, 0)},
	})
}

// An exit that an administrator hides by a removal soon after it excuses no back-off later on.
func TestBackoffAfterManualRemoval(t *testing.T) {
	removed := func(after float64) func(*script) {
		return func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			r := s.start("u1-s0", "app", 1)
			s.wait(2)
			s.ListReceived(s.now, true)
			r.exit(1, truth.CauseSelf)
			s.wait(after)
			s.model.pods["u1"].applyManualRemoval(s.now)
			s.start(s.sandbox("u1", 1), "app", 2)
		}
	}
	runCases(t, []testCase{
		{"half a second after the exit", "", removed(0.5)},
		{"after lists", "back-off", removed(5)},
	})
}

// slowClock sets the runtime's clock back from now on; forward, if the duration is negative.
func (s *script) slowClock(by time.Duration) {
	since := s.now
	s.model.opts.ClockSkew = func(at time.Time) time.Duration {
		if at.Before(since) {
			return 0
		}
		return -by
	}
}

// crashAndRestart crashes the second run of a container, some seconds after the agent's latest
// list.
func (s *script) crashAndRestart(listedFor float64) {
	s.startPod(always).exit(1, truth.CauseSelf)
	r := s.start("u1-s0", "app", 1)
	s.wait(1)
	s.ListReceived(s.now, true)
	s.wait(listedFor)
	s.slowClock(time.Hour)
	r.exit(1, truth.CauseSelf)
}

// A slow clock excuses no more than the agent cannot know.
func TestBackoffWithSlowClock(t *testing.T) {
	restarts := func(listedFor, waited float64, between func(*script)) func(*script) {
		return func(s *script) {
			s.wait(1)
			s.crashAndRestart(listedFor)
			if between != nil {
				between(s)
			}
			s.wait(waited)
			s.start("u1-s0", "app", 2)
		}
	}
	again := func(s *script) {
		s.AgentKilled(s.now)
		s.AgentStarted(s.now)
	}
	runCases(t, []testCase{
		{"in time", "", restarts(1, 10, nil)},
		{"early by the time since the latest list", "", restarts(5, 4.5, nil)},
		{"at once", "back-off", restarts(1, 0.3, nil)},
		{"at once, by an agent that never listed it running", "", restarts(1, 0.3, again)},
	})
}

// A clock that was set forward makes a run look long to an agent that started after the run did.
func TestBackoffWithFastClock(t *testing.T) {
	crashes := func(by time.Duration, between, after func(*script)) func(*script) {
		return func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.wait(1)
			r := s.start("u1-s0", "app", 1)
			s.wait(1)
			s.slowClock(-by)
			between(s)
			s.wait(1)
			r.exit(1, truth.CauseSelf)
			after(s)
			s.start("u1-s0", "app", 2)
		}
	}
	nothing := func(*script) {}
	runCases(t, []testCase{
		{"an agent that saw the start", "back-off", crashes(time.Hour, nothing, nothing)},
		{"an agent that started during the run", "", crashes(time.Hour, (*script).restartAgent, nothing)},
		{"an agent that started after the run", "", crashes(time.Hour, nothing, (*script).restartAgent)},
		{"set forward by less", "back-off", crashes(time.Minute, nothing, (*script).restartAgent)},
		{"set back", "back-off", crashes(-time.Second, nothing, (*script).restartAgent)},
	})
}

// A clock that was set back makes a run look short: back-off may have been reset or not.
func TestBackoffBoundsWithSlowClock(t *testing.T) {
	began := time.Unix(1000, 0)
	m := newModel(Options{ClockSkew: func(at time.Time) time.Duration {
		if at.Equal(began) {
			return 0
		}
		return -time.Hour
	}})
	c := &container{pod: &pod{model: m}, state: exited, minBackoff: time.Minute, createdAt: began,
		startedAt: began, exitedAt: began.Add(20 * time.Minute)}
	for started, atMost := range map[time.Time]time.Duration{
		began: 0, c.exitedAt.Add(time.Second): time.Minute,
	} {
		m.agentStartedAt = started
		if c.minWait() != 0 || c.maxWait() != atMost {
			t.Errorf("agent started at %v: wait of %v to %v, want 0s to %v", started,
				c.minWait(), c.maxWait(), atMost)
		}
	}
}
