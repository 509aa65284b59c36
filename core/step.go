package core

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/containergc"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/eviction"
	"seedlet.dev/core/hostfile"
	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/imagegc"
	"seedlet.dev/core/lease"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/machine"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/plugins"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/poddirs"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumestats"
	"seedlet.dev/world"
)

// Step handles one event and returns the effects that the caller carries out. The slice is valid
// until the next Step.
func (a *Agent) Step(ev world.Event) []world.Effect {
	if ev.Time.Before(a.state.Now) {
		panic(fmt.Sprintf("core: event time went back from %v to %v", a.state.Now, ev.Time))
	}
	a.state.Now = ev.Time
	a.state.Steps++
	a.effects.Reset(&a.state.Ops, ev.Time)
	a.effects.SetWall(&a.state.Node.Wall)
	a.workOn("")
	a.handleEvent(ev)
	a.workOn("")
	a.expireOperations(ev.Time)
	a.deferPlans(ev.Time)
	a.enqueueDueTimers(ev.Time)
	for {
		key, ok := a.queue.dequeue()
		if !ok {
			break
		}
		if !a.leavesPod(key, ev.Time) {
			a.planComponent(key)
			a.saveRecords()
		}
		delete(a.queue.dueSince, key)
	}
	return a.withNamespaces(a.effects.List())
}

// withNamespaces returns the effects of a step with the namespaces of the pods that they are for.
func (a *Agent) withNamespaces(effects []world.Effect) []world.Effect {
	for i := range effects {
		if p := a.state.Pods[effects[i].Tenant]; p != nil {
			effects[i].Namespace = p.Namespace
		}
	}
	return effects
}

// NextWake returns when Step is to be called even if no event arrives; the zero time means never.
func (a *Agent) NextWake() time.Time {
	return timer.Soonest(a.state.Timers.Next(), a.state.Ops.Deadlines.Next())
}

// handleEvent changes the facts that the event is about, and enqueues the components to plan. It is
// where every event enters: a completion goes to handleCompletion, all others to the component that
// they are about.
func (a *Agent) handleEvent(ev world.Event) {
	if ev.Op != 0 {
		if r, ok := a.state.Ops.Complete(ev.Op); ok {
			if ev.Body == nil && ev.Err == nil {
				ev.Err = world.Errorf(world.KindInternal, r.Call, "answered with nothing")
			}
			a.handleCompletion(ev.Op, r, ev)
			a.reconcileRecords(r, ev)
		}
		return
	}
	boot, isBoot := ev.Body.(*world.Boot)
	if a.state.BootedAt.IsZero() != isBoot {
		panic(fmt.Sprintf("core: the first event, and no other, is *world.Boot; this one is %T", ev.Body))
	}
	switch body := ev.Body.(type) {
	case nil: // a wake-up
	case *world.Boot:
		a.handleBoot(boot, ev.Time)
	case *world.Shutdown:
		a.effects.Log(world.LevelInfo, "Shutting down", "reason", body.Reason)
	case *world.ClockStepped:
		a.handleClockStep(body, ev.Time)
	case *world.MachineShutdown:
		a.handleMachineShutdown(body)
	case *world.ShutdownUnwatched:
		a.state.Shutdown.HandleUnwatched(body, &a.effects)
		a.queue.enqueue(shutdown.Owner)
	case *world.SystemOOM:
		a.state.OOMs.Observe(a.state.Node.Name, body, &a.effects)
		a.queue.enqueue(nodeobject.OOMOwner)
	case *world.PluginSocketsObserved:
		a.state.Plugins.HandleObserved(body, &a.effects)
		a.observePlugins()
		a.queue.enqueue(plugins.Owner)
	case *world.MemoryAlert:
		a.state.Eviction.HandleMemoryAlert(ev.Time)
		a.queue.enqueue(eviction.Owner)
	case *runtimeapi.ContainerEventResponse:
		a.handleContainerEvent(body, ev.Time)
	case *world.ObjectsListed, *world.ObjectChanged, *world.ObjectGone, *world.WatchFailing:
		a.handleWatchEvent(body, ev.Time)
	case *world.FileChanged:
		if body.Path == a.state.Manifests.File.Path {
			a.state.Manifests.File.HandleChange(ev.Time)
			a.queue.enqueue(manifest.Owner)
		}
	default:
		a.handleRequest(ev)
	}
}

// expireOperations completes the operations whose deadline has passed with a timeout, since their
// outcome is unknown, and the refused ones. What is beyond the bound expires in the next step.
func (a *Agent) expireOperations(now time.Time) {
	for range perStepMax {
		id, r, err, ok := a.state.Ops.Expire(now)
		if !ok {
			return
		}
		a.handleCompletion(id, r, world.Event{Time: now, Op: id, Err: err})
	}
}

// enqueueDueTimers enqueues the components whose timer is due, as many as one step plans: those
// that were due first.
func (a *Agent) enqueueDueTimers(now time.Time) {
	for range perStepMax {
		key, since, ok := a.state.Timers.PopTime(now)
		if !ok {
			return
		}
		a.queue.enqueueDue(key, since)
	}
}

// handleCompletion gives the completion of an operation to the component that owns the operation.
// The components' own handlers are all called HandleCompletion.
func (a *Agent) handleCompletion(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	previous := a.workOn(a.podOfKey(r.Owner))
	a.queue.enqueue(r.Owner)
	a.recordCompletion(r, ev)
	switch r.Owner.Component {
	case pod.Component:
		a.handlePodCompletion(id, r, ev)
	case pleg.Owner.Component:
		done := s.Relist.HandleCompletion(id, ev)
		if s.Relist.CompletedAt.Equal(ev.Time) {
			a.recordRelist(ev.Time)
		}
		if done {
			a.applyRelist()
		}
	case pleg.StreamOwner.Component:
		s.EventStream.HandleCompletion(id, ev, &a.effects)
		a.queue.enqueue(pleg.Owner) // the relist period depends on whether the stream works
	case manifest.Owner.Component:
		s.Manifests.HandleCompletion(r.Owner, ev, &a.effects)
		a.reconcilePods(ev.Time)
	case runtime.Owner.Component:
		a.handleRuntimeCompletion(r, ev)
	case hostfile.Component:
		if file := a.hostFile(r.Owner); file.HandleCompletion(ev, &a.effects) {
			a.handleFirstHostFile(file)
		}
	case housekeeping.Owner.Component:
		a.handleHousekeepingCompletion(r, ev)
	case devicemount.Owner.Component:
		a.handleDeviceCompletion(id, r, ev)
	case poddirs.Owner.Component:
		a.handlePodDirsCompletion(ev)
	case qos.Owner.Component:
		s.QOS.HandleCompletion(ev, a.qosEnv())
	case allocation.Component:
		a.handleAllocationCompletion(r, ev)
	case pullrecord.Owner.Component:
		a.handlePullRecordCompletion(r, ev)
	case logs.Owner.Component:
		a.handleLogsCompletion(id, r, ev)
	case objectcache.Component:
		if watch, changed := s.Objects.HandleCompletion(id, r, ev); changed {
			a.enqueueUsers(watch, nil)
		}
	case statuswriter.Component:
		a.handleStatusCompletion(id, r, ev)
	case mirror.Component:
		s.Mirrors.HandleCompletion(id, r, ev, &a.effects)
	case nodeobject.Owner.Component:
		a.handleNodeCompletion(id, r, ev)
	case machine.Owner.Component:
		a.handleMachineCompletion(ev)
	case shutdown.Owner.Component:
		a.handleShutdownCompletion(r, ev)
	case imagegc.Owner.Component:
		a.handleImageGCCompletion(r, ev)
	case eviction.Owner.Component:
		a.handleEvictionCompletion(id, ev)
	case plugins.Owner.Component, csi.Component, csi.DriverComponent, csi.ObjectOwner.Component,
		csi.SearchOwner.Component, volumestats.Component, scsi.Component, scsi.SearchOwner.Component:
		a.handleCSICompletion(id, r, ev)
	case lease.Owner.Component:
		s.Lease.HandleCompletion(s.Boot.Seed, r, ev, &a.effects)
	default:
		a.handleImageCompletion(r, ev)
	}
	a.workOn(previous)
}

func (a *Agent) handlePodCompletion(id world.OpID, r op.Record, ev world.Event) {
	if p := a.state.Pods[r.Owner.Name]; p != nil {
		fallbacks := p.HTTPFallbacks
		p.HandleCompletion(id, r, ev, a.podEnvFor(p))
		a.indexCreated(p, ev.Body)
		a.noteDeviceMount(r, ev)
		if r.Call == "UpdateContainerResources" {
			a.retryResizes(triggerPodResized) // the pod may hold less now
		}
		a.state.Metrics.HTTPFallbacks += uint64(p.HTTPFallbacks - fallbacks)
	}
	if ev.Err != nil && !r.Refused { // nothing can have changed if it was not issued
		a.requestRelist(ev.Time)
	}
}

// planComponent calls the plan of one component and sets the component's timer to the time that the
// plan returns.
func (a *Agent) planComponent(key timer.Key) {
	s := &a.state
	previous := a.workOn(a.podOfKey(key))
	var wake time.Time
	switch key.Component {
	case pod.Component:
		if p := s.Pods[key.Name]; p != nil {
			wake = a.planPod(p)
		}
	case pleg.Owner.Component:
		wake = s.Relist.Plan(&s.EventStream, &a.effects)
	case pleg.StreamOwner.Component:
		wake = s.EventStream.Plan(&a.effects)
	case manifest.Owner.Component:
		wake = s.Manifests.Plan(key, &a.effects)
	case runtime.Owner.Component:
		wake = a.planRuntime(key)
	case poddirs.Owner.Component:
		wake = s.PodDirs.Plan(&a.effects)
	case qos.Owner.Component:
		wake = a.planQOS()
	case allocation.Component:
		wake = s.Allocation.Plan(key, &a.effects)
	case resizeOwner.Component:
		wake = a.planResizes()
	case housekeeping.Owner.Component, devicemount.Owner.Component:
		wake = a.planCleanup(key)
	case logs.Owner.Component:
		wake = a.planLogs(key)
	case hostfile.Component:
		wake = a.hostFile(key).Plan(&a.effects)
	case objectcache.Component:
		wake = s.Objects.Plan(key, &a.effects)
	case statuswriter.Component:
		wake = a.planStatus(key.Name)
	case mirror.Component:
		wake = a.planMirror(key.Name)
	case nodeobject.Owner.Component, nodeobject.OOMOwner.Component,
		nodeobject.CertificatesOwner.Component:
		wake = a.planNode(key)
	case machine.Owner.Component:
		wake = s.Machine.Plan(&a.effects)
	case shutdown.Owner.Component:
		wake = a.planShutdown()
	case imagegc.Owner.Component:
		wake = a.planImageGC()
	case containergc.Owner.Component:
		wake = s.ContainerGC.Plan(a.containerGCEnv())
	case eviction.Owner.Component:
		wake = s.Eviction.Plan(a.evictionEnv())
	case plugins.Owner.Component, csi.Component, csi.DriverComponent, csi.ObjectOwner.Component,
		csi.SearchOwner.Component, scsi.Component, scsi.SearchOwner.Component:
		wake = a.planCSI(key)
	case volumestats.Component:
		wake = a.planVolumeStats(key.Name)
	case lease.Owner.Component:
		wake = a.planLease()
	case admissionOwner.Component:
		a.planAdmission()
	case apiPodsOwner.Component:
		wake = a.planAPIPods(s.Now)
	case setAsideOwner.Component:
		wake = a.planSetAside(s.Now)
	default:
		wake = a.planImages(key)
	}
	s.Timers.Set(key, wake)
	a.workOn(previous)
}
