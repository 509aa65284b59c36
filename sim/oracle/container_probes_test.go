package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestProbesDuringTermination(t *testing.T) {
	runCases(t, []testCase{
		{"before the termination", "", func(s *script) {
			r := s.startPodWith(alive)
			r.probe(livenessRequest, "ggg")
			s.PodNoLongerDesired(s.now, "u1")
			r.probe(livenessRequest, "g") // the agent has not noticed yet
		}},
		{"in transit when the termination starts", "", func(s *script) {
			r := s.startPodWith(alive)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			r.change(truth.StopRequested, "")
			s.wait(0.002)
			r.startRequest(livenessRequest)
		}},
		{"after TERM", "probes", func(s *script) {
			r := s.startPodWith(alive)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			r.change(truth.StopRequested, "")
			r.probe(livenessRequest, "g")
		}},
		{"after TERM to another container", "probes", func(s *script) {
			s.AgentStarted(s.now)
			s.setDesired(with(spec("u1", always, "app", "other"), alive))
			box := s.sandbox("u1", 0)
			r, other := s.start(box, "app", 0), s.start(box, "other", 0)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			other.change(truth.StopRequested, "")
			r.probe(livenessRequest, "g")
		}},
		{"while the preStop hook runs", "probes", func(s *script) {
			r := s.startPodWith(alive, preStop)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			r.startRequest(preStopRequest)
			r.probe(livenessRequest, "g")
		}},
		{"readiness after TERM", "", func(s *script) {
			r := s.startPodWith(ready)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			r.change(truth.StopRequested, "")
			r.probe(readinessRequest, "gb")
		}},
		{"delayed in transit by a fault", "", func(s *script) {
			s.faultBetween(0, 10)
			r := s.startPodWith(alive)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			r.change(truth.StopRequested, "")
			r.probe(livenessRequest, "g")
		}},
		{"by an agent that does not know of the stop", "", func(s *script) {
			r := s.startPodWith(alive)
			r.probe(livenessRequest, "bbb")
			r.change(truth.StopRequested, "")
			s.restartAgent()
			r.probe(livenessRequest, "g")
		}},
	})
}

// The probe's period is a second.
func TestProbesTooOften(t *testing.T) {
	alternately := func(r run, reply truth.Reply, waits ...float64) {
		for _, seconds := range waits {
			r.script.wait(seconds)
			r.startRequest(livenessRequest)
			r.endRequest(livenessRequest, reply)
		}
	}
	runCases(t, []testCase{
		{"one was late, and the next one in time", "", func(s *script) {
			alternately(s.startPodWith(alive), truth.ReplySuccess, 1, 1.8, 0.2, 1)
		}},
		{"three in a period", "probes", func(s *script) {
			alternately(s.startPodWith(alive), truth.ReplySuccess, 1, 0.4, 0.4)
		}},
		{"three by two agents", "", func(s *script) {
			r := s.startPodWith(alive)
			alternately(r, truth.ReplySuccess, 1, 0.1)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			alternately(r, truth.ReplySuccess, 0.1)
		}},
	})
}

func TestProbesBeforeStartup(t *testing.T) {
	runCases(t, []testCase{
		{"startup first", "", func(s *script) {
			r := s.startPodWith(started, alive)
			r.probe(startupRequest, "bg")
			r.probe(livenessRequest, "g")
		}},
		{"liveness before", "probes", func(s *script) {
			r := s.startPodWith(started, alive)
			r.probe(startupRequest, "bb")
			r.probe(livenessRequest, "g")
		}},
		{"readiness before", "probes", func(s *script) {
			s.startPodWith(started, ready).probe(readinessRequest, "g")
		}},
		{"only the run before had started", "probes", func(s *script) {
			r := s.startPodWith(started, alive)
			r.probe(startupRequest, "g")
			r.exit(1, truth.CauseSelf)
			s.start("u1-s0", "app", 1).probe(livenessRequest, "g")
		}},
		{"after a restart of the agent", "", func(s *script) {
			r := s.startPodWith(started, alive)
			r.probe(startupRequest, "g")
			s.restartAgent()
			r.probe(livenessRequest, "g")
		}},
		{"the container after an unstarted sidecar", "init-order", func(s *script) {
			p := spec("u1", always, "init-proxy", "app")
			policy := v1.ContainerRestartPolicyAlways
			p.Spec.InitContainers[0].RestartPolicy = &policy
			started(&p.Spec.InitContainers[0])
			s.setDesired(p)
			s.start(s.sandbox("u1", 0), "init-proxy", 0).probe(startupRequest, "b")
			s.start("u1-s0", "app", 0)
		}},
	})
}

func TestReadyFollowsProbe(t *testing.T) {
	runCases(t, []testCase{
		{"not ready yet", "", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "g")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"ready too early", "probes", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "bg")
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"ready, and not served at once", "", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gg")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"ready, and never served", "probes", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggggg")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"taken back after one failure", "probes", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggggb")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"taken back after the threshold", "", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "ggggggbrn")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"failed, and still served", "probes", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "ggbbbbbbbbbb")
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"taken back after a fault", "", func(s *script) {
			s.faultBetween(4, 8)
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggggb")
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
	})
}

func TestReadyAcrossAgentRestart(t *testing.T) {
	runCases(t, []testCase{
		{"persisted", "", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggg")
			s.serve("u1", v1.PodRunning, "app#0 ready")
			s.restartAgent()
			s.serve("u1", v1.PodUnknown)
			s.serve("u1", v1.PodRunning, "app#0 ready")
		}},
		{"lost", "probes", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggg")
			s.serve("u1", v1.PodRunning, "app#0 ready")
			s.restartAgent()
			s.wait(6)
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"lost, but never served", "", func(s *script) {
			r := s.startPodWith(ready)
			r.probe(readinessRequest, "gggggggg")
			s.restartAgent()
			s.wait(6)
			s.serve("u1", v1.PodRunning, "app#0 running")
		}},
		{"served as started, of the run before", "probes", func(s *script) {
			r := s.startPodWith(started)
			r.probe(startupRequest, "g")
			r.exit(1, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
			s.wait(6)
			p := s.served("u1", v1.PodRunning, "app#1 running")
			yes := true
			p.Status.ContainerStatuses[0].Started = &yes
			s.CheckServed(s.now, []*v1.Pod{p})
		}},
	})
}

// A container that fails its liveness or startup probe is killed, any other is not.
func TestKilledForProbes(t *testing.T) {
	stop := func(change func(*v1.Container), request, replies string) func(*script) {
		return func(s *script) {
			r := s.startPodWith(change)
			r.probe(request, replies)
			r.change(truth.StopRequested, "")
		}
	}
	runCases(t, []testCase{
		{"liveness", "", stop(alive, livenessRequest, "gbbb")},
		{"liveness, below the threshold", "needless-stop", stop(alive, livenessRequest, "gbb")},
		{"liveness, interrupted", "needless-stop", stop(alive, livenessRequest, "bbgb")},
		{"a command that cannot be run", "needless-stop", stop(alive, livenessRequest, "rrrr")},
		{"startup", "", stop(started, startupRequest, "rrb")},
		{"startup, below the threshold", "needless-stop", stop(started, startupRequest, "rr")},
		{"readiness", "needless-stop", stop(ready, readinessRequest, "bbbb")},
		{"by a new agent, below the threshold", "needless-stop", func(s *script) {
			r := s.startPodWith(alive)
			r.probe(livenessRequest, "g")
			s.restartAgent()
			r.probe(livenessRequest, "bb")
			r.change(truth.StopRequested, "")
		}},
		{"with the probe's grace period", "", func(s *script) {
			r := s.startPodWith(func(c *v1.Container) {
				alive(c)
				five := int64(5)
				c.LivenessProbe.TerminationGracePeriodSeconds = &five
			})
			r.probe(livenessRequest, "bbb")
			r.change(truth.StopRequested, "")
			s.wait(5)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
		{"the probe's grace period is not the pod's", "grace-period", func(s *script) {
			r := s.startPodWith(func(c *v1.Container) {
				alive(c)
				five := int64(5)
				c.LivenessProbe.TerminationGracePeriodSeconds = &five
			})
			r.probe(livenessRequest, "ggg")
			s.PodNoLongerDesired(s.now, "u1")
			r.change(truth.StopRequested, "")
			s.wait(5)
			r.change(truth.KillRequested, truth.CauseStop)
		}},
	})
}
