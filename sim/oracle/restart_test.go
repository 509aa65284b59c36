package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

// ruled gives a container a policy and, for some exit codes, the rule that it is to run again.
func ruled(policy v1.ContainerRestartPolicy, op v1.ContainerRestartRuleOnExitCodesOperator,
	codes ...int32) func(*v1.Container) {
	return func(c *v1.Container) {
		c.RestartPolicy = &policy
		if op != "" {
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestart,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
			}}
		}
	}
}

const (
	in    = v1.ContainerRestartRuleOnExitCodesOpIn
	notIn = v1.ContainerRestartRuleOnExitCodesOpNotIn
)

func TestRestarts(t *testing.T) {
	own := func(change func(*v1.Container)) *v1.Container {
		c := &v1.Container{}
		change(c)
		return c
	}
	for _, c := range []struct {
		name      string
		container *v1.Container
		pod       v1.RestartPolicy
		code      int32
		want      bool
	}{
		{"nothing of its own", &v1.Container{}, onFailure, 1, true},
		{"nothing known", nil, never, 1, false},
		{"its policy first", own(ruled(v1.ContainerRestartPolicyNever, "")), always, 1, false},
		{"OnFailure", own(ruled(v1.ContainerRestartPolicyOnFailure, "")), always, 0, false},
		{"a rule first", own(ruled(v1.ContainerRestartPolicyNever, in, 42)), never, 42, true},
		{"no rule for it", own(ruled(v1.ContainerRestartPolicyNever, in, 42)), always, 1, false},
		{"not in", own(ruled(v1.ContainerRestartPolicyNever, notIn, 42)), never, 1, true},
		{"not not in", own(ruled(v1.ContainerRestartPolicyNever, notIn, 42)), never, 42, false},
	} {
		if got := restarts(c.container, c.pod, c.code); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestRules(t *testing.T) {
	again := func(code int32) func(*story) {
		return func(s *story) {
			s.want(with(spec("u1", never, "app"),
				ruled(v1.ContainerRestartPolicyNever, in, 42)))
			s.start(s.sandbox("u1", 0), "app", 0).exit(code, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
		}
	}
	judge(t, []tale{
		{"restarted by a rule", "", again(42)},
		{"restarted without one", "restart-policy", again(1)},
		{"its own policy is Always", "", func(s *story) {
			s.want(with(spec("u1", never, "app"), ruled(v1.ContainerRestartPolicyAlways, "")))
			s.start(s.sandbox("u1", 0), "app", 0).exit(0, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
		}},
	})
}

// due has a pod with an active deadline of a minute, and shows when it began.
func (s *story) due(runs string) run {
	s.AgentStarted(s.now)
	p := spec("u1", always, "app")
	minute := int64(60)
	p.Spec.ActiveDeadlineSeconds = &minute
	p.Status.StartTime = &metav1.Time{Time: s.now}
	s.want(p)
	r := s.start(s.sandbox("u1", 0), "app", 0)
	s.shows("u1", v1.PodRunning, runs)
	return r
}

// exceeded has the API show that the deadline has passed.
func (s *story) exceeded() {
	p := s.shown("u1", v1.PodFailed, "app#0 terminated")
	p.Status.Reason = reasonDeadline
	s.Answer(s.now, []*v1.Pod{p})
}

func TestDeadline(t *testing.T) {
	judge(t, []tale{
		{"in time", "", func(s *story) {
			r := s.due("app#0 ready")
			s.wait(60)
			r.is(truth.StopRequested, "")
			r.exit(143, truth.CauseStop)
			s.exceeded()
		}},
		{"stopped too early", "undisturbed", func(s *story) {
			r := s.due("app#0 ready")
			s.wait(50)
			r.is(truth.StopRequested, "")
		}},
		{"shown too early", "active-deadline", func(s *story) {
			s.due("app#0 ready").exit(1, truth.CauseOwn)
			s.wait(50)
			s.exceeded()
		}},
		{"started after it", "active-deadline", func(s *story) {
			s.due("app#0 ready").exit(1, truth.CauseOwn)
			s.wait(150)
			s.start("u1-s0", "app", 1)
		}},
		{"running again after it", "terminal", func(s *story) {
			s.due("app#0 ready").exit(1, truth.CauseOwn)
			s.wait(61)
			s.exceeded()
			s.shows("u1", v1.PodRunning, "app#0 waiting")
		}},
	})
}

func TestUIDs(t *testing.T) {
	// renamed gives the UID of a pod that runs to another name.
	renamed := func(s *story) (run, *v1.Pod) {
		r := s.runs(always)
		s.Unwanted(s.now, "u1")
		other := spec("u1", always, "app")
		other.Name = "other"
		s.want(other)
		return r, other
	}
	// starts has a container of the pod of the new name start.
	starts := func(s *story) {
		f := truth.Fact{Time: s.now, PodUID: "u1", PodNamespace: "ns", PodName: "other",
			SandboxID: "u1-s1", Container: "app", ContainerID: "u1-app#1", Attempt: 1}
		for _, f.Kind = range []truth.Kind{truth.SandboxCreated, truth.SandboxReady,
			truth.ContainerCreated, truth.ContainerStarted} {
			s.Fact(f)
		}
	}
	judge(t, []tale{
		{"one after the other", "", func(s *story) {
			r, _ := renamed(s)
			r.exit(143, truth.CauseStop)
			r.is(truth.ContainerRemoved, "")
			starts(s)
			s.shows("u1", v1.PodRunning, "app#1 ready")
		}},
		{"started while the old one runs", "one-run uid-reuse", func(s *story) {
			renamed(s)
			starts(s)
		}},
		{"shown with a container of the old one", "uid-reuse", func(s *story) {
			renamed(s)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"ended by a late list of the one before", "undisturbed", func(s *story) {
			r := s.runs(always)
			s.Unwanted(s.now, "u1")
			r.is(truth.StopRequested, "")
			r.exit(143, truth.CauseStop)
			r.is(truth.ContainerRemoved, "")
			s.want(s.pods["u1"])
			s.wait(200)
			again := s.start("u1-s0", "app", 0)
			s.wait(5)
			again.is(truth.StopRequested, "")
		}},
		{"ended, as it was made before the manifest was read again", "", func(s *story) {
			s.runs(always)
			s.Unwanted(s.now, "u1")
			s.want(s.pods["u1"])
			s.wait(5)
			late := s.start("u1-s0", "more", 0)
			s.wait(200)
			late.is(truth.StopRequested, "")
		}},
	})
}

// In the end containers are asked what they have to be asked, and ended for what they answer.
func TestUnsettledProbes(t *testing.T) {
	for _, c := range []struct {
		name, lacks string
		tell        func(s *story)
	}{
		{"asked and shown", "", func(s *story) {
			s.runsWith(ready).answers(readinessRequest, "gggggggg")
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"never asked", "has not had its readiness probe for 1m1s", func(s *story) {
			s.runsWith(ready)
			s.wait(60)
		}},
		{"not shown as ready", "shown with ready false, it is true", func(s *story) {
			s.runsWith(ready).answers(readinessRequest, "gggggggggg")
			s.shows("u1", v1.PodRunning, "app#0 running")
		}},
		{"asked before the faults ended", "has not had its readiness probe yet", func(s *story) {
			s.runsWith(ready).answers(readinessRequest, "gggggggg")
			s.Healed(s.now)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"failed, and not ended", "runs although its liveness probe has failed", func(s *story) {
			r := s.runsWith(alive)
			for range 60 {
				r.answers(livenessRequest, "b")
			}
		}},
		{"not started, and not ended", "runs although its startup probe has failed",
			func(s *story) {
				r := s.runsWith(started)
				for range 60 {
					r.answers(startupRequest, "b")
				}
			}},
		{"its hook failed, and it was not ended", "its postStart hook has failed",
			func(s *story) {
				s.runsWith(postStart).answers(postStartRequest, "b")
				s.wait(60)
			}},
		{"asked for its hook just after a fault", "", func(s *story) {
			r := s.runsWith(postStart)
			over := s.now.Sub(begin).Seconds() - 0.005
			s.struckBetween(0, over)
			s.wait(0.01)
			r.asked(postStartRequest)
			r.replied(postStartRequest, truth.ReplyGood)
			s.wait(5)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"past its deadline, and not ended", "it has come to its end, but app runs",
			func(s *story) {
				s.due("app#0 ready")
				s.wait(150)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.Healed(s.now)
			c.tell(s)
			s.wait(0.5)
			if got := s.unsettled(); c.lacks == "" && got != "" || !strings.Contains(got, c.lacks) {
				t.Errorf("unsettled %q, want %q", got, c.lacks)
			}
		})
	}
}
