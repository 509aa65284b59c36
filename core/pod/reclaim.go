package pod

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/containergc"
)

// Containers of a pod that has ended and is still desired, as its object stays at the API server:
// their records, writable layers and logs are removed if the node needs the space
// (DeleteAllUnusedContainers in pkg/kubelet/kuberuntime/kuberuntime_gc.go), and those of a pod that
// was evicted or preempted in any case (ShouldPodContentBeRemoved in pkg/kubelet/pod_workers.go).

// ReclaimRuns has all containers of a pod that has ended removed, once they may be (MayLoseRuns).
// It reports whether there are any.
func (p *Pod) ReclaimRuns() bool {
	p.ReclaimsRuns = p.Stage == Terminated && !p.NoLongerDesired && len(p.Containers) > 0
	p.RunsLeft = len(p.Containers)
	return p.ReclaimsRuns
}

// WantsRunsRemoved reports whether the runs of the pod, which has ended, are to be removed: for the
// space, or since it has ended for the sake of the node or of another pod.
func (p *Pod) WantsRunsRemoved() bool {
	return p.Stage == Terminated && !p.NoLongerDesired && (p.ReclaimsRuns || p.dropsRuns())
}

func (p *Pod) dropsRuns() bool {
	return p.IsEvicted() || p.Termination.Reason == admission.PreemptedReason
}

// keepRuns is called when the pod has not ended after all. The final status stays: nothing else has
// the ends of the runs that were removed.
func (p *Pod) keepRuns() { p.MayLoseRuns = false }

// KeepFinalStatus keeps the final status of the pod, as the API server would return it.
func (p *Pod) KeepFinalStatus(final *v1.PodStatus) {
	encoded, err := json.Marshal(final)
	if err == nil {
		p.FinalStatus = &v1.PodStatus{}
		err = json.Unmarshal(encoded, p.FinalStatus)
	}
	if err != nil {
		panic("pod: the final status of " + p.FullName() + ": " + err.Error())
	}
}

// AreRunsReclaimed reports whether the containers are removed that ReclaimRuns has asked for, as
// far as the runtime does so.
func (p *Pod) AreRunsReclaimed() bool {
	return !p.ReclaimsRuns || p.Stage != Terminated || p.NoLongerDesired ||
		!p.hasRemovableContainers()
}

// IsReclaiming reports whether a container whose removal is wanted is being removed, or its files
// are.
func (p *Pod) IsReclaiming() bool {
	return p.WantsRunsRemoved() && slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Op != 0 || c.Cleanup.Op != 0
	})
}

// NoteReclaimed is called after the pod was planned. It reports whether a run was removed for the
// space since the last plan, and whether the removal that ReclaimRuns has asked for has just ended.
func (p *Pod) NoteReclaimed() (removed, ended bool) {
	if !p.ReclaimsRuns {
		return false, false
	}
	removed, ended = len(p.Containers) < p.RunsLeft, p.AreRunsReclaimed()
	if ended {
		p.ReclaimsRuns = false
	}
	p.RunsLeft = len(p.Containers)
	return removed, ended
}

// removeReclaimed removes the containers whose removal is wanted. Of a pod that was evicted or
// preempted, a removal that fails is tried again without an end: an eviction waits for it, but no
// longer than until its deadline.
func (p *Pod) removeReclaimed(env *Env, w *wakeTimer) {
	if !p.MayLoseRuns || !p.WantsRunsRemoved() || p.HasUnknownExits() {
		return
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; p.dropsRuns() || c.Failures < removalAttemptsMax {
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
