package scsi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Disks of fibre channel. A path of the node to a port of an array is a session without a
// login: it is there until it is lost, and again after that. Its disks appear after a scan, or
// when it is back.

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

// pathsTo returns the sessions by which the node may have a logical unit, and its LUN.
func (i *Initiator) pathsTo(unit *world.LogicalUnit) (found []*session, lun int32) {
	if unit.Target != "" {
		for _, s := range i.sorted() {
			if s.target == unit.Target {
				found = append(found, s)
			}
		}
		return found, unit.LUN
	}
	lun = unit.LUN
	array := ""
	for n := range i.fcArrays() {
		a := &i.opts.FC.Arrays[n]
		if slices.ContainsFunc(a.WWNs, func(w string) bool { return slices.Contains(unit.WWNs, w) }) {
			array = a.WWNs[0]
		}
		for l := range int32(fcLUNs) {
			if slices.Contains(unit.WWIDs, plan.FCDiskName(a.WWNs[0], l)) ||
				slices.Contains(unit.IDs, wwid(a.WWNs[0], l)) {
				array, lun = a.WWNs[0], l
			}
		}
	}
	for _, s := range i.sorted() {
		if s.iface == fcIface && s.target == array {
			found = append(found, s)
		}
	}
	return found, lun
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

// scanAll has the disks of a logical unit appear, some time later. A scan that cannot name a LUN
// brings all others as well that there once were.
func (i *Initiator) scanAll(c *wire.Call, unit *world.LogicalUnit) {
	paths, lun := i.pathsTo(unit)
	for _, s := range paths {
		i.appearLater(c, s, lun, "")
	}
	if len(unit.WWNs) > 0 {
		return
	}
	for _, s := range i.sorted() {
		for _, other := range slices.Sorted(maps.Keys(i.known[s.target])) {
			if s.iface == fcIface && !(slices.Contains(paths, s) && other == lun) {
				i.appearLater(c, s, other, truth.CauseUnasked)
			}
		}
	}
}

func (i *Initiator) appearLater(c *wire.Call, s *session, lun int32, cause string) {
	takes := c.DurationBetween(0, max(1, 1+i.diskTakes(s)))
	i.opts.Agenda.After(takes, func() {
		if i.sessions[s.sessionName] == s && !s.isLost && s.disks[lun].Path == "" {
			i.appear(s, lun, cause)
		}
	})
}
