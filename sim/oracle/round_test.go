package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// group is a pod whose first app container has all restarted when it exits with 88, told until it
// does so.
func (s *story) group() (other run) {
	s.AgentStarted(s.now)
	p := spec("u1", never, "init", "app", "other")
	ruled(v1.ContainerRestartPolicyNever, in, 88)(&p.Spec.Containers[0])
	p.Spec.Containers[0].RestartPolicyRules[0].Action =
		v1.ContainerRestartRuleActionRestartAllContainers
	s.want(p)
	box := s.sandbox("u1", 0)
	s.start(box, "init", 0).exit(0, truth.CauseOwn)
	app := s.start(box, "app", 0)
	other = s.start(box, "other", 0)
	s.wait(5)
	app.exit(88, truth.CauseOwn)
	return other
}

// ends has a container stopped as it should be when all are restarted.
func (r run) ends() {
	r.is(truth.StopRequested, "")
	r.s.wait(2)
	r.is(truth.KillRequested, truth.CauseStop)
	r.exit(137, truth.CauseStop)
}

func TestRestartAll(t *testing.T) {
	judge(t, []tale{
		{"all are restarted", "", func(s *story) {
			s.group().ends()
			s.round = 1
			s.start("u1-s0", "init", 1).exit(0, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
			s.start("u1-s0", "other", 1)
		}},
		{"the others run on", "restart-all", func(s *story) {
			s.group()
			s.round = 1
			s.start("u1-s0", "init", 1)
		}},
		{"init is left out", "init-order", func(s *story) {
			s.group().ends()
			s.round = 1
			s.start("u1-s0", "app", 1)
		}},
		{"alone", "restart-policy", func(s *story) {
			s.group()
			s.start("u1-s0", "app", 1)
		}},
		{"for no reason", "restart-all", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.round = 1
			s.start("u1-s0", "app", 1)
		}},
		{"twice for one reason", "restart-all", func(s *story) {
			s.group().ends()
			s.round = 1
			again := s.start("u1-s0", "init", 1)
			s.wait(1)
			again.exit(0, truth.CauseOwn)
			s.wait(60)
			s.round = 2
			s.start("u1-s0", "init", 2)
		}},
		{"stopped for no reason", "undisturbed grace", func(s *story) {
			s.runs(always).ends()
		}},
	})
}

func TestUnsettledRestartAll(t *testing.T) {
	for _, c := range []struct {
		name, lacks string
		tell        func(s *story)
	}{
		{"the others run on", "container other #0 runs, but all are to be restarted",
			func(s *story) { s.group() }},
		{"nothing runs again", "container init #0 exited 1m7s ago",
			func(s *story) { s.group().ends() }},
		{"it has failed", "it has no sandbox that is ready", func(s *story) {
			s.group().ends()
			s.sandboxIs(truth.SandboxStopped, "u1-s0")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.Healed(s.now)
			c.tell(s)
			s.wait(60)
			if got := s.unsettled(); !strings.Contains(got, c.lacks) {
				t.Errorf("unsettled %q, want %q", got, c.lacks)
			}
		})
	}
}

// A sidecar that ends because its pod has is no reason to restart it.
func TestSidecarOfAPodThatHasEnded(t *testing.T) {
	s := tell()
	p := spec("u1", never, "init", "app")
	ruled(v1.ContainerRestartPolicyAlways, notIn, 0)(&p.Spec.InitContainers[0])
	p.Spec.InitContainers[0].RestartPolicyRules[0].Action =
		v1.ContainerRestartRuleActionRestartAllContainers
	s.AgentStarted(s.now)
	s.want(p)
	box := s.sandbox("u1", 0)
	side := s.start(box, "init", 0)
	s.start(box, "app", 0).exit(0, truth.CauseOwn)
	side.is(truth.StopRequested, "")
	side.exit(143, truth.CauseStop)
	s.sandboxIs(truth.SandboxStopped, box)
	s.Healed(s.now)
	s.wait(60)
	if got := s.unsettled(); !strings.Contains(got, "not shown") {
		t.Errorf("unsettled %q", got)
	}
}
