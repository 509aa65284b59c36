package core

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/qos"
)

// applyRelist gives every pod its part of a complete relist.
func (a *Agent) applyRelist() {
	s := &a.state
	if s.Relist.Overdue {
		s.Relist.Overdue = false
		a.enqueueRuntimeWaiters() // the runtime is healthy again
		a.enqueueNode()
	}
	first := s.Relist.Completed == 1
	if first {
		a.enqueueNode()
	}
	number, issued := s.Relist.Completed, s.Relist.AsOf
	namesSetAside := a.forgetSetAsideObjects()
	for i := range s.Relist.Sandboxes {
		item := &s.Relist.Sandboxes[i]
		a.workOn(item.UID)
		if a.observeSetAside(item.UID, item.Namespace+"/"+item.Name, item.ID, item, issued) {
			continue
		}
		p := a.observedPod(item.UID, item.Namespace, item.Name)
		if p.ObserveSandbox(item, number, issued) {
			a.enqueuePod(p.UID)
		}
	}
	for i := range s.Relist.Containers {
		item := &s.Relist.Containers[i]
		a.workOn(item.UID)
		if a.observeSetAside(item.UID, item.Namespace+"/"+item.Pod, item.ID, nil, issued) {
			continue
		}
		p := a.observedPod(item.UID, item.Namespace, item.Pod)
		if p.ObserveContainer(item, number, issued, s.Now) {
			a.enqueuePod(p.UID)
		}
	}
	s.Relist.ReleaseLists()
	a.enqueueFreedNames(namesSetAside)
	for _, uid := range a.podUIDs {
		a.workOn(uid)
		p := s.Pods[uid]
		if !issued.After(p.LastRemoval) {
			a.requestRelist(p.LastRemoval) // this relist was issued too early to see the removal
		}
		if p.ObserveEnd(number, issued) {
			a.enqueuePod(uid)
		}
		if p.Spec == nil && !p.NoLongerDesired && !first && a.hasListedEverything() &&
			len(s.PendingAPIPods) == 0 && !a.isLeftAlone(p) && !a.isSetAside(uid) {
			p.ClearDesired(s.Now) // only now: all sources were listed
			a.enqueuePod(uid)
		}
	}
	a.workOn("")
	a.indexObjects()
	a.release(a.dueSetAside(issued), s.Now)
	if first {
		a.countAllShares()
		a.reconcileAllPods(s.Now)
		a.queue.enqueue(qos.Owner)
	}
}

// handleContainerEvent gives an event of the runtime's stream to its pod. An event about an unknown
// pod requests a relist, which finds the pod.
func (a *Agent) handleContainerEvent(body *runtimeapi.ContainerEventResponse, now time.Time) {
	a.state.EventStream.HandleEvent()
	ev := pleg.ParseEvent(body)
	if a.isSetAside(ev.UID) {
		return
	}
	a.workOn(ev.UID)
	p := a.state.Pods[ev.UID]
	if p == nil {
		a.requestRelist(now)
		return
	}
	changed, needsRelist := p.ObserveEvent(&ev, now)
	if needsRelist {
		a.requestRelist(now)
	}
	if changed {
		a.enqueuePod(p.UID)
	}
}

// requestRelist requests a relist that is issued after the given time.
func (a *Agent) requestRelist(since time.Time) {
	if a.state.Relist.Request(since) {
		a.queue.enqueue(pleg.Owner)
	}
}

// observedPod returns the pod with the given UID; a pod that only the runtime has is added. If the
// desired pod with the UID has another name, the runtime's objects are not its own and are removed
// first.
func (a *Agent) observedPod(uid, namespace, name string) *pod.Pod {
	if p := a.state.Pods[uid]; p != nil {
		if p.Observed || p.Namespace == namespace && p.Name == name {
			return p
		}
		a.removePod(p) // it is desired again when this relist has been applied
	}
	p := pod.NewOrphan(uid, namespace, name, a.state.Now)
	a.addPod(p)
	return p
}
