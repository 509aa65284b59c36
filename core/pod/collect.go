package pod

import (
	"seedlet.dev/core/admission"
	"seedlet.dev/core/containergc"
)

// Containers of a pod that has ended and is still desired, as its object stays at the API server:
// their records, writable layers and logs are removed if the node needs the space
// (DeleteAllUnusedContainers in pkg/kubelet/kuberuntime/kuberuntime_gc.go), and those of a pod that
// was evicted or preempted in any case (ShouldPodContentBeRemoved in pkg/kubelet/pod_workers.go).

// CollectRuns has all containers of a pod that has ended removed.
func (p *Pod) CollectRuns() {
	p.CollectsRuns = p.Stage == Terminated && !p.NoLongerDesired && len(p.Containers) > 0
}

// DropRuns has the containers removed of a pod that has ended for the sake of the node or of
// another pod. It reports whether that is new.
func (p *Pod) DropRuns() bool {
	if p.Stage != Terminated || p.NoLongerDesired || p.DropsRuns ||
		!p.IsEvicted() && p.Termination.Reason != admission.PreemptedReason {
		return false
	}
	p.DropsRuns = true
	return true
}

// IsCollected reports whether the containers are removed that CollectRuns has asked for, as far as
// the runtime does so.
func (p *Pod) IsCollected() bool {
	return !p.CollectsRuns || p.Stage != Terminated || p.NoLongerDesired || !p.hasRemovableContainers()
}

// EndCollection reports whether the removal that CollectRuns has asked for has just ended.
func (p *Pod) EndCollection() bool {
	ended := p.CollectsRuns && p.IsCollected()
	if ended {
		p.CollectsRuns = false
	}
	return ended
}

// removeCollected removes the containers that CollectRuns and DropRuns have asked for. For
// DropRuns, by which nothing waits, a removal that fails is tried again without an end.
func (p *Pod) removeCollected(env *Env, w *wakeTimer) {
	if p.IsCollected() && !p.DropsRuns || p.HasUnknownExits() {
		return
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; p.DropsRuns || c.Failures < removalAttemptsMax {
			p.removeContainer(c, env, w)
		}
	}
}

// AppendRemovalFailures appends the removals of containers and sandboxes that fail.
func (p *Pod) AppendRemovalFailures(failures []containergc.Failure) []containergc.Failure {
	for i := range p.Containers {
		if f := p.Containers[i].Removal; !f.Since.IsZero() {
			failures = append(failures, f)
		}
	}
	for i := range p.Sandboxes {
		if f := p.Sandboxes[i].Removal; !f.Since.IsZero() {
			failures = append(failures, f)
		}
	}
	return failures
}
