package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Pending is a write as long as it may still take effect: it is in flight, or its outcome is not
// known and the object is the one that it was made for. The version of that object is the
// precondition of the write, so that it never takes effect once the object has changed: the status
// is written to have that. A read that does not show the write proves nothing, as a request may be
// delayed.
type Pending struct {
	Version string `json:"version,omitempty"` // of the object
	Unknown bool   `json:"unknown,omitempty"` // a write has ended with unknown outcome
}

// InUse are the volumes in use by a pending write that changes them.
type InUse struct {
	Pending
	Names []v1.UniqueVolumeName `json:"names,omitempty"` // sorted
}

// DriverWrite are the drivers whose labels and annotations pending writes to one version change.
type DriverWrite struct {
	Pending
	Drivers []string `json:"drivers"`
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

// IsWritingDriver reports whether a pending write changes what the object has of a driver.
func (n *Node) IsWritingDriver(driver string) bool {
	return n.DriverWrite != nil && slices.Contains(n.DriverWrite.Drivers, driver)
}

// noteInUse is called before a write of other volumes in use to the known object. If an earlier
// write to the same version is unknown, either may take effect.
func (n *Node) noteInUse(names []v1.UniqueVolumeName) {
	if n.InUse == nil {
		n.InUse = &InUse{Names: names, Pending: Pending{Version: n.Object.ResourceVersion}}
		return
	}
	isTakenBack := func(name v1.UniqueVolumeName) bool {
		_, isNamed := slices.BinarySearch(names, name)
		return !isNamed
	}
	n.InUse.Names = slices.DeleteFunc(slices.Clone(n.InUse.Names), isTakenBack)
}

// noteDriver is called before a write of the labels and annotations of a driver to the known
// object.
func (n *Node) noteDriver(driver string) {
	if n.DriverWrite == nil {
		n.DriverWrite = &DriverWrite{Pending: Pending{Version: n.Object.ResourceVersion}}
	}
	if !n.IsWritingDriver(driver) {
		n.DriverWrite.Drivers = append(slices.Clone(n.DriverWrite.Drivers), driver)
	}
}

// settlePending forgets the writes that can no longer take effect.
func (n *Node) settlePending() {
	if n.InUse != nil && n.isOver(n.InUse.Pending) {
		n.InUse = nil
	}
	if n.DriverWrite != nil && n.isOver(n.DriverWrite.Pending) {
		n.DriverWrite = nil
	}
}

// hasPending reports whether a write may still take effect.
func (n *Node) hasPending() bool { return n.InUse != nil || n.DriverWrite != nil }

// isOver reports whether the object is another one than that of a write.
func (n *Node) isOver(p Pending) bool {
	return n.ObjectKnown && (n.Object == nil || n.Object.ResourceVersion != p.Version)
}

// failPending is called when a write of a part of the object has failed.
func (n *Node) failPending(r op.Record, err *world.Error) {
	switch {
	case r.Subject == statusPart && n.InUse != nil && !n.InUse.staysAfter(err):
		n.InUse = nil
	case DriverOf(r) != "" && n.DriverWrite != nil && !n.DriverWrite.staysAfter(err):
		n.DriverWrite = nil
	}
}

// staysAfter reports whether a write may still take effect after an error, and notes that. One that
// has changed nothing takes no effect later, but an earlier one to the same version may.
func (p *Pending) staysAfter(err *world.Error) bool {
	p.Unknown = p.Unknown || err.IsUnknown()
	return p.Unknown
}
