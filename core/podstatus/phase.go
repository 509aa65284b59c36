package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/pod"
)

// phase returns the phase of a pod, by the kubelet's rule. The phase before is not terminal.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
func phase(p *pod.Pod) v1.PodPhase {
	if p.HasReachedTerminalPhase() {
		return p.TerminalPhase()
	}
	if !p.IsInitialized() {
		return v1.PodPending
	}
	for i := range p.Spec.Spec.Containers {
		c := p.LastRun(p.Spec.Spec.Containers[i].Name)
		// A container that is created again does not make a running pod pending.
		if p.Status.Phase != v1.PodRunning && (c == nil || !hasStarted(p, c)) {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// hasStarted reports whether a container has started, its postStart hook included: until then its
// status says that it waits.
func hasStarted(p *pod.Pod, c *pod.Container) bool {
	if p.PreviousRun(c) != nil {
		return true
	}
	return c.State != pod.Created && (c.State != pod.Running || p.ReportableHealth(c).Running)
}
