package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// restarts says whether a container that has ended is to run again: by the first of its own rules
// that matches its exit code, or else by its own policy, or else by the pod's (KEP-5307).
func (p *Pod) restarts(c *Container) bool {
	role, want := p.role(c.Name), p.want(c.Name)
	if role == Ephemeral || want == nil {
		return false
	}
	failed, action := c.ExitCode != 0, ruleFor(want, c.ExitCode)
	if role == Init && !failed && action != v1.ContainerRestartRuleActionRestartAllContainers {
		return false
	}
	if action != "" {
		return true // alone or with all others
	}
	policy := v1.ContainerRestartPolicy(p.Spec.Spec.RestartPolicy)
	if want.RestartPolicy != nil {
		policy = *want.RestartPolicy
	}
	switch policy {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		// Who was ended to be run anew is, however well it took that. An agent that was restarted
		// meanwhile does not know, as the kubelet does not.
		return failed || c.Stop != nil && c.Stop.Ailing
	}
	return true
}

// restartsFailed says whether a container is to run again once it has failed, whatever its rules
// say.
func (p *Pod) restartsFailed(want *v1.Container) bool {
	if want.RestartPolicy != nil {
		return *want.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return p.Spec.Spec.RestartPolicy != v1.RestartPolicyNever
}

// ruleFor is the action of the first rule of a container that matches an exit code; empty if there
// is none.
func ruleFor(want *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for i := range want.RestartPolicyRules {
		if rule := &want.RestartPolicyRules[i]; matchesExit(rule.ExitCodes, code) {
			return rule.Action
		}
	}
	return ""
}

func matchesExit(on *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if on == nil {
		return false
	}
	in := slices.Contains(on.Values, code)
	return in == (on.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// runsAgain says whether there is to be another run after one that has ended: by policy, because
// all containers are restarted, or because the spec has changed since.
func (p *Pod) runsAgain(c *Container) bool {
	return p.restarts(c) || p.superseded(c) || !p.matches(c)
}
