package pod

import (
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/volume"
)

// The disks of the pod's volumes of the kinds iscsi and fc. Package scsi has their facts, as pods
// share them; the pod declares which it needs, and takes that back when it has ended.

// Disks is where a pod finds these disks.
type Disks struct {
	Node *scsi.Node
	// Enqueue plans a disk, by its name.
	Enqueue func(name string)
}

// useDisk declares that the pod uses a disk, and returns how far that is. A pod that ends declares
// none again.
func (p *Pod) useDisk(u scsi.Use, env *Env) scsi.UseState {
	if p.Stage != Syncing {
		return env.Disks.Node.UseStateOf(&u)
	}
	state, changed := env.Disks.Node.Use(u, env.Effects.Now())
	if changed {
		env.Disks.Enqueue(u.DiskName())
	}
	return state
}

// releaseDisks takes back what the pod needs of disks: their devices, for which it waits, and once
// it has unmounted its file systems, those of them.
func (p *Pod) releaseDisks(env *Env, hasUnmounted bool) (waits bool) {
	if env.Disks.Node == nil {
		return false
	}
	changed, held := env.Disks.Node.Release(p.UID, hasUnmounted)
	for _, name := range changed {
		env.Disks.Enqueue(name)
	}
	return held && (p.Spec == nil ||
		p.Storage.Volumes.MayHaveDevice(p.Spec, volume.ISCSIPlugin, volume.FCPlugin))
}
