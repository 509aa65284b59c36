package core

import (
	"time"

	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// noteDeviceMount records what the completion of a pod's operation means for the devices of local
// volumes.
func (a *Agent) noteDeviceMount(r op.Record, ev world.Event) {
	devices := &a.state.Devices
	switch {
	case r.Call == "MountDevice" && ev.Err != nil && ev.Err.Kind == world.KindTimeout:
		devices.NoteLateMount(ev.Time)
		a.queue.enqueue(devicemount.Owner)
	case r.Call == "MountDevice": // also after a failure
		devices.NoteMount()
	case r.Call == "Unmount" && ev.Err == nil && devices.NoteUnmount():
		a.queue.enqueue(devicemount.Owner)
	}
	if r.Call == "Unmount" && ev.Err == nil {
		a.noteUnmounted()
	}
}

// planCleanup plans housekeeping or the removal of devices: neither removes anything before
// everything was listed.
func (a *Agent) planCleanup(key timer.Key) time.Time {
	s := &a.state
	switch {
	case key == devicemount.BlocksOwner: // those of pods that have ended need no list
		return s.Blocks.Plan(a.blocksEnv())
	case !a.hasListedEverything() || !a.hasListedExistingPods():
		return time.Time{}
	case key == devicemount.Owner:
		return s.Devices.Plan(a.needsDevice, &a.effects)
	default:
		return s.Housekeeping.Plan(a.housekeepingEnv(), &a.effects)
	}
}

// needsDevice reports whether a known pod has a volume whose device is mounted. A pod that is set
// aside may need any.
func (a *Agent) needsDevice(volume string) bool {
	if len(a.state.SetAside) > 0 {
		return true
	}
	for _, p := range a.state.Pods { //ordered: whether there is one
		if p.NeedsVolume(volume) {
			return true
		}
	}
	return false
}

// podDevices returns where pods find the devices of local volumes that containers get. Without an
// API server there are no claims.
func (a *Agent) podDevices() pod.Devices {
	if !a.state.HasAPIServer {
		return pod.Devices{}
	}
	return pod.Devices{Blocks: &a.state.Blocks, Enqueue: a.enqueueBlocks}
}

// enqueueBlocks plans these devices, if there is anything to plan.
func (a *Agent) enqueueBlocks() {
	if a.state.Blocks.IsActive() {
		a.queue.enqueue(devicemount.BlocksOwner)
	}
}

func (a *Agent) blocksEnv() *devicemount.BlocksEnv {
	return &devicemount.BlocksEnv{Effects: &a.effects,
		CleansUp:   a.hasListedEverything() && a.hasListedExistingPods(),
		IsKnownPod: a.housekeepingEnv().IsKnownPod, EnqueuePod: a.enqueueKnownPod}
}

// handleDeviceCompletion handles the completion of an operation on devices of local volumes.
func (a *Agent) handleDeviceCompletion(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	if r.Owner == devicemount.BlocksOwner {
		s.Blocks.HandleCompletion(id, r, ev, a.blocksEnv())
		return
	}
	if listed, isTable := ev.Body.(*world.MountsListed); isTable && ev.Err == nil && s.HasAPIServer {
		s.Blocks.NoteMounts(listed.Mounts, a.enqueueKnownPod)
		a.enqueueBlocks()
	}
	s.Devices.HandleCompletion(r, ev, &a.effects)
}

// holdsVolumes reports whether something outside of the directory of a pod is, or may be, set up
// for it, which the directory names.
func (a *Agent) holdsVolumes(uid string) bool {
	return a.state.CSI.HoldsPod(uid) || a.state.HasAPIServer && a.state.Blocks.Holds(uid) ||
		a.state.SCSI.Holds(uid)
}
