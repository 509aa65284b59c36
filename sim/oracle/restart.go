package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// restarts says whether a container runs again after an exit code: the first of its own rules that
// matches decides, else its own policy, else the pod's (KEP-5307). A container of which nothing is
// known goes by the pod's.
func restarts(c *v1.Container, policy v1.RestartPolicy, code int32) bool {
	if c != nil {
		for i := range c.RestartPolicyRules {
			if matches(&c.RestartPolicyRules[i], code) {
				return true // both of the actions that there are make it run again
			}
		}
		if c.RestartPolicy != nil {
			policy = v1.RestartPolicy(*c.RestartPolicy)
		}
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
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

// restartsAll says whether a pod has a rule that begins it anew as a whole. Nothing is judged that
// such a rule may change.
func (p *pod) restartsAll() bool {
	for _, spec := range p.specs {
		for _, list := range [][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
			for i := range list {
				for _, rule := range list[i].RestartPolicyRules {
					if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
						return true
					}
				}
			}
		}
	}
	return false
}
