package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// exitRestartingAll starts a pod whose first app container restarts all containers by exit code
// 88, and lets it exit so.
func (s *script) exitRestartingAll() (other run) {
	s.AgentStarted(s.now)
	p := spec("u1", never, "init", "app", "other")
	withRule(v1.ContainerRestartPolicyNever, in, 88)(&p.Spec.Containers[0])
	p.Spec.Containers[0].RestartPolicyRules[0].Action =
		v1.ContainerRestartRuleActionRestartAllContainers
	s.setDesired(p)
	box := s.sandbox("u1", 0)
	s.start(box, "init", 0).exit(0, truth.CauseSelf)
	app := s.start(box, "app", 0)
	other = s.start(box, "other", 0)
	s.wait(5)
	app.exit(88, truth.CauseSelf)
	return other
}

// stop stops a container as RestartAllContainers does.
func (r run) stop() {
	r.change(truth.StopRequested, "")
	r.script.wait(2)
	r.change(truth.KillRequested, truth.CauseStop)
	r.exit(137, truth.CauseStop)
}

func TestRestartAll(t *testing.T) {
	runCases(t, []testCase{
		{"all are restarted", "", func(s *script) {
			s.exitRestartingAll().stop()
			s.round = 1
			s.start("u1-s0", "init", 1).exit(0, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
			s.start("u1-s0", "other", 1)
		}},
		{"the others run on", "restart-all", func(s *script) {
			s.exitRestartingAll()
			s.round = 1
			s.start("u1-s0", "init", 1)
		}},
		{"init does not run", "init-order", func(s *script) {
			s.exitRestartingAll().stop()
			s.round = 1
			s.start("u1-s0", "app", 1)
		}},
		{"the container alone", "restart-policy", func(s *script) {
			s.exitRestartingAll()
			s.start("u1-s0", "app", 1)
		}},
		{"without a reason", "restart-all", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.round = 1
			s.start("u1-s0", "app", 1)
		}},
		{"two rounds for one exit", "restart-all", func(s *script) {
			s.exitRestartingAll().stop()
			s.round = 1
			again := s.start("u1-s0", "init", 1)
			s.wait(1)
			again.exit(0, truth.CauseSelf)
			s.wait(60)
			s.round = 2
			s.start("u1-s0", "init", 2)
		}},
		{"stopped without a reason", "needless-stop grace-period", func(s *script) {
			s.startPod(always).stop()
		}},
	})
}

func TestUnsettledRestartAll(t *testing.T) {
	for _, c := range []struct {
		name, problem string
		tell          func(s *script)
	}{
		{"the others run on", "container other #0 runs, but all are to be restarted",
			func(s *script) { s.exitRestartingAll() }},
		{"nothing runs again", "container init #0 exited 1m7s ago",
			func(s *script) { s.exitRestartingAll().stop() }},
		{"its sandbox has stopped", "it has no sandbox that is ready", func(s *script) {
			s.exitRestartingAll().stop()
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.Healed(s.now)
			c.tell(s)
			s.wait(60)
			if got := s.unsettled(); !strings.Contains(got, c.problem) {
				t.Errorf("unsettled %q, want %q", got, c.problem)
			}
		})
	}
}

// A sidecar that exits because its pod is terminal begins no restart round.
func TestSidecarOfTerminalPod(t *testing.T) {
	s := newScript()
	p := spec("u1", never, "init", "app")
	withRule(v1.ContainerRestartPolicyAlways, notIn, 0)(&p.Spec.InitContainers[0])
	p.Spec.InitContainers[0].RestartPolicyRules[0].Action =
		v1.ContainerRestartRuleActionRestartAllContainers
	s.AgentStarted(s.now)
	s.setDesired(p)
	box := s.sandbox("u1", 0)
	side := s.start(box, "init", 0)
	s.start(box, "app", 0).exit(0, truth.CauseSelf)
	side.change(truth.StopRequested, "")
	side.exit(143, truth.CauseStop)
	s.changeSandbox(truth.SandboxStopped, box)
	s.Healed(s.now)
	s.wait(60)
	if got := s.unsettled(); !strings.Contains(got, "not served") {
		t.Errorf("unsettled %q, want \"not served\"", got)
	}
}

// A sidecar that a shutdown has stopped begins no restart round: the pod may be terminal by then.
// One that exits by itself before does.
func TestSidecarInShutdown(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		exit func(r run)
	}{
		{"by the stop for the shutdown", 0, func(r run) { r.stop() }},
		{"by itself", 1, func(r run) { r.exit(9, truth.CauseSelf) }},
	} {
		s := newScript()
		shutdownScript(s)
		p := spec("u3", never, "init", "app")
		p.Name = "job"
		withRule(v1.ContainerRestartPolicyAlways, notIn, 0)(&p.Spec.InitContainers[0])
		p.Spec.InitContainers[0].RestartPolicyRules[0].Action =
			v1.ContainerRestartRuleActionRestartAllContainers
		s.setDesired(p)
		box := s.sandbox("u3", 0)
		side := s.start(box, "init", 0)
		s.start(box, "app", 0)
		s.wait(60)
		s.machine(truth.ShutdownAnnounced, "")
		s.wait(1)
		c.exit(side)
		if got := s.model.pods["u3"].requiredRound; got != c.want {
			t.Errorf("%s: round %d is required, want %d", c.name, got, c.want)
		}
	}
}
