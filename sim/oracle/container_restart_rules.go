package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// runsAgain reports whether a container is restarted after an exit code. The first of its own
// rules that matches decides, then its own policy, then the pod's (KEP-5307). If the container's
// spec is not known, the pod's policy decides.
func runsAgain(c *v1.Container, policy v1.RestartPolicy, code int32) bool {
	if matchingRule(c, code) != "" {
		return true // both actions restart the container
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

// matchingRule returns the action of the first rule of a container that matches an exit code;
// empty if none does.
func matchingRule(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	if c == nil {
		return ""
	}
	for i := range c.RestartPolicyRules {
		if ruleMatches(&c.RestartPolicyRules[i], code) {
			return c.RestartPolicyRules[i].Action
		}
	}
	return ""
}

func ruleMatches(rule *v1.ContainerRestartRule, code int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	in := slices.Contains(rule.ExitCodes.Values, code)
	return in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// hasOwnPolicy reports whether a container had a restart policy of its own in any spec of the
// pod.
func (p *pod) hasOwnPolicy(name string) bool {
	for _, spec := range p.specs {
		if c := containerOf(spec, name); c != nil && c.RestartPolicy != nil {
			return true
		}
	}
	return false
}
