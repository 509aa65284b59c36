package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ShouldRestart reports whether a container that has exited is to be restarted: by the first of its
// restart policy rules that matches its exit code, or else by its own restart policy, or else by
// the pod's (KEP-5307).
func (p *Pod) ShouldRestart(c *Container) bool {
	role, container := p.roleOf(c.Name), p.specContainer(c.Name)
	if role == Ephemeral || container == nil {
		return false
	}
	failed, action := c.hasFailed(role), restartRuleAction(container, c.ExitCode)
	if role == Init && !failed && action != v1.ContainerRestartRuleActionRestartAllContainers {
		return false
	}
	if action != "" {
		return true // the container alone, or all containers
	}
	policy := v1.ContainerRestartPolicy(p.Spec.Spec.RestartPolicy)
	if container.RestartPolicy != nil {
		policy = *container.RestartPolicy
	}
	switch policy {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		// A container that was stopped for a failed probe is restarted whatever its exit code. An
		// agent that was restarted meanwhile does not know of the failure; neither does the
		// kubelet.
		return failed || c.Stop != nil && c.Stop.Unhealthy
	}
	return true
}

// shouldRestartOnFailure reports whether a container is restarted after a failure, whatever its
// restart policy rules say.
func (p *Pod) shouldRestartOnFailure(container *v1.Container) bool {
	if own := container.RestartPolicy; own != nil {
		return *own != v1.ContainerRestartPolicyNever
	}
	return p.Spec.Spec.RestartPolicy != v1.RestartPolicyNever
}

// restartRuleAction returns the action of the first restart policy rule of a container that matches
// an exit code; empty if none does.
func restartRuleAction(container *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for i := range container.RestartPolicyRules {
		if rule := &container.RestartPolicyRules[i]; matchesExitCode(rule.ExitCodes, code) {
			return rule.Action
		}
	}
	return ""
}

func matchesExitCode(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	return in == (codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// needsAnotherRun reports whether a container that has exited is to run again: by its restart
// policy, because all containers are restarted, or because it was stopped for a change of its spec.
func (p *Pod) needsAnotherRun(c *Container) bool {
	return p.ShouldRestart(c) || p.IsSuperseded(c) || c.isStoppedAsChanged()
}
