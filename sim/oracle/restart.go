package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// restarts says whether a container runs again after an exit code: the first of its own rules that
// matches decides, else its own policy, else the pod's (KEP-5307). A container of which nothing is
// known goes by the pod's.
func restarts(c *v1.Container, policy v1.RestartPolicy, code int32) bool {
	if ruleFor(c, code) != "" {
		return true // both of the actions that there are make it run again
	}
	if c != nil && c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// ruleFor is the action of the first rule of a container that matches an exit code; empty if there
// is none.
func ruleFor(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	if c == nil {
		return ""
	}
	for i := range c.RestartPolicyRules {
		if matches(&c.RestartPolicyRules[i], code) {
			return c.RestartPolicyRules[i].Action
		}
	}
	return ""
}

func matches(rule *v1.ContainerRestartRule, code int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	in := slices.Contains(rule.ExitCodes.Values, code)
	return in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// ruled says whether a container had a policy of its own in any spec of its pod.
func (p *pod) ruled(name string) bool {
	for _, spec := range p.specs {
		if c := containerOf(spec, name); c != nil && c.RestartPolicy != nil {
			return true
		}
	}
	return false
}
