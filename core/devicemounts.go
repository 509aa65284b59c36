package core

import (
	"time"

	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/op"
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
}

// planCleanup plans housekeeping or the removal of devices: neither removes anything before
// everything was listed.
func (a *Agent) planCleanup(key timer.Key) time.Time {
	s := &a.state
	switch {
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
