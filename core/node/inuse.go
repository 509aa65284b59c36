package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// InUse are the volumes in use by a status.
type InUse struct {
	Names []v1.UniqueVolumeName `json:"names,omitempty"`
}

// SaysInUse reports whether an object says, for certain, that a volume is in use. A write that was
// planned before the volume was needed may be about to take that back: then the volume may be
// detached, whatever the object has said before.
func (n *Node) SaysInUse(object *v1.Node, name v1.UniqueVolumeName) bool {
	return object != nil && slices.Contains(object.Status.VolumesInUse, name) &&
		(n.InUse == nil || slices.Contains(n.InUse.Names, name))
}

// settleInUse forgets the volumes of a status once it is known whether the object has it: by the
// answer to its write, or by a read after an unknown outcome.
func (n *Node) settleInUse(r op.Record, ev world.Event) {
	isRefused := ev.Err != nil && r.Call != "GetObject"
	if n.ObjectKnown && (ev.Err == nil || ev.Err.Has(world.KindNotFound) || isRefused) {
		n.InUse = nil
	}
}
