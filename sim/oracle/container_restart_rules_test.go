package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// withRule gives a container a restart policy and, if op is not empty, a rule that restarts it.
func withRule(policy v1.ContainerRestartPolicy, op v1.ContainerRestartRuleOnExitCodesOperator,
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

func TestRunsAgain(t *testing.T) {
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
		{"no policy of its own", &v1.Container{}, onFailure, 1, true},
		{"unknown container", nil, never, 1, false},
		{"its own policy", own(withRule(v1.ContainerRestartPolicyNever, "")), always, 1, false},
		{"OnFailure", own(withRule(v1.ContainerRestartPolicyOnFailure, "")), always, 0, false},
		{"its own rule", own(withRule(v1.ContainerRestartPolicyNever, in, 42)), never, 42, true},
		{"no matching rule", own(withRule(v1.ContainerRestartPolicyNever, in, 42)), always, 1, false},
		{"NotIn, another code", own(withRule(v1.ContainerRestartPolicyNever, notIn, 42)), never, 1, true},
		{"NotIn, the code", own(withRule(v1.ContainerRestartPolicyNever, notIn, 42)), never, 42, false},
	} {
		if got := runsAgain(c.container, c.pod, c.code); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestRestartRules(t *testing.T) {
	again := func(code int32) func(*script) {
		return func(s *script) {
			s.setDesired(with(spec("u1", never, "app"),
				withRule(v1.ContainerRestartPolicyNever, in, 42)))
			s.start(s.sandbox("u1", 0), "app", 0).exit(code, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
		}
	}
	runCases(t, []testCase{
		{"restarted by a rule", "", again(42)},
		{"restarted without a rule", "restart-policy", again(1)},
		{"its own policy is Always", "", func(s *script) {
			s.setDesired(with(spec("u1", never, "app"), withRule(v1.ContainerRestartPolicyAlways, "")))
			s.start(s.sandbox("u1", 0), "app", 0).exit(0, truth.CauseSelf)
			s.start("u1-s0", "app", 1)
		}},
	})
}
