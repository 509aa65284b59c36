package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
)

// What the sources want of a pod, and what of it ends the pod.

// Want says that a source wants the pod, with this spec. A pod that is being ended because it
// was not wanted comes back after its end.
func (p *Pod) Want(spec *v1.Pod, now time.Time) {
	switch {
	case p.Gone:
		p.Next = spec
	case p.Namespace != spec.Namespace || p.Name != spec.Name:
		p.Unwant(now) // another pod, with the UID of this one
		p.Next = spec
	default:
		p.voidHooks()
		p.Spec = spec
		p.Watching.Done = false // it may refer to other objects
		p.Storage.Set.Recheck()
		p.obey(now)
	}
}

// Show takes another state of the pod's object of which only the status, or what the agent does
// not look at, is different. It reports whether that changes what the pod is to do or to show.
func (p *Pod) Show(spec *v1.Pod) bool {
	gates := len(spec.Spec.ReadinessGates) > 0
	p.Spec = spec
	return gates
}

// obey does what the API server's object says of the end of the pod: that it is to end, or that it
// has, which is for good (upstream #37447, #58711). The object of a static pod never says so.
func (p *Pod) obey(now time.Time) {
	if phase := p.Spec.Status.Phase; terminal(phase) {
		p.Phase = phase // whatever it was here, it was not told in time
		p.end(Kill{Reason: "Over", Grace: p.grace()}, now)
	}
	if p.Spec.DeletionTimestamp == nil {
		return
	}
	grace := p.grace()
	if s := p.Spec.DeletionGracePeriodSeconds; s != nil {
		grace = max(seconds(*s), graceLeast)
	}
	p.end(Kill{Reason: "Deleted", Grace: grace}, now)
}

// graceLeast is what the kubelet gives containers that are to be gone at once.
const graceLeast = time.Second

// voidHooks has the postStart hook that a new spec may give to a container that runs not be run:
// the container has started without it.
func (p *Pod) voidHooks() {
	for i := range p.Containers {
		c := &p.Containers[i]
		want := p.want(c.Name)
		c.PostStart.Void = c.PostStart.Void || want != nil && !hasPostStart(want) && c.live()
	}
}

// Unwant says that no source wants the pod any more.
func (p *Pod) Unwant(now time.Time) {
	p.Gone, p.Next = true, nil
	p.end(Kill{Reason: "Deleted", Grace: p.grace()}, now)
}

// Preempt ends the pod, for good, to make room for a critical one.
func (p *Pod) Preempt(now time.Time) {
	p.end(Kill{Reason: admission.PreemptedReason, Message: admission.PreemptedMessage,
		Phase: v1.PodFailed, Grace: p.grace()}, now)
}

// end begins to end the pod. If that has begun already, a shorter grace period hastens it.
func (p *Pod) end(kill Kill, now time.Time) {
	if p.Stage != Syncing {
		if left := now.Add(kill.Grace).Sub(p.Kill.At); left < p.Kill.Grace {
			p.Kill.Grace = left
		}
		return
	}
	p.Stage, p.Kill = Terminating, kill
	p.Kill.At = now
	p.Stale = now // nothing is concluded before what runs has been looked at once more
}
