package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/podstatus"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Writes of pod statuses to the API server.

// workOfStatus returns what a status counts as work of a step: it is built, compared and encoded.
func workOfStatus(status *v1.PodStatus) int {
	const perByte, perContainer = 4, 4 << 10
	containers := len(status.InitContainerStatuses) + len(status.ContainerStatuses) +
		len(status.EphemeralContainerStatuses)
	return status.Size()*perByte + containers*perContainer
}

// planStatus plans the write of a pod's status. Once the API server has the terminal status of a
// pod that is being deleted, what is left of the pod here is no longer needed and is removed.
func (a *Agent) planStatus(uid string) time.Time {
	s := &a.state
	if a.isSetAside(uid) {
		return a.planSetAsideStatus(uid)
	}
	p := s.Pods[uid]
	desired := statuswriter.Desired{NothingLeft: p == nil && !s.Relist.AsOf.IsZero() ||
		p != nil && p.OnlyRuntimeRecordsLeft && a.isAPIPod(p)}
	if p != nil && (podstatus.IsIncomplete(p) || !a.knowsRuntime() && len(p.Containers) > 0 ||
		p.NoLongerDesired && !a.isAPIPod(p) &&
			(p.Stage == pod.Terminated || pod.IsTerminal(p.Status.Phase)) || a.onlySeemsToRun(p)) {
		// A status that is only partly known is not written. Neither is the end of a static pod that is
		// no longer desired: its mirror is about to be deleted, or belongs to the next pod of the same
		// manifest by then. The mirror of one that a shutdown has ended says so until that has passed.
	} else if served := a.reportedPod(uid); served != nil && served.Status.Phase != v1.PodUnknown {
		desired.Status, desired.ChangeSoon = &served.Status, p != nil && podstatus.IsAboutToChange(p)
		a.effects.CountWork(workOfStatus(&served.Status))
		if p != nil && p.Status.ReportedFirst != "" {
			ended := served.Status
			ended.Phase, desired.Status = p.Status.ReportedFirst, &ended
		}
	}
	if p != nil && a.hasEarlierStatus(p) {
		a.queue.enqueue(mirror.Key(p.FullName()))
	}
	wake := s.StatusWriter.Plan(uid, desired, &a.effects)
	if s.Shutdown.UnderWay() && s.StatusWriter.IsTerminalWritten(uid) {
		a.queue.enqueue(shutdown.Owner) // its end may wait for that
	}
	if p != nil {
		wake = timer.Soonest(wake, a.releaseRuns(p, desired.Status))
	}
	if p != nil && !p.NoLongerDesired && p.Stage == pod.Terminated &&
		p.Spec.DeletionTimestamp != nil &&
		s.StatusWriter.IsTerminalWritten(uid) {
		p.ClearDesired(s.Now)
		a.enqueuePod(uid)
	}
	return wake
}

// handleStatusCompletion handles the completion of a write of a pod's status.
func (a *Agent) handleStatusCompletion(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	changed, written := s.StatusWriter.ChangedAt(r.Owner.Name), s.StatusWriter.Written
	if s.StatusWriter.HandleCompletion(id, r, ev, &a.effects); s.StatusWriter.Written > written {
		s.Metrics.recordStatusWrite(changed, ev.Time)
	}
}

// onlySeemsToRun reports whether the phase of a static pod is not terminal, although its mirror's
// is and the pod does not run again: the machine shuts down, or whether it does is not known yet.
func (a *Agent) onlySeemsToRun(p *pod.Pod) bool {
	if a.isAPIPod(p) || pod.IsTerminal(p.Status.Phase) || a.shutdownRejection() == (Rejection{}) {
		return false
	}
	object := a.apiPod(p.FullName())
	return object != nil && pod.IsTerminal(object.Status.Phase)
}

// knowsRuntime reports whether the name and the features of the runtime are known, which the
// statuses of containers have.
func (a *Agent) knowsRuntime() bool {
	return a.state.Runtime.Name != "" && !a.state.Runtime.AsOf.IsZero()
}

// enqueueStatuses has all statuses compared again.
func (a *Agent) enqueueStatuses() {
	for _, uid := range slices.Sorted(maps.Keys(a.state.StatusWriter.Entries)) {
		a.queue.enqueue(statuswriter.Key(uid))
	}
}

// reportedPod returns a pod with the status that is written to the API server; nil if the agent has
// no such pod.
func (a *Agent) reportedPod(uid string) *v1.Pod {
	if p := a.state.Pods[uid]; p != nil {
		return a.servedPod(uid)
	}
	rejection, isRejected := a.state.APIRejections[uid]
	entry := a.state.StatusWriter.Entries[uid]
	if !isRejected || entry == nil {
		return nil
	}
	if rejection.NodeOp != 0 && a.state.NodeObject.ReadFailures == 0 {
		return nil // the answer decides in a moment
	}
	return rejectedPod(entry.Stored, rejection)
}

// retryWritesNow retries at once the writes that failed because the API server was unavailable.
func (a *Agent) retryWritesNow() {
	for _, uid := range slices.Sorted(maps.Keys(a.state.StatusWriter.Entries)) {
		a.state.StatusWriter.RetryNow(uid)
		a.queue.enqueue(statuswriter.Key(uid))
	}
	for _, name := range slices.Sorted(maps.Keys(a.state.Mirrors.Writes)) {
		a.state.Mirrors.RetryNow(name)
		a.queue.enqueue(mirror.Key(name))
	}
}
