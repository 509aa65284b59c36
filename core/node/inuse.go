package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// InUse are the volumes in use by a write that changes them, as long as it may still take effect:
// it is in flight, or its outcome is not known and the object is the one that it was made for. The
// version of that object is the precondition of the write, so that it never takes effect once the
// object has changed. A read that does not show it proves nothing: a request may be delayed.
type InUse struct {
	Names   []v1.UniqueVolumeName `json:"names,omitempty"`   // sorted
	Version string                `json:"version,omitempty"` // of the object
	Unknown bool                  `json:"unknown,omitempty"` // a write has ended with unknown outcome
}

// KeepsInUse reports whether a volume that the object says is in use remains so for certain. A
// write that was planned before the volume was needed may be about to take that back: then the
// volume may be detached, whatever the object has said before. It may be that of an earlier agent,
// so the first status of this one is waited for.
func (n *Node) KeepsInUse(name v1.UniqueVolumeName) bool {
	if n.WrittenAt.IsZero() || n.InUse == nil {
		return !n.WrittenAt.IsZero()
	}
	_, isNamed := slices.BinarySearch(n.InUse.Names, name)
	return isNamed
}

// noteInUse is called before a write of other volumes in use to the known object. If an earlier
// write to the same version is unknown, either may take effect.
func (n *Node) noteInUse(names []v1.UniqueVolumeName) {
	if n.InUse == nil {
		n.InUse = &InUse{Names: names, Version: n.Object.ResourceVersion}
		return
	}
	isTakenBack := func(name v1.UniqueVolumeName) bool {
		_, isNamed := slices.BinarySearch(names, name)
		return !isNamed
	}
	n.InUse.Names = slices.DeleteFunc(slices.Clone(n.InUse.Names), isTakenBack)
}

// settleInUse forgets the volumes of a write that can no longer take effect.
func (n *Node) settleInUse() {
	if n.InUse != nil && n.ObjectKnown &&
		(n.Object == nil || n.Object.ResourceVersion != n.InUse.Version) {
		n.InUse = nil
	}
}

// failInUse is called when a write has failed.
func (n *Node) failInUse() {
	switch {
	case n.InUse == nil:
	case !n.ObjectKnown:
		n.InUse.Unknown = true
	case !n.InUse.Unknown: // the API server has refused it
		n.InUse = nil
	}
}
