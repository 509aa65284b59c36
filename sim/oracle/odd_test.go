package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// slow has the runtime's clock be slow from now on, or fast.
func (s *story) slow(by time.Duration) {
	since := s.now
	s.world.opts.Skew = func(at time.Time) time.Duration {
		if at.Before(since) {
			return 0
		}
		return -by
	}
}

// crashes has the second run of a container crash, told of a while before.
func (s *story) crashes(told float64) {
	s.runs(always).exit(1, truth.CauseOwn)
	r := s.start("u1-s0", "app", 1)
	s.wait(1)
	s.Listed(s.now, true)
	s.wait(told)
	s.slow(time.Hour)
	r.exit(1, truth.CauseOwn)
}

// A clock that is slow excuses what the agent cannot know, and no more.
func TestBackoffByASlowClock(t *testing.T) {
	restarts := func(told, waited float64, between func(*story)) func(*story) {
		return func(s *story) {
			s.wait(1)
			s.crashes(told)
			if between != nil {
				between(s)
			}
			s.wait(waited)
			s.start("u1-s0", "app", 2)
		}
	}
	again := func(s *story) {
		s.AgentKilled(s.now)
		s.AgentStarted(s.now)
	}
	judge(t, []tale{
		{"in time", "", restarts(1, 10, nil)},
		{"early by what was not told", "", restarts(5, 4.5, nil)},
		{"at once", "back-off", restarts(1, 0.3, nil)},
		{"at once, by an agent that has not seen it run", "", restarts(1, 0.3, again)},
	})
}

// A clock that was set forward makes a run look long to an agent that was not there when it began.
func TestBackoffAfterASeemingRun(t *testing.T) {
	crashes := func(by time.Duration, between, after func(*story)) func(*story) {
		return func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.wait(1)
			r := s.start("u1-s0", "app", 1)
			s.wait(1)
			s.slow(-by)
			between(s)
			s.wait(1)
			r.exit(1, truth.CauseOwn)
			after(s)
			s.start("u1-s0", "app", 2)
		}
	}
	nothing := func(*story) {}
	judge(t, []tale{
		{"by an agent that was there", "back-off", crashes(time.Hour, nothing, nothing)},
		{"by one that came while it ran", "", crashes(time.Hour, (*story).restart, nothing)},
		{"by one that came after it", "", crashes(time.Hour, nothing, (*story).restart)},
		{"set forward by less", "back-off", crashes(time.Minute, nothing, (*story).restart)},
		{"set back", "back-off", crashes(-time.Second, nothing, (*story).restart)},
	})
}

// One that was set back makes it look short: what began anew and what did not are both right.
func TestWaitAfterASeeminglyShortRun(t *testing.T) {
	began := time.Unix(1000, 0)
	w := newWorld(Options{Skew: func(at time.Time) time.Duration {
		if at.Equal(began) {
			return 0
		}
		return -time.Hour
	}})
	c := &container{pod: &pod{world: w}, state: exited, backoff: time.Minute, madeAt: began,
		startedAt: began, exitedAt: began.Add(20 * time.Minute)}
	for started, atMost := range map[time.Time]time.Duration{
		began: 0, c.exitedAt.Add(time.Second): time.Minute,
	} {
		w.started = started
		if c.wait() != 0 || c.waitAtMost() != atMost {
			t.Errorf("agent of %v: %v to %v, want 0s to %v", started, c.wait(), c.waitAtMost(), atMost)
		}
	}
}

func TestRemovedByHand(t *testing.T) {
	removed := func(s *story, r run) {
		r.exit(137, truth.CauseSandbox)
		r.is(truth.ContainerRemoved, "")
		s.fact(truth.SandboxRemoved, truth.Fact{SandboxID: "u1-s0", Cause: truth.CauseUser})
	}
	ran := func(s *story) run {
		r := s.runs(always)
		s.wait(1)
		s.Listed(s.now, true)
		return r
	}
	judge(t, []tale{
		{"counted on", "", func(s *story) {
			removed(s, ran(s))
			s.start(s.sandbox("u1", 0), "app", 1)
		}},
		{"counted anew", "restart-count", func(s *story) {
			removed(s, ran(s))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"counted anew by another agent", "", func(s *story) {
			removed(s, ran(s))
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"counted anew by one that had not looked", "", func(s *story) {
			removed(s, s.runs(always))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
	})
}

func TestLost(t *testing.T) {
	judge(t, []tale{
		{"stopped because it was lost", "", func(s *story) {
			r := s.runs(always)
			s.wait(200)
			r.is(truth.ContainerLost, "")
			r.is(truth.StopRequested, "")
		}},
		{"not ready while it is lost", "", func(s *story) {
			r := s.runs(always)
			s.shows("u1", v1.PodRunning, "app#0 ready")
			r.is(truth.ContainerLost, "")
			s.shows("u1", v1.PodRunning, "app#0 waiting")
		}},
	})
}
