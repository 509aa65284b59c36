package core

import (
	"time"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// handleRuntimeCompletion handles what the runtime reports about itself, which pods may wait for.
func (a *Agent) handleRuntimeCompletion(r op.Record, ev world.Event) {
	s := &a.state
	if r.Owner == runtime.CIDROwner {
		s.Runtime.PodCIDR.HandleCompletion(ev, &a.effects)
		return
	}
	notReady, network := s.Runtime.NotReadyMessage(), s.Runtime.NetworkNotReadyMessage()
	wasKnown := !s.Runtime.AsOf.IsZero()
	name, knewRuntime := s.Runtime.Name, a.knowsRuntime()
	s.Runtime.HandleCompletion(r, ev, &a.effects)
	if s.Runtime.Name != name {
		clear(a.servedPods) // container IDs begin with the name of the runtime
	}
	if !knewRuntime && a.knowsRuntime() {
		a.enqueueStatuses() // those of containers have waited for it
	}
	a.enqueueNode()
	a.queue.enqueue(runtime.CIDROwner)
	if notReady != s.Runtime.NotReadyMessage() || network != s.Runtime.NetworkNotReadyMessage() {
		a.enqueueRuntimeWaiters()
	}
	changed := !wasKnown && !s.Runtime.AsOf.IsZero()
	if changed {
		a.retryAdmission() // pods wait for what the runtime supports
	}
	if s.Node.RecursiveReadOnly != s.Runtime.RecursiveReadOnly {
		s.Node.RecursiveReadOnly, changed = s.Runtime.RecursiveReadOnly, true
	}
	if s.Runtime.ConfigKnown && s.Node.Cgroups.SetDriver(s.Runtime.CgroupDriver) {
		changed = true
		a.queue.enqueue(qos.Owner)
	}
	if changed {
		a.enqueuePods()
	}
}

// planRuntime plans the requests about the runtime, or the one about the range of the node's pods.
func (a *Agent) planRuntime(key timer.Key) time.Time {
	if key == runtime.CIDROwner {
		return a.state.Runtime.PodCIDR.Plan(&a.effects)
	}
	return a.state.Runtime.Plan(&a.effects)
}

// notReadyReason returns why pods and containers cannot be created now; empty if they can. A relist
// that is overdue is noted, because the next one that succeeds ends the wait.
func (a *Agent) notReadyReason() string {
	s := &a.state
	if reason := s.Runtime.NotReadyMessage(); reason != "" {
		return reason
	}
	if s.Shutdown.Undecided() {
		return "it is not known yet whether the machine is shutting down"
	}
	reason := s.Relist.Health(&s.EventStream, s.Now, s.BootedAt)
	s.Relist.Overdue = s.Relist.Overdue || reason != ""
	return reason
}

// enqueueRuntimeWaiters enqueues the pods and images that wait until the runtime is ready.
func (a *Agent) enqueueRuntimeWaiters() {
	for _, uid := range a.podUIDs {
		if a.state.Pods[uid].RuntimeWaitReason != "" {
			a.enqueuePod(uid)
		}
	}
	for _, name := range a.state.Images.Names() {
		a.queue.enqueue(image.Key(name))
	}
}
