package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/allocation"
	"seedlet.dev/core/shutdown"
)

// Changes of the desired state: what the pod's source sets, and when that terminates the pod.

// SetDesired sets the desired spec of the pod. A pod that is terminating because it was removed
// from its source is created again after its removal. recorded are the resources that an earlier
// agent has allocated to a pod of the API server; nil if that is not known.
func (p *Pod) SetDesired(spec *v1.Pod, recorded *allocation.Resources, now time.Time) {
	switch {
	case p.NoLongerDesired:
		p.Replacement = spec
	case p.Namespace != spec.Namespace || p.Name != spec.Name:
		p.ClearDesired(now) // another pod with the same UID
		p.Replacement = spec
	default:
		p.skipAddedHooks()
		p.setSpec(spec, recorded, now)
		p.OverBudget = !p.IsStatic() && ExceedsBudget(p.Spec)
		p.Watches.Complete = false // the spec may refer to other objects
		p.Storage.Volumes.Recheck()
		p.applyAPITermination(now)
	}
}

// UpdateObject sets the pod's object when only its status, or fields that the agent does not use,
// have changed. It reports whether the change affects the pod's plan or status.
func (p *Pod) UpdateObject(spec *v1.Pod, now time.Time) bool {
	gates := len(spec.Spec.ReadinessGates) > 0
	p.setSpec(spec, nil, now)
	return gates
}

// applyAPITermination starts the termination of a pod whose object at the API server has a terminal
// phase, which is final, or a deletion timestamp (upstream #37447, #58711). The object of a static
// pod has neither.
func (p *Pod) applyAPITermination(now time.Time) {
	if phase := p.Spec.Status.Phase; IsTerminal(phase) {
		p.Status.Phase = phase // a phase of this agent that was not reported in time does not count
		p.startTermination(Termination{Reason: "TerminalPhase", Grace: p.GracePeriod()}, now)
	}
	if p.Spec.DeletionTimestamp == nil {
		return
	}
	grace := p.GracePeriod()
	if s := p.Spec.DeletionGracePeriodSeconds; s != nil {
		grace = seconds(*s)
	}
	p.startTermination(Termination{Reason: reasonDeleted, Grace: grace}, now)
}

// reasonDeleted is that of the termination of a pod that is deleted or no longer desired. No status
// has it.
const reasonDeleted = "Deleted"

// terminationGraceMin is the least grace period of a pod that ends, also if it is deleted with one
// of zero: its preStop hooks are started (calculateEffectiveGracePeriod in
// pkg/kubelet/pod_workers.go).
const terminationGraceMin = time.Second

// skipAddedHooks marks the postStart hooks that a new spec may add to live containers, so that
// they are not run: the containers have started without them.
func (p *Pod) skipAddedHooks() {
	for i := range p.Containers {
		c := &p.Containers[i]
		container := p.specContainer(c.Name)
		c.PostStart.Skip = c.PostStart.Skip ||
			container != nil && !hasPostStart(container) && c.isLive()
	}
}

// orphanGrace is the kubelet's grace period for a pod that only the runtime has, of which no source
// tells that it may take longer (SyncTerminatingRuntimePod in pkg/kubelet/kubelet.go). The one that
// its containers were created with was chosen by the author of the pod, who may have deleted it by
// force: nothing could shorten it any more, and no eviction ends an orphan.
const orphanGrace = time.Second

// ClearDesired marks the pod as no longer desired by any source, and starts its termination.
func (p *Pod) ClearDesired(now time.Time) {
	p.NoLongerDesired, p.Replacement = true, nil
	grace := p.GracePeriod()
	if p.Spec == nil {
		grace = min(grace, orphanGrace)
	}
	p.startTermination(Termination{Reason: reasonDeleted, Grace: grace}, now)
}

// Preempt terminates the pod for good, to free its resources for a critical pod.
func (p *Pod) Preempt(now time.Time) {
	p.startTermination(Termination{Reason: admission.PreemptedReason,
		Message: admission.PreemptedMessage, Phase: v1.PodFailed, Grace: p.GracePeriod()}, now)
}

// ShutDown ends the pod because the machine shuts down, within the period of its group. A pod that
// is ending already is hastened.
func (p *Pod) ShutDown(period time.Duration, now time.Time) {
	p.endForNode(Termination{Reason: shutdown.Reason, Message: shutdown.Message,
		Phase: v1.PodFailed, Grace: min(p.GracePeriod(), period)}, now)
}

// endForNode ends the pod for the sake of the node, its disks included. One that is being deleted
// is reported as ended for that (statusPostTerminating in pkg/kubelet/pod_workers.go).
func (p *Pod) endForNode(end Termination, now time.Time) {
	p.startTermination(end, now)
	if t := &p.Termination; t.Reason == reasonDeleted {
		t.Reason, t.Message, t.Phase = end.Reason, end.Message, end.Phase
	}
}

// EndsByDeletion reports whether the pod ends because it is deleted or no longer desired, and for
// nothing else.
func (p *Pod) EndsByDeletion() bool {
	return p.Stage == Terminating && p.Termination.Reason == reasonDeleted
}

// mayRunAgain reports whether the pod is a static pod that a shutdown of the machine ends. If the
// machine stays up it runs again, because no controller would replace it.
func (p *Pod) mayRunAgain() bool {
	return p.Termination.Reason == shutdown.Reason && p.IsStatic() && !p.NoLongerDesired
}

// hasOutlivedShutdown reports whether the pod is to run again after a shutdown: the machine stays
// up.
func (p *Pod) hasOutlivedShutdown(env *Env) bool { return p.mayRunAgain() && !env.MachineShutsDown }

// runAgain begins the pod again after a termination, with the containers that have ended, as an
// agent does that is started then.
func (p *Pod) runAgain() {
	p.Stage, p.Termination, p.Status.Phase = Syncing, Termination{}, v1.PodPending
	p.MayLoseRuns, p.FinalStatus, p.OverLimit = false, nil, false
	p.Storage, p.Cgroup = Storage{}, Cgroup{}
}

// Evict ends the pod because the node runs out of a resource. A pod that is ending already is
// hastened, and one that is deleted is reported as evicted (statusPostTerminating in
// pkg/kubelet/pod_workers.go).
func (p *Pod) Evict(message string, grace time.Duration, now time.Time) {
	end := Termination{Reason: ReasonEvicted, Message: message, Phase: v1.PodFailed,
		UnderPressure: true, Grace: min(p.GracePeriod(), grace)}
	p.endForNode(end, now)
	p.Termination.UnderPressure, p.Termination.PressureMessage = true, message
}

// Hasten leaves a pod that is ending no more than a grace period.
func (p *Pod) Hasten(grace time.Duration, now time.Time) {
	if p.Stage == Terminating {
		p.startTermination(Termination{Grace: min(p.GracePeriod(), grace)}, now)
	}
}

// CanBeEvicted reports whether the pod can be evicted for the node: it is not critical, was neither
// evicted nor hastened by an eviction before, and its end frees something. That is so while a
// container runs. Without one, a pod that ends or may have completed gives back what it holds by
// itself. Any other counts while its sandbox is there, which keeps its memory volumes, and for a
// file system while it has a directory, with volumes and logs.
func (p *Pod) CanBeEvicted(forDisk bool) bool {
	if p.Spec == nil || p.Stage == Terminated || p.IsEvicted() || p.Termination.UnderPressure ||
		admission.IsCritical(p.Spec, p.IsStatic()) {
		return false
	}
	if p.HasLiveContainers() {
		return true
	}
	return p.Stage == Syncing && !p.HasUnknownExits() && !p.hasCompleted() &&
		(p.hasReadySandbox() || forDisk && p.hasDir())
}

// startTermination starts the termination of the pod. If the pod is terminating already, a shorter
// grace period hastens it.
func (p *Pod) startTermination(termination Termination, now time.Time) {
	termination.Grace = max(termination.Grace, terminationGraceMin)
	switch t := &p.Termination; p.Stage {
	case Terminated:
		return // no container is left to hasten
	case Terminating:
		if termination.Grace < t.shortestGrace() {
			t.Hastened = max(termination.Grace, killAfterMin)
		}
		t.Grace = min(t.Grace, now.Add(termination.Grace).Sub(t.Since))
		return
	}
	p.Stage, p.Termination = Terminating, termination
	p.Termination.Since, p.Termination.Grace = now, termination.shortestGrace()
	p.awaitRelist(now)
}

// shortestGrace returns the shortest grace period that the pod was to end with.
func (t *Termination) shortestGrace() time.Duration {
	if t.Hastened == 0 {
		return t.Grace
	}
	return min(t.Grace, t.Hastened)
}

// awaitRelist marks all observations as stale, unless the pod is known as a whole: until a relist
// nothing is concluded of it.
func (p *Pod) awaitRelist(now time.Time) {
	if !p.KnownWhole {
		p.StaleSince = now
	}
}
