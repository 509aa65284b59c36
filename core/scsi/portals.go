package scsi

import (
	"net/netip"
	"slices"

	"seedlet.dev/core/budget"
)

// The portals of a disk of iSCSI (Source.Portals) are those of its uses, and those that are tried:
// until the disk is undone, something of them may be on the node. It is logged in to a portal only
// for a use that names it, iscsi.json names all of them before, and the disk is undone when all of
// them are dealt with. The authors of pods choose them, so a disk has a bounded number.

// checkPortals returns an error if a disk would have too many portals with those of a use. One that
// adds none fits in any case, and some are left to the volumes of administrators.
func (d *Disk) checkPortals(u *Use) error {
	added := 0
	for _, portal := range u.Source.Portals {
		if !slices.Contains(d.Source.Portals, portal) {
			added++
		}
	}
	item, most := budget.PortalsOfDisk, budget.PortalsOfDiskMax
	if u.Inline {
		item, most = budget.InlinePortalsOfDisk, budget.InlinePortalsOfDiskMax
	}
	if added == 0 || len(d.Source.Portals)+added <= most {
		return nil
	}
	return item.Errorf("iscsi.portals: the disk has %d portals of other volumes, and those of this "+
		"one can make it no more than %d", len(d.Source.Portals), most)
}

// addPortals notes the portals of a use. They are in the file before anything is done for them.
func (d *Disk) addPortals(portals []string) {
	for _, portal := range portals {
		if !slices.Contains(d.Source.Portals, portal) {
			d.Source.Portals = append(slices.Clip(d.Source.Portals), portal)
			if !slices.Contains(d.PortalsWritten, portal) {
				d.Written = d.Written && d.Mounted != ""
				d.Setup.DirMade = false // also if the file is being written
			}
		}
	}
}

// noteTried notes portals of which something may be on the node.
func (d *Disk) noteTried(portals ...string) {
	for _, portal := range portals {
		if !slices.Contains(d.Tried, portal) {
			d.Tried = append(slices.Clip(d.Tried), portal)
		}
	}
}

// dropPortals forgets the portals that no use needs any more, but for those that are tried, and the
// one that is in the name of the disk. The others keep their order, by which the disk is undone.
func (d *Disk) dropPortals() {
	if len(d.Source.Portals) <= 1 {
		return
	}
	kept := map[string]bool{d.Source.Portals[0]: true}
	for _, portal := range d.Tried {
		kept[portal] = true
	}
	for _, u := range d.Uses { //ordered: into a set
		for _, portal := range u.Source.Portals {
			kept[portal] = true
		}
	}
	d.Source.Portals = slices.DeleteFunc(slices.Clone(d.Source.Portals),
		func(portal string) bool { return !kept[portal] })
}

// takeOver has a disk that was found be what its first use says. The agent that has left it may
// have tried the portals of that use, besides those that it has written down.
func (d *Disk) takeOver(u *Use) {
	known := d.Source.Portals
	d.Source, d.Found = u.Source, false
	d.Source.Portals = known
	d.addPortals(u.Source.Portals)
	d.noteTried(u.Source.Portals...)
}

// adoptPortals takes over the portals that an earlier agent has written down for a disk that is
// used. The uses that have no room beside them are refused, as their pods see when planned.
func (n *Node) adoptPortals(d *Disk, written []string, env *Env) {
	d.Source.Portals = slices.Clone(written)
	d.noteTried(written...)
	for _, u := range d.sortedUses() {
		if d.checkPortals(u) == nil {
			d.addPortals(u.Source.Portals)
			continue
		}
		delete(d.Uses, u.target())
		n.dropOwner(d, u.UID)
		env.EnqueuePod(u.UID)
	}
}

// leaveSessions returns the portals of a disk whose sessions other disks may need, in the form of
// canonical, and leaves the sessions to those. A disk that is undone, and has dealt with a portal
// already, has left its session to this one.
func (n *Node) leaveSessions(d *Disk) (left map[string]bool) {
	own := map[string]bool{}
	for _, portal := range d.Source.Portals {
		own[canonical(portal)] = true
	}
	left = map[string]bool{}
	for _, o := range n.Disks { //ordered: each by itself
		if o == d || !o.MayExist || o.Source.Target != d.Source.Target ||
			o.Source.Iface != d.Source.Iface {
			continue
		}
		for _, portal := range o.Source.Portals[min(o.Undo.Portals, len(o.Source.Portals)):] {
			if key := canonical(portal); own[key] {
				left[key] = true
				o.noteTried(portal)
			}
		}
	}
	return left
}

// canonical returns a portal in the form that all ways to write its address have in common.
func canonical(portal string) string {
	if address, err := netip.ParseAddrPort(portal); err == nil {
		return address.String()
	}
	return portal
}

// samePortal reports whether two portals are the same, however their addresses are written.
func samePortal(x, y string) bool { return x == y || canonical(x) == canonical(y) }
