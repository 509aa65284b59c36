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
	// Released is set once the pod needs the device no more.
	Released bool `json:"released,omitempty"`
	// Mounted is set if the search has found it bound.
	Mounted bool    `json:"mounted,omitempty"`
	Removal Removal `json:"removal,omitzero"`
}

// Removal is how far a device is taken from a pod.
type Removal struct {
	Op        world.OpID        `json:"op,omitempty"`
	StepsDone int               `json:"stepsDone,omitempty"`
	Attempts  volumeop.Attempts `json:"attempts,omitzero"`
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
		body := [removalSteps]any{
			// All of the pod's links: it has released all its devices.
			&world.RemoveTree{Path: linksDir(n.PodsDir+"/"+uid, &d.Source)},
			&world.ReleaseDevice{Path: at}, &world.Unmount{Path: at}, &world.RemoveTree{Path: at},
		}[b.Removal.StepsDone]
		d.Op = env.Effects.IssueFor(cmp.Or(uid, d.User), DiskKey(d.Name), subjectBound+"/"+uid, fsTimeout,
			body)
		b.Removal.Op = d.Op
		return true
	}
	return false
}

// removalSteps is the number of operations that take a device from a pod. A mount is busy as long
// as the device is kept open, and its file goes last: it is what the next agent finds.
const removalSteps = 4

// isNeeded reports whether a pod needs a device. One that was found is needed for as long as its
// pod is known or may become known.
func (n *Node) isNeeded(uid string, b *Bound, env *Env) bool {
	return !b.Released && (!env.CleansUp || env.IsKnownPod(uid))
}

// handleBound applies the completion of an operation of planBound.
func (n *Node) handleBound(d *Disk, uid string, ev world.Event, env *Env) {
	b := d.Bound[uid]
	if b == nil {
		return
	}
	b.Removal.Op = 0
	switch {
	case ev.Err != nil:
		b.Removal.StepsDone = 0
		if b.Removal.Attempts.Fail(ev.Time, ev.Err.Message); b.Removal.Attempts.Failures == 1 {
			env.Effects.Log(world.LevelWarning, "Failed to take a device from a pod", "podUID", uid,
				"disk", d.Name, "err", ev.Err.Message)
		}
	case n.isNeeded(uid, b, env): // by a pod that has come back meanwhile
		b.Removal = Removal{}
	default:
		if b.Removal.StepsDone++; b.Removal.StepsDone < removalSteps {
			return
		}
		delete(d.Bound, uid)
		n.dropOwner(d, uid)
		if env.IsKnownPod(uid) {
			env.EnqueuePod(uid)
		}
	}
}
