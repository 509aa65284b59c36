package core

import (
	"time"

	v1 "k8s.io/api/core/v1"

	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/world"
)

// Shutdowns of the machine, and what depends on them: the ends of pods, the admission of others,
// and the readiness of the Node.

// awaitingShutdown is the rejection of a pod before it is known whether the machine shuts down.
var awaitingShutdown = Rejection{Phase: v1.PodPending, Waiting: true,
	Message: "waiting to learn whether the machine is shutting down"}

// shutdownRejection returns why no pod is admitted now; the zero value if pods are.
func (a *Agent) shutdownRejection() Rejection {
	switch m := &a.state.Shutdown; {
	case m.UnderWay():
		return failedRejection(shutdown.RejectionReason, shutdown.RejectionMessage)
	case m.Undecided():
		return awaitingShutdown
	}
	return Rejection{}
}

func (a *Agent) planShutdown() time.Time {
	return a.state.Shutdown.Plan(&shutdown.Env{Effects: &a.effects, EndGroup: a.endGroup,
		IsReported: a.isEndReported, Listed: a.hasAppliedEverything()})
}

// endGroup ends the pods of a group. It returns the UIDs of those that have not ended yet, or have
// volumes that are still mounted, and of those that have.
func (a *Agent) endGroup(group int, period time.Duration) (running, ended []string) {
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if p.Spec == nil || a.shutdownGroup(p) != group {
			continue
		}
		if p.HasUnmounted() {
			ended = append(ended, uid)
			continue
		}
		if p.Stage != pod.Terminated {
			p.ShutDown(period, a.effects.Now())
		}
		a.enqueuePod(uid)
		running = append(running, uid)
	}
	return running, ended
}

func (a *Agent) shutdownGroup(p *pod.Pod) int {
	priority := int32(0)
	if p.Spec.Spec.Priority != nil {
		priority = *p.Spec.Spec.Priority
	}
	return a.state.Shutdown.GroupOf(priority)
}

// endLatecomer ends a pod that has become known after its group was reached, also one that ends
// already because it is deleted, in whatever time. It is called before the pod is planned.
func (a *Agent) endLatecomer(p *pod.Pod) {
	m := &a.state.Shutdown
	if !m.UnderWay() || p.Spec == nil || p.Stage != pod.Syncing && !p.EndsByDeletion() {
		return
	}
	if group := a.shutdownGroup(p); m.Now.HasReached(group) {
		p.ShutDown(m.Groups[group].Period, a.effects.Now())
		m.Now.Await(p.UID, group)
	}
}

// isEndReported reports whether the API server needs no status of a pod that has ended: it has the
// final one, or no such pod.
func (a *Agent) isEndReported(uid string) bool {
	p := a.state.Pods[uid]
	return !a.state.HasAPIServer || p == nil || !a.isAPIPod(p) || p.NoLongerDesired ||
		a.state.StatusWriter.IsTerminalWritten(uid)
}

// handleShutdownCompletion handles the completion of an operation.
func (a *Agent) handleShutdownCompletion(r op.Record, ev world.Event) {
	m := &a.state.Shutdown
	wasUndecided := m.Undecided()
	if m.HandleCompletion(r, ev, &a.effects) || wasUndecided && !m.Undecided() {
		a.applyShutdown()
	}
}

// noteShutdownProgress is called after a pod was planned. A pod has ended when its volumes are
// unmounted too: a pod of a later group may provide them. The status of one that is not desired any
// more is not awaited.
func (a *Agent) noteShutdownProgress(p *pod.Pod) {
	m := &a.state.Shutdown
	if m.UnderWay() &&
		(p.HasUnmounted() && m.PodEnded(p.UID) || p.FullyRemoved || p.NoLongerDesired) {
		a.queue.enqueue(shutdown.Owner)
	}
}

// handleMachineShutdown handles the announcement of a shutdown, or its cancellation.
func (a *Agent) handleMachineShutdown(ev *world.MachineShutdown) {
	if !a.state.Shutdown.HandleAnnouncement(ev, &a.effects) {
		return
	}
	message := "Shutdown manager detected shutdown event"
	if ev.Cancelled {
		message = "Shutdown manager detected shutdown cancellation"
	}
	a.effects.RecordEvent(nodeobject.Reference(a.state.Node.Name), v1.EventTypeNormal, "NodeShutdown",
		"%s", message)
	a.applyShutdown()
}

// applyShutdown applies that the machine shuts down, or does not any more: the Node says so at
// once.
func (a *Agent) applyShutdown() {
	a.queue.enqueue(shutdown.Owner)
	a.state.NodeObject.CheckStatusNow()
	a.enqueueNode()
	a.retryAdmission()
	a.enqueueRuntimeWaiters()
	for _, uid := range a.podUIDs {
		if a.state.Pods[uid].IsStatic() {
			a.enqueuePod(uid) // one that the shutdown has ended runs again
		}
	}
}
