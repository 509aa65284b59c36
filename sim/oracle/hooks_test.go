package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// term has TERM sent, with a grace period.
func (r run) term(graceSeconds int64) {
	f := r.f
	f.GraceSeconds = graceSeconds
	r.s.fact(truth.StopRequested, f)
}

// unwanted has a pod with a preStop hook that nobody wants any more, long after its start.
func (s *story) unwanted() run {
	r := s.runsWith(preStop)
	s.wait(100)
	s.Unwanted(s.now, "u1")
	s.wait(1)
	return r
}

func TestPreStop(t *testing.T) {
	judge(t, []tale{
		{"TERM after the hook", "", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(5)
			r.replied(preStopRequest, truth.ReplyGood)
			r.term(25)
			s.wait(25)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
		{"no hook", "hooks", func(s *story) { s.unwanted().term(30) }},
		{"TERM while the hook runs", "hooks", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(5)
			r.term(25)
		}},
		{"the hook has used the time up", "", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(30)
			r.term(2)
			s.wait(2)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
		{"and nothing is left", "hooks", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(30)
			r.term(1)
		}},
		{"and KILL at once", "grace", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(30)
			r.term(2)
			s.wait(1)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
		{"KILL before the rest is over", "grace", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(5)
			r.replied(preStopRequest, truth.ReplyGood)
			r.term(25)
			s.wait(20)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
	})
}

func TestPreStopInTime(t *testing.T) {
	judge(t, []tale{
		{"KILL too late", "hooks", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(5)
			r.replied(preStopRequest, truth.ReplyGood)
			r.term(60)
			s.wait(60)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
		{"the hook may have been lost", "", func(s *story) {
			s.struckBetween(0, 200)
			s.unwanted().term(30)
		}},
		{"it ended by itself", "", func(s *story) { s.unwanted().exit(0, truth.CauseOwn) }},
		{"a sleep", "", func(s *story) {
			r := s.runsWith(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
					Sleep: &v1.SleepAction{Seconds: 10}}}
			})
			s.wait(100)
			s.Unwanted(s.now, "u1")
			s.wait(11)
			r.term(20)
			s.wait(20)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
	})
}

func TestHookDeliveries(t *testing.T) {
	judge(t, []tale{
		{"twice", "hooks", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			r.replied(preStopRequest, truth.ReplyBad)
			s.wait(1)
			r.asked(preStopRequest)
		}},
		{"twice, by two agents", "", func(s *story) {
			r := s.unwanted()
			r.asked(preStopRequest)
			s.restart()
			r.asked(preStopRequest)
		}},
		{"twice, as an answer was lost", "", func(s *story) {
			s.struckBetween(100, 102)
			r := s.unwanted()
			r.asked(preStopRequest)
			s.wait(1)
			r.asked(preStopRequest)
		}},
		{"postStart twice", "hooks", func(s *story) {
			r := s.runsWith(postStart)
			r.answers(postStartRequest, "gg")
		}},
	})
}

func TestPostStart(t *testing.T) {
	// pod has two containers of which the first has a hook, and starts the first.
	pod := func(s *story) run {
		s.AgentStarted(s.now)
		s.wait(1)
		s.want(with(spec("u1", always, "app", "next"), postStart))
		return s.start(s.sandbox("u1", 0), "app", 0)
	}
	judge(t, []tale{
		{"waited for", "", func(s *story) {
			pod(s).answers(postStartRequest, "g")
			s.start("u1-s0", "next", 0)
		}},
		{"not waited for", "hooks", func(s *story) {
			pod(s).asked(postStartRequest)
			s.start("u1-s0", "next", 0)
		}},
		{"not sent", "hooks", func(s *story) {
			pod(s)
			s.start("u1-s0", "next", 0)
		}},
		{"the container has exited", "", func(s *story) {
			pod(s).exit(1, truth.CauseOwn)
			s.start("u1-s0", "next", 0)
		}},
		{"another agent cannot know", "", func(s *story) {
			pod(s).asked(postStartRequest)
			s.restart()
			s.start("u1-s0", "next", 0)
		}},
		{"failed, and ended for it", "", func(s *story) {
			r := pod(s)
			r.answers(postStartRequest, "b")
			r.is(truth.StopRequested, "")
		}},
		{"succeeded, and ended for it", "undisturbed", func(s *story) {
			r := pod(s)
			r.answers(postStartRequest, "g")
			r.is(truth.StopRequested, "")
		}},
	})
}
