package scsi

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Devices of disks of volumeMode Block. Their files are those of a kubelet (MapBlockVolume in
// pkg/volume/util), below the directory of the disk and that of the pod:
//
//	DISK/UID                                       the device is bound here, and kept open
//	pods/UID/volumeDevices/kubernetes.io~iscsi/PV  a link to it, which the runtime gets
//
// A pod sets its devices up itself (package volume). They are taken from it here, as those of local
// volumes are by package devicemount: the agent that ends the pod may not be the one that has
// started it.

// Bound is a device that may be bound for a pod.
type Bound struct {
	volumeop.BoundDevice
	// Mounted is set if the search has found it bound.
	Mounted bool `json:"mounted,omitempty"`
}

// note adds a device that may be bound for a pod.
func (n *Node) note(d *Disk, uid string) {
	if d.Bound == nil {
		d.Bound = map[string]*Bound{}
	}
	if d.Bound[uid] == nil {
		d.Bound[uid] = &Bound{}
		n.Owners.Add(uid, d.Name)
	}
	d.MayExist, d.Taken = true, d.Source.IsFC
}

// planBound issues the next operation that takes a device from a pod which does not need it, and
// reports whether it has.
func (n *Node) planBound(d *Disk, env *Env, wake *time.Time) bool {
	for _, uid := range slices.Sorted(maps.Keys(d.Bound)) {
		b := d.Bound[uid]
		if n.isNeeded(uid, b, env) || b.Removal.Attempts.IsWaiting(env.Effects.Now(), wake) {
			continue
		}
		at := n.path(d) + "/" + uid
		links := linksDir(n.PodsDir+"/"+uid, &d.Source) // all of the pod: it has released all devices
		d.Op = env.Effects.IssueFor(cmp.Or(uid, d.User), DiskKey(d.Name), subjectBound+"/"+uid, fsTimeout,
			b.NextStep(links, at))
		b.Removal.Op = d.Op
		return true
	}
	return false
}

// isNeeded reports whether a pod needs a device.
func (n *Node) isNeeded(uid string, b *Bound, env *Env) bool {
	return b.IsNeeded(uid, env.CleansUp, env.IsKnownPod)
}

// handleBound applies the completion of an operation of planBound.
func (n *Node) handleBound(d *Disk, uid string, ev world.Event, env *Env) {
	b := d.Bound[uid]
	if b == nil {
		return
	}
	isRemoved := b.EndStep(ev, n.isNeeded(uid, b, env), volumeop.BackoffFirst, volumeop.BackoffMax)
	if ev.Err != nil && b.Removal.Attempts.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "Failed to take a device from a pod", "podUID", uid,
			"disk", d.Name, "err", ev.Err.Message)
	}
	if !isRemoved {
		return
	}
	delete(d.Bound, uid)
	n.dropOwner(d, uid)
	if env.IsKnownPod(uid) {
		env.EnqueuePod(uid)
	}
}
