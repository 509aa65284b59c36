package pod

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/allocation"
)

// HoldsResources reports whether the resources that the pod requests are not available to other
// pods: the pod uses them, or may run again after a shutdown.
func (p *Pod) HoldsResources() bool { return p.usesResources() || p.mayRunAgain() }

// usesResources reports whether the pod runs, is to run, or may not have terminated yet. A pod that
// has a terminal phase at the API server had stopped everything before, and a pod over its budget
// starts nothing.
func (p *Pod) usesResources() bool {
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
// pod itself, or for an orphaned pod the allocation in the annotation of its sandbox. While a
// resize is not carried out, the pod holds the larger of what it has and of what it is to get: what
// it gives up is free once it has given it up. Upstream: the option UseStatusResources in
// pkg/scheduler/framework/types.go.
func (p *Pod) AllocatedPod() *v1.Pod {
	if p.Spec != nil {
		return p.heldSpec()
	}
	pod := &v1.Pod{}
	if s := p.CurrentSandbox(); s != nil {
		pod = admission.DecodeAllocation(s.Allocation)
	}
	pod.Namespace, pod.Name, pod.UID = p.Namespace, p.Name, types.UID(p.UID)
	return pod
}

// OrphanedPod is AllocatedPod of an orphaned pod, with what an earlier agent has recorded as
// allocated to its containers: a resize may have changed that since the creation of the sandbox.
// Which are init containers is not recorded. The pod holds as much as any container by itself, as
// an init container does, and as those that run together.
func (p *Pod) OrphanedPod(recorded *allocation.Resources) *v1.Pod {
	atLeast := v1.Pod{Spec: v1.PodSpec{Resources: recorded.Pod}}
	for i := range p.Containers {
		c := &p.Containers[i]
		resources, known := recorded.Containers[c.Name]
		if !known {
			continue
		}
		container := v1.Container{Name: c.Name, Resources: resources}
		atLeast.Spec.InitContainers = append(atLeast.Spec.InitContainers, container)
		if c.State == Running {
			atLeast.Spec.Containers = append(atLeast.Spec.Containers, container)
		}
	}
	return withMostRequests(p.AllocatedPod(), &atLeast)
}

// heldSpec returns the pod with what it holds, from the memo if nothing of that has changed.
func (p *Pod) heldSpec() *v1.Pod {
	r := &p.Resize
	earlier := r.HeldEarlier
	if p.Observed && !p.HasLiveContainers() {
		earlier = nil
	}
	if r.InProgress == nil && r.Granted == nil && earlier == nil {
		return p.Spec
	}
	held, bounds := p.boundedSpec()
	m := &p.held
	if m.pod != nil && m.spec == p.Spec && m.granted == r.Granted && m.whole == r.HeldAsWhole &&
		m.earlier == earlier && slices.Equal(m.bounds, bounds) {
		return m.pod
	}
	var before, had *v1.Pod
	if r.HeldAsWhole != nil {
		whole := *p.Spec
		whole.Spec.Resources = r.HeldAsWhole
		before = &whole
	}
	if earlier != nil {
		had = earlier.Apply(p.Spec)
	}
	most := withMostRequests(held, before, had, r.Granted)
	*m = heldMemo{p.Spec, r.Granted, r.HeldAsWhole, earlier, bounds, most}
	return most
}

// HoldEarlier has the pod hold what it had before, if that is more than what is allocated: a resize
// to less may not have been carried out.
func (p *Pod) HoldEarlier(r *allocation.Resources) {
	if p.Spec != nil && withMostRequests(p.Spec, r.Apply(p.Spec)) != p.Spec {
		p.Resize.HeldEarlier = r
	}
}

// holdBeforeGrant has the pod hold also what was allocated to it before a resize, whose running
// containers are not recalled yet.
func (p *Pod) holdBeforeGrant(before *v1.Pod) {
	if held := p.Resize.HeldEarlier; held != nil {
		before = withMostRequests(before, held.Apply(before))
	}
	earlier := allocation.Of(before)
	p.HoldEarlier(&earlier)
}

// heldMemo is the result of heldSpec, and what it was computed from.
type heldMemo struct {
	spec, granted *v1.Pod
	whole         *v1.ResourceRequirements
	earlier       *allocation.Resources
	bounds        []allocation.Amounts
	pod           *v1.Pod
}

// withLargerRequests returns the resources of a pod as a whole with the larger request of each
// resource, its own or that of other resources. Either may be nil: none.
func withLargerRequests(own, other *v1.ResourceRequirements) *v1.ResourceRequirements {
	if own == nil || other == nil {
		return cmp.Or(own, other)
	}
	larger := own.DeepCopy()
	for name, q := range other.Requests { //ordered: into a map
		if have, exists := larger.Requests[name]; !exists || q.Cmp(have) > 0 {
			if larger.Requests == nil {
				larger.Requests = v1.ResourceList{}
			}
			larger.Requests[name] = q
		}
	}
	return larger
}

// ReservedPod returns the pod with the larger of what it holds and what it is resized to, of each
// resource.
func (p *Pod) ReservedPod() *v1.Pod {
	return withMostRequests(p.AllocatedPod(), p.Resize.Desired)
}

// withMostRequests returns a pod that requests the most CPU and memory that it or the others
// request, which may be nil: itself if that is its own.
func withMostRequests(pod *v1.Pod, others ...*v1.Pod) *v1.Pod {
	most, isOwn := resizableRequests(pod), true
	for _, other := range others {
		if other == nil {
			continue
		}
		for name, q := range resizableRequests(other) { //ordered: into a map
			if have := most[name]; q.Cmp(have) > 0 {
				most[name], isOwn = q, false
			}
		}
	}
	if isOwn {
		return pod
	}
	changed := *pod
	changed.Spec.Resources = &v1.ResourceRequirements{Requests: most}
	if own := pod.Spec.Resources; own != nil {
		for name, q := range own.Requests { //ordered: into a map
			if _, known := most[name]; !known {
				most[name] = q
			}
		}
	}
	return &changed
}

// resizableRequests returns what a pod requests of the resources that can be resized, without its
// overhead. It may request a thousand others, which are not looked at.
func resizableRequests(pod *v1.Pod) v1.ResourceList {
	only := func(r v1.ResourceRequirements) v1.ResourceRequirements {
		requests := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if q, exists := r.Requests[name]; exists {
				requests[name] = q
			}
		}
		return v1.ResourceRequirements{Requests: requests}
	}
	list := func(containers []v1.Container) []v1.Container {
		reduced := make([]v1.Container, len(containers))
		for i := range containers {
			c := &containers[i]
			reduced[i] = v1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy,
				Resources: only(c.Resources)}
		}
		return reduced
	}
	reduced := v1.Pod{Spec: v1.PodSpec{Containers: list(pod.Spec.Containers),
		InitContainers: list(pod.Spec.InitContainers)}}
	if own := pod.Spec.Resources; own != nil {
		whole := only(*own)
		reduced.Spec.Resources = &whole
	}
	return podresources.PodRequests(&reduced, podresources.PodResourcesOptions{})
}
