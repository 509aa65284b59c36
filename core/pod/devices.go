package pod

import (
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/volume"
)

// The devices of local volumes that containers of the pod have. Package devicemount takes them from
// the pod, as another agent may have set them up.

// Devices is where a pod finds these devices.
type Devices struct {
	Blocks  *devicemount.Blocks
	Enqueue func() // plans them
}

// releaseDevices takes back what the pod needs of these devices, and reports whether the pod has to
// wait because one is, or may be, bound for it. A pod of which no spec is known waits for those
// that are known.
func (p *Pod) releaseDevices(env *Env) (waits bool) {
	if env.Devices.Blocks == nil ||
		p.Spec != nil && !p.Storage.Volumes.MayHaveDevice(p.Spec, volume.LocalPlugin) {
		return false
	}
	waits = env.Devices.Blocks.Release(p.UID, p.Spec != nil)
	env.Devices.Enqueue()
	return waits
}
