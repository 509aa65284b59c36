package pod

import v1 "k8s.io/api/core/v1"

// When a pod reaches a terminal phase: nothing of it runs, and its termination is durable, so that
// no agent starts the pod again. The termination is persisted first and reported afterwards,
// however the pod terminated. It is durable in the pod's record or, if the disk accepts no writes,
// at the API server.

// IsTerminal reports whether a phase is terminal.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// HasReachedTerminalPhase reports whether a terminal phase can be reported: nothing of the pod runs
// or can start any more, how all of it ended is known, and no restart of the agent changes that.
// The condition also holds for a pod that another agent has terminated, so that its phase does not
// go back after a restart.
func (p *Pod) HasReachedTerminalPhase() bool {
	if !p.isTerminationDurable() {
		return false
	}
	ended := p.Termination.Phase != "" || p.hasCompleted()
	return p.Stage == Terminated ||
		ended && !p.HasLiveContainers() && !p.HasUnknownExits() && p.Op == 0 && !p.hasReadySandbox()
}

// TerminalPhase returns the terminal phase of a pod that has terminated.
func (p *Pod) TerminalPhase() v1.PodPhase {
	switch {
	case p.Termination.Phase != "":
		return p.Termination.Phase
	case p.hasSucceeded():
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// UnreportedTerminalPhase returns the terminal phase of a terminated pod whose record could not be
// written; else empty. Only the API server can make that phase durable, so it is reported there
// first, and nowhere else until it is durable.
func (p *Pod) UnreportedTerminalPhase() v1.PodPhase {
	if p.Stage != Terminated || p.isTerminationDurable() {
		return ""
	}
	return p.TerminalPhase()
}

// isTerminationDurable reports whether the next agent will know that the pod has terminated, or is
// to terminate, whatever happens to this agent and to the pod's objects in the runtime. A terminal
// phase is not reported before, because an agent that did not know of it would start the pod again.
func (p *Pod) isTerminationDurable() bool {
	switch {
	case p.NoLongerDesired || p.Spec == nil: // no source can start it again
		return true
	case IsTerminal(p.Spec.Status.Phase), p.Spec.DeletionTimestamp != nil: // the API server has it
		return true
	}
	return p.Termination.Phase != "" && p.Record.Termination != nil
}

// hasCompleted reports whether the pod has ended by itself: an init container has failed and is not
// restarted, or every app container has exited and is not restarted.
func (p *Pod) hasCompleted() bool {
	for i := range p.Spec.Spec.InitContainers {
		container := &p.Spec.Spec.InitContainers[i]
		c := p.LastRun(container.Name)
		if InitRole(container) == Init && c != nil && c.HasKnownExit() && c.hasFailed(Init) &&
			!p.needsAnotherRun(c) {
			return true
		}
	}
	for i := range p.Spec.Spec.Containers {
		c := p.LastRun(p.Spec.Spec.Containers[i].Name)
		if c == nil || !c.HasKnownExit() || p.needsAnotherRun(c) {
			return false
		}
	}
	return true
}

// hasSucceeded reports whether every app container has exited with code 0, in this restart round.
func (p *Pod) hasSucceeded() bool {
	for i := range p.Spec.Spec.Containers {
		c := p.LastRun(p.Spec.Spec.Containers[i].Name)
		if c == nil || !c.HasKnownExit() || c.ExitCode != 0 || p.IsSuperseded(c) {
			return false
		}
	}
	return true
}
