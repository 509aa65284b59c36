package scsi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Disks of fibre channel. A path of the node to a port of an array is a session without a
// login: it is there until it is lost, and again after that. Its disks appear after a scan, or
// when it is back. Of the names of a disk, the kernel has one, and udev makes links by the other.

// fcIface is the interface of such sessions.
const fcIface = "fc"

// addArrays adds the paths to all arrays.
func (i *Initiator) addArrays() {
	if i.opts.FC == nil {
		return
	}
	for n := range i.opts.FC.Arrays {
		a := &i.opts.FC.Arrays[n]
		for _, wwn := range a.WWNs {
			i.hosts++
			name := sessionName{a.WWNs[0], wwn, fcIface}
			i.sessions[name] = &session{sessionName: name, host: i.hosts,
				disks: map[int32]world.BlockDevice{}}
		}
		if a.LostFor > 0 {
			s := i.sessions[sessionName{a.WWNs[0], a.WWNs[0], fcIface}]
			i.opts.Agenda.After(time.Duration(a.LostAt), func() { i.losePath(s) })
			i.opts.Agenda.After(time.Duration(a.LostAt+a.LostFor), func() { i.regainPath(s) })
		}
	}
}

// arrayOf returns the array of a session; nil if it is none of fibre channel.
func (i *Initiator) arrayOf(s *session) *plan.FCArray {
	for n := range i.fcArrays() {
		if a := &i.opts.FC.Arrays[n]; s.iface == fcIface && a.WWNs[0] == s.target {
			return a
		}
	}
	return nil
}

func (i *Initiator) fcArrays() []plan.FCArray {
	if i.opts.FC == nil {
		return nil
	}
	return i.opts.FC.Arrays
}

// losePath removes the disks of a path, whatever has them.
func (i *Initiator) losePath(s *session) {
	if i.healed {
		return
	}
	s.isLost = true
	for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
		s.lost = append(s.lost, lun)
		i.drop(s, lun, truth.CauseLost)
	}
}

// regainPath has the disks of a path appear again.
func (i *Initiator) regainPath(s *session) {
	if !s.isLost {
		return
	}
	s.isLost = false
	for _, lun := range s.lost {
		i.appear(s, lun, truth.CauseUnasked)
	}
	s.lost = nil
}

// pathsTo returns the sessions by which the node may have a logical unit of iSCSI, or those by
// which it has disks of fibre channel, and its LUN. What a volume says leads to a disk, and that to
// all paths of the same disk: a port that a volume names only while it has the disk, a name of udev
// only while there is a link, and what the kernel names the disk, or has mounted, always.
func (i *Initiator) pathsTo(unit *world.LogicalUnit) (found []*session, lun int32) {
	if unit.Target != "" {
		for _, s := range i.sorted() {
			if s.target == unit.Target {
				found = append(found, s)
			}
		}
		return found, unit.LUN
	}
	node := ""
	for _, s := range i.sorted() {
		for _, l := range slices.Sorted(maps.Keys(s.disks)) {
			if s.iface == fcIface && i.leadsTo(unit, s, l) {
				node, lun = Node(s.target, l), l
			}
		}
	}
	for _, s := range i.sorted() {
		if s.disks[lun].Path != "" && Node(s.target, lun) == node {
			found = append(found, s)
		}
	}
	return found, lun
}

// leadsTo reports whether what a volume says leads to the disk of a session.
func (i *Initiator) leadsTo(unit *world.LogicalUnit, s *session, lun int32) bool {
	device, joined := s.disks[lun], i.units[Node(s.target, lun)].multipath
	numbers := []string{disk.DeviceNumber(device.Path), disk.DeviceNumber(joined.Path)}
	links := i.links[plan.FCSerialName(s.target, lun)]
	return lun == unit.LUN && slices.Contains(unit.WWNs, s.portal) ||
		slices.Contains(unit.WWIDs, plan.FCDiskName(s.target, lun)) ||
		slices.Contains(unit.IDs, wwid(s.target, lun)) ||
		unit.Mounted != "" && slices.Contains(numbers, unit.Mounted) ||
		slices.Contains(unit.WWIDs, plan.FCSerialName(s.target, lun)) && len(links) > 0 &&
			links[0] == device
}

// linkLater has udev make the link to a disk, some time later. Of several paths, the link leads to
// the first one that was there, and to the next one when that has gone.
func (i *Initiator) linkLater(s *session, lun int32) {
	name, device := plan.FCSerialName(s.target, lun), s.disks[lun]
	i.after(i.linkTakes(s), func() {
		if s.disks[lun] == device {
			i.links[name] = append(i.links[name], device)
		}
	})
}

// unlinkLater has udev remove the link to a disk that has gone, some time later. Until then it
// leads to what has the path by now; a caller can tell that by the sequence number.
func (i *Initiator) unlinkLater(s *session, lun int32, device world.BlockDevice) {
	name := plan.FCSerialName(s.target, lun)
	i.after(i.linkTakes(s), func() {
		i.links[name] = slices.DeleteFunc(i.links[name], func(d world.BlockDevice) bool {
			return d == device
		})
	})
}

// linkTakes draws how long udev takes for a disk.
func (i *Initiator) linkTakes(s *session) time.Duration {
	most := time.Duration(i.arrayOf(s).LinkTakes)
	if i.healed || most <= 0 {
		return 0
	}
	return time.Duration(i.udev.Int64N(int64(most)))
}

// wwid returns the kernel's name of a disk of an array; empty for one of a target of iSCSI.
func wwid(array string, lun int32) string {
	if strings.HasPrefix(array, "iqn.") {
		return ""
	}
	return "naa." + plan.FCDiskName(array, lun)[1:]
}

// fcLUNs is how many LUNs an array has.
const fcLUNs = 64

// scanAll has the disks of a logical unit appear, some time later: those of the ports that a volume
// names. If none of them is there, all others look for the LUN. A scan that cannot name a LUN
// brings all disks as well that there once were.
func (i *Initiator) scanAll(c *wire.Call, unit *world.LogicalUnit) {
	isNamed := func(s *session) bool { return slices.Contains(unit.WWNs, s.portal) && !s.isLost }
	anyNamed := slices.ContainsFunc(i.sorted(), isNamed)
	for _, s := range i.sorted() {
		switch {
		case s.iface != fcIface:
		case isNamed(s):
			i.appearLater(c, s, unit.LUN, "")
		case len(unit.WWNs) == 0:
			i.scanWhole(c, s, unit)
		case !anyNamed:
			i.appearLater(c, s, unit.LUN, truth.CauseUnasked)
		}
	}
}

// scanWhole has the disks of a session appear: the one that is looked for, and those that there
// once were.
func (i *Initiator) scanWhole(c *wire.Call, s *session, unit *world.LogicalUnit) {
	for lun := range int32(fcLUNs) {
		switch {
		case slices.Contains(unit.WWIDs, plan.FCDiskName(s.target, lun)),
			slices.Contains(unit.WWIDs, plan.FCSerialName(s.target, lun)):
			i.appearLater(c, s, lun, "")
		case i.known[s.target][lun]:
			i.appearLater(c, s, lun, truth.CauseUnasked)
		}
	}
}

func (i *Initiator) appearLater(c *wire.Call, s *session, lun int32, cause string) {
	takes := c.DurationBetween(0, max(1, 1+i.diskTakes(s)))
	i.after(takes, func() {
		if i.sessions[s.sessionName] == s && !s.isLost && s.disks[lun].Path == "" {
			i.appear(s, lun, cause)
		}
	})
}
