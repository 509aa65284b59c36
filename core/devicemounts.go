package core

import (
	"time"

	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// noteDeviceMount records what the completion of a pod's operation means for the devices of local
// volumes.
func (a *Agent) noteDeviceMount(r op.Record, ev world.Event) {
	devices := &a.state.Devices
	switch {
	case r.Call == "MountDevice": // also after a failure
		devices.NoteMount()
	case r.Call == "Unmount" && ev.Err == nil && devices.NoteUnmount():
		a.queue.enqueue(devicemount.Owner)
	}
}

// planDevices plans the mounts of devices, once nothing is unknown that may need one.
func (a *Agent) planDevices() time.Time {
	if !a.hasListedEverything() || !a.hasListedExistingPods() {
		return time.Time{}
	}
	return a.state.Devices.Plan(a.needsDevice, &a.effects)
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
