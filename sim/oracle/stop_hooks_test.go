package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// terminate sends TERM with a grace period.
func (r run) terminate(graceSeconds int64) {
	f := r.fact
	f.GraceSeconds = graceSeconds
	r.script.addFact(truth.StopRequested, f)
}

// startAndRemove starts a pod with a preStop hook and removes its manifest long after.
func (s *script) startAndRemove() run {
	r := s.startPodWith(preStop)
	s.wait(100)
	s.PodNoLongerDesired(s.now, "u1")
	s.wait(1)
	return r
}

func TestPreStop(t *testing.T) {
	runCases(t, []testCase{
		{"TERM after the hook", "", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(5)
			r.endRequest(preStopRequest, truth.ReplySuccess)
			r.terminate(25)
			s.wait(25)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
		{"no hook", "hooks", func(s *script) { s.startAndRemove().terminate(30) }},
		{"TERM while the hook runs", "hooks", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(5)
			r.terminate(25)
		}},
		{"the hook has used up the grace period", "", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(30)
			r.terminate(2)
			s.wait(2)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
		{"too short a grace period after the hook", "hooks", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(30)
			r.terminate(1)
		}},
		{"KILL too early after the hook", "grace-period", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(30)
			r.terminate(2)
			s.wait(1)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
		{"KILL before the rest of the grace period", "grace-period", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(5)
			r.endRequest(preStopRequest, truth.ReplySuccess)
			r.terminate(25)
			s.wait(20)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
	})
}

func TestPreStopGrace(t *testing.T) {
	runCases(t, []testCase{
		{"KILL too late", "hooks", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(5)
			r.endRequest(preStopRequest, truth.ReplySuccess)
			r.terminate(60)
			s.wait(60)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
		{"the hook may have been lost", "", func(s *script) {
			s.faultBetween(0, 200)
			s.startAndRemove().terminate(30)
		}},
		{"it exited by itself", "", func(s *script) { s.startAndRemove().exit(0, truth.CauseSelf) }},
		{"a sleep hook", "", func(s *script) {
			r := s.startPodWith(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
					Sleep: &v1.SleepAction{Seconds: 10}}}
			})
			s.wait(100)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(11)
			r.terminate(20)
			s.wait(20)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
	})
}

func TestHookDeliveries(t *testing.T) {
	runCases(t, []testCase{
		{"twice", "hooks", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			r.endRequest(preStopRequest, truth.ReplyFailure)
			s.wait(1)
			r.startRequest(preStopRequest)
		}},
		{"twice, by two agents", "", func(s *script) {
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.restartAgent()
			r.startRequest(preStopRequest)
		}},
		{"twice, under a fault", "", func(s *script) {
			s.faultBetween(100, 102)
			r := s.startAndRemove()
			r.startRequest(preStopRequest)
			s.wait(1)
			r.startRequest(preStopRequest)
		}},
		{"postStart twice", "hooks", func(s *script) {
			r := s.startPodWith(postStart)
			r.probe(postStartRequest, "gg")
		}},
	})
}

func TestPostStart(t *testing.T) {
	// pod has two containers of which the first has a hook, and starts the first.
	pod := func(s *script) run {
		s.AgentStarted(s.now)
		s.wait(1)
		s.setDesired(with(spec("u1", always, "app", "next"), postStart))
		return s.start(s.sandbox("u1", 0), "app", 0)
	}
	runCases(t, []testCase{
		{"waited for", "", func(s *script) {
			pod(s).probe(postStartRequest, "g")
			s.start("u1-s0", "next", 0)
		}},
		{"not waited for", "hooks", func(s *script) {
			pod(s).startRequest(postStartRequest)
			s.start("u1-s0", "next", 0)
		}},
		{"not sent", "hooks", func(s *script) {
			pod(s)
			s.start("u1-s0", "next", 0)
		}},
		{"the container has exited", "", func(s *script) {
			pod(s).exit(1, truth.CauseSelf)
			s.start("u1-s0", "next", 0)
		}},
		{"not waited for by another agent", "", func(s *script) {
			pod(s).startRequest(postStartRequest)
			s.restartAgent()
			s.start("u1-s0", "next", 0)
		}},
		{"failed, and killed for it", "", func(s *script) {
			r := pod(s)
			r.probe(postStartRequest, "b")
			r.change(truth.StopRequested, "")
		}},
		{"succeeded, and killed", "needless-stop", func(s *script) {
			r := pod(s)
			r.probe(postStartRequest, "g")
			r.change(truth.StopRequested, "")
		}},
	})
}
