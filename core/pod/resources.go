package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/admission"
)

// HoldsResources reports whether the resources that the pod requests are not available to other
// pods: the pod runs, is to run, or may not have terminated yet. A pod that has a terminal phase at
// the API server had stopped everything before, and a pod over its budget starts nothing.
func (p *Pod) HoldsResources() bool {
	switch {
	case p.HasLiveContainers() || !p.areSandboxesDown():
		return true
	case p.Spec == nil, p.OverBudget:
		return false
	case p.NoLongerDesired && p.Replacement != nil: // the pod is created again
		return true
	case IsTerminal(p.Spec.Status.Phase):
		return !p.Observed
	}
	return p.Stage != Terminated
}

// MayBecomeTerminal reports whether the pod may turn out to be terminal in a moment, and then
// releases its resources: an agent that has just started has to complete its observations first,
// and the termination of a pod without live containers has to be confirmed.
func (p *Pod) MayBecomeTerminal() bool {
	switch p.Stage {
	case Syncing:
		return p.Spec != nil && (!p.Observed || !p.Record.Loaded || p.HasUnknownExits() ||
			p.hasCompleted())
	case Terminating:
		return !p.HasLiveContainers() && !p.hasReadySandbox()
	}
	return false
}

// AllocatedPod returns a pod whose requests are the resources that this pod holds on the node: the
// pod itself, or for an orphaned pod the allocation in the annotation of its sandbox.
func (p *Pod) AllocatedPod() *v1.Pod {
	switch {
	case p.Resize.Granted != nil:
		return p.Resize.Granted
	case p.Spec != nil:
		return p.Spec
	}
	pod := &v1.Pod{}
	if s := p.CurrentSandbox(); s != nil {
		pod = admission.DecodeAllocation(s.Allocation)
	}
	pod.Namespace, pod.Name, pod.UID = p.Namespace, p.Name, types.UID(p.UID)
	return pod
}

// ReservedPod returns the pod with the larger of what it holds and what it is resized to, of each
// resource.
func (p *Pod) ReservedPod() *v1.Pod {
	held := p.AllocatedPod()
	if p.Resize.Desired == nil {
		return held
	}
	options := podresources.PodResourcesOptions{ExcludeOverhead: true}
	most := podresources.PodRequests(held, options)
	for name, q := range podresources.PodRequests(p.Resize.Desired, options) { //ordered: into a map
		if have := most[name]; q.Cmp(have) > 0 {
			most[name] = q
		}
	}
	reserved := *held
	reserved.Spec.Resources = &v1.ResourceRequirements{Requests: most}
	return &reserved
}
