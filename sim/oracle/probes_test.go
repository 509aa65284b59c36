package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestProbesWhileEnding(t *testing.T) {
	judge(t, []tale{
		{"before the end", "", func(s *story) {
			r := s.runsWith(alive)
			r.answers(livenessRequest, "ggg")
			s.Unwanted(s.now, "u1")
			r.answers(livenessRequest, "g") // not noticed yet
		}},
		{"under way when the end begins", "", func(s *story) {
			r := s.runsWith(alive)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			r.is(truth.StopRequested, "")
			s.wait(0.002)
			r.asked(livenessRequest)
		}},
		{"after TERM", "probes", func(s *story) {
			r := s.runsWith(alive)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			r.is(truth.StopRequested, "")
			r.answers(livenessRequest, "g")
		}},
		{"after TERM to another container", "probes", func(s *story) {
			s.AgentStarted(s.now)
			s.want(with(spec("u1", always, "app", "other"), alive))
			box := s.sandbox("u1", 0)
			r, other := s.start(box, "app", 0), s.start(box, "other", 0)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			other.is(truth.StopRequested, "")
			r.answers(livenessRequest, "g")
		}},
		{"while the preStop hook runs", "probes", func(s *story) {
			r := s.runsWith(alive, preStop)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			r.asked(preStopRequest)
			r.answers(livenessRequest, "g")
		}},
		{"readiness after TERM", "probes", func(s *story) {
			r := s.runsWith(ready)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			r.is(truth.StopRequested, "")
			r.answers(readinessRequest, "gb")
		}},
		{"late on its way", "", func(s *story) {
			s.struckBetween(0, 10)
			r := s.runsWith(alive)
			s.Unwanted(s.now, "u1")
			s.wait(1)
			r.is(truth.StopRequested, "")
			r.answers(livenessRequest, "g")
		}},
		{"by an agent that does not know", "", func(s *story) {
			r := s.runsWith(alive)
			r.answers(livenessRequest, "bbb")
			r.is(truth.StopRequested, "")
			s.restart()
			r.answers(livenessRequest, "g")
		}},
	})
}

func TestProbesBeforeTheStart(t *testing.T) {
	judge(t, []tale{
		{"startup first", "", func(s *story) {
			r := s.runsWith(started, alive)
			r.answers(startupRequest, "bg")
			r.answers(livenessRequest, "g")
		}},
		{"liveness before", "probes", func(s *story) {
			r := s.runsWith(started, alive)
			r.answers(startupRequest, "bb")
			r.answers(livenessRequest, "g")
		}},
		{"readiness before", "probes", func(s *story) {
			s.runsWith(started, ready).answers(readinessRequest, "g")
		}},
		{"the run before had started", "probes", func(s *story) {
			r := s.runsWith(started, alive)
			r.answers(startupRequest, "g")
			r.exit(1, truth.CauseOwn)
			s.start("u1-s0", "app", 1).answers(livenessRequest, "g")
		}},
		{"after a restart of the agent", "", func(s *story) {
			r := s.runsWith(started, alive)
			r.answers(startupRequest, "g")
			s.restart()
			r.answers(livenessRequest, "g")
		}},
		{"a sidecar's successor", "init-order", func(s *story) {
			p := spec("u1", always, "init-proxy", "app")
			policy := v1.ContainerRestartPolicyAlways
			p.Spec.InitContainers[0].RestartPolicy = &policy
			started(&p.Spec.InitContainers[0])
			s.want(p)
			s.start(s.sandbox("u1", 0), "init-proxy", 0).answers(startupRequest, "b")
			s.start("u1-s0", "app", 0)
		}},
	})
}

func TestReadyAsAnswered(t *testing.T) {
	judge(t, []tale{
		{"not yet", "", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "g")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"too early", "probes", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "bg")
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"not at once", "", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gg")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"never", "probes", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggggg")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"taken back for one bad answer", "probes", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggggb")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"taken back", "", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "ggggggbrn")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"not taken back", "probes", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "ggbbbbbbbbbb")
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"taken back, as an answer was lost", "", func(s *story) {
			s.struckBetween(4, 8)
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggggb")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
	})
}

func TestReadyOverRestart(t *testing.T) {
	judge(t, []tale{
		{"kept", "", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggg")
			s.shows("u1", v1.PodRunning, "app#0 ready")
			s.restart()
			s.shows("u1", v1.PodUnknown)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"lost", "probes", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggg")
			s.shows("u1", v1.PodRunning, "app#0 ready")
			s.restart()
			s.wait(6)
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"lost, but never shown", "", func(s *story) {
			r := s.runsWith(ready)
			r.answers(readinessRequest, "gggggggg")
			s.restart()
			s.wait(6)
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"started of the run before", "probes", func(s *story) {
			r := s.runsWith(started)
			r.answers(startupRequest, "g")
			r.exit(1, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
			s.wait(6)
			p := s.shown("u1", v1.PodRunning, "app#1 running")
			yes := true
			p.Status.ContainerStatuses[0].Started = &yes
			s.Answer(s.now, []*v1.Pod{p})
		}},
	})
}

// A container that fails its probes is ended, others are not.
func TestEndedForProbes(t *testing.T) {
	stop := func(change func(*v1.Container), request, replies string) func(*story) {
		return func(s *story) {
			r := s.runsWith(change)
			r.answers(request, replies)
			r.is(truth.StopRequested, "")
		}
	}
	judge(t, []tale{
		{"liveness", "", stop(alive, livenessRequest, "gbbb")},
		{"liveness, once too early", "undisturbed", stop(alive, livenessRequest, "gbb")},
		{"liveness, interrupted", "undisturbed", stop(alive, livenessRequest, "bbgb")},
		{"a command that cannot be run", "undisturbed", stop(alive, livenessRequest, "rrrr")},
		{"startup", "", stop(started, startupRequest, "rrb")},
		{"startup, too early", "undisturbed", stop(started, startupRequest, "rr")},
		{"readiness", "undisturbed", stop(ready, readinessRequest, "bbbb")},
		{"by a new agent, too early", "undisturbed", func(s *story) {
			r := s.runsWith(alive)
			r.answers(livenessRequest, "g")
			s.restart()
			r.answers(livenessRequest, "bb")
			r.is(truth.StopRequested, "")
		}},
		{"with the probe's grace period", "", func(s *story) {
			r := s.runsWith(func(c *v1.Container) {
				alive(c)
				five := int64(5)
				c.LivenessProbe.TerminationGracePeriodSeconds = &five
			})
			r.answers(livenessRequest, "bbb")
			r.is(truth.StopRequested, "")
			s.wait(5)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
		{"the probe's grace period is not the pod's", "grace", func(s *story) {
			r := s.runsWith(func(c *v1.Container) {
				alive(c)
				five := int64(5)
				c.LivenessProbe.TerminationGracePeriodSeconds = &five
			})
			r.answers(livenessRequest, "ggg")
			s.Unwanted(s.now, "u1")
			r.is(truth.StopRequested, "")
			s.wait(5)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
	})
}
