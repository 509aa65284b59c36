package pod

import v1 "k8s.io/api/core/v1"

// When a pod may be called over: nothing of it runs, and that it has ended is kept, so that no
// agent begins it again. Whatever way it ended, it is kept first and told then: in its record, or,
// if the disk takes nothing, at the API server.

// terminal says whether a pod of this phase is over for good.
func terminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// over says whether nothing of the pod runs or can start any more, nor will if the agent is
// restarted. What a pod looks like that was over before this agent started says so as well, so that
// its phase does not go back.
func (p *Pod) over() bool {
	if !p.EndKept() {
		return false
	}
	atEnd := p.Kill.Phase != "" || p.completed()
	return p.Stage == Terminated || atEnd && !p.live() && p.Op == 0 && !p.anyReady()
}

// outcome is the terminal phase of a pod that is at its end.
func (p *Pod) outcome() v1.PodPhase {
	switch {
	case p.Kill.Phase != "":
		return p.Kill.Phase
	case p.succeeded():
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// Untold is the terminal phase of a pod that has ended, if that could not be kept; else empty. The
// API server can keep it, and until it has, nobody else is told.
func (p *Pod) Untold() v1.PodPhase {
	if p.Stage != Terminated || p.EndKept() {
		return ""
	}
	return p.outcome()
}

// EndKept says whether the next agent will know as well that the pod has ended, or is to end,
// whatever becomes of this one and of what the runtime has of the pod. Before that nobody is told
// that it is over: an agent that did not know it would begin the pod again.
func (p *Pod) EndKept() bool {
	switch {
	case p.Gone || p.Spec == nil: // nobody wants it
		return true
	case terminal(p.Spec.Status.Phase):
		return true
	case p.Kill.Phase == "": // the API server has that it is to be deleted
		return p.Spec.DeletionTimestamp != nil
	}
	return p.Record.End != nil
}
