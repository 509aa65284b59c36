package scsi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The sessions and disks of the kernel.

// Node returns the node of a disk, which its devices are links to.
func Node(target string, lun int32) string {
	kind := "fc"
	if strings.HasPrefix(target, "iqn.") {
		kind = "iscsi"
	}
	return fmt.Sprintf("/dev/%s/%s-lun-%d", kind, target, lun)
}

func (i *Initiator) add(kind truth.Kind, source, path, newPath, cause string) {
	i.opts.Truth.Add(truth.Fact{Time: i.opts.Agenda.Now(), Kind: kind, Source: source, Path: path,
		NewPath: newPath, Cause: cause})
}

// open opens a session, unless it exists or its target has gone.
func (i *Initiator) open(name sessionName) {
	t := i.answers(name.portal)
	if i.sessions[name] != nil || t == nil || t.Name != name.target {
		return
	}
	i.hosts++
	i.sessions[name] = &session{sessionName: name, host: i.hosts, disks: map[int32]world.BlockDevice{}}
	i.add(truth.SessionOpened, name.target, name.portal, name.iface, "")
}

// close closes a session, with its disks.
func (i *Initiator) close(s *session, cause string) {
	delete(i.sessions, s.sessionName)
	for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
		i.drop(s, lun, cause)
	}
	i.add(truth.SessionClosed, s.target, s.portal, s.iface, cause)
}

// sorted returns the sessions, by their hosts.
func (i *Initiator) sorted() []*session {
	return slices.SortedFunc(maps.Values(i.sessions), func(x, y *session) int {
		return cmp.Compare(x.host, y.host)
	})
}

// isMounted reports whether a disk of a session is mounted, or bound.
func (i *Initiator) isMounted(s *session) bool {
	for lun := range s.disks { //ordered: whether there is one
		if len(i.opts.Disk.MountsOf(Node(s.target, lun))) > 0 {
			return true
		}
	}
	return false
}

// scan has a disk appear, some time later.
func (i *Initiator) scan(c *wire.Call, m *world.ScanSCSIHost) {
	for _, s := range i.sorted() {
		if s.host != m.Host {
			continue
		}
		i.appearLater(c, s, m.LUN, "")
	}
}

// appear gives a session a disk.
func (i *Initiator) appear(s *session, lun int32, cause string) {
	if i.known[s.target] == nil {
		i.known[s.target] = map[int32]bool{}
	}
	i.known[s.target][lun] = true
	node := Node(s.target, lun)
	u := i.units[node]
	if u == nil {
		u = &unit{paths: map[*session]bool{}}
		i.units[node] = u
		i.opts.Disk.CreateSpecial(node, world.PathBlockDevice)
	}
	u.paths[s] = true
	s.disks[lun] = i.makeDevice(node, diskPath)
	i.add(truth.DiskAppeared, node, s.disks[lun].Path, "", cause)
	if s.iface == fcIface {
		i.linkLater(s, lun)
	}
	if i.hasMultipath(s) && len(u.paths) > 1 && u.multipath.Path == "" && !i.isClaimed(s, u) {
		u.multipath = i.makeDevice(node, func(n int) string { return fmt.Sprintf("/dev/dm-%d", n) })
	}
}

// isClaimed reports whether a path of fibre channel to a logical unit is mounted by itself:
// multipathd cannot have it then.
func (i *Initiator) isClaimed(s *session, u *unit) bool {
	for path := range u.paths { //ordered: whether there is one
		for lun, device := range path.disks { //ordered: whether there is one
			if s.iface == fcIface && i.units[Node(path.target, lun)] == u &&
				i.opts.Disk.IsOpen(device.Path) {
				return true
			}
		}
	}
	return false
}

// makeDevice gives a device the first path that is free: no device has it, and none that has gone
// is mounted by it.
func (i *Initiator) makeDevice(node string, pathOf func(n int) string) world.BlockDevice {
	i.devices++
	n := 0
	for i.taken[pathOf(n)] || i.opts.Disk.IsOpen(pathOf(n)) {
		n++
	}
	device := world.BlockDevice{Path: pathOf(n), Sequence: i.devices}
	i.taken[device.Path] = true
	i.opts.Disk.LinkDevice(device.Path, node, device.Sequence)
	return device
}

func (i *Initiator) removeDevice(device world.BlockDevice) {
	delete(i.taken, device.Path)
	i.opts.Disk.Remove(device.Path)
}

// diskPath returns the path of a disk: /dev/sdb is the first one, as the node boots from /dev/sda.
func diskPath(n int) string {
	letters := ""
	for n++; n >= 0; n = n/26 - 1 {
		letters = string(rune('a'+n%26)) + letters
	}
	return "/dev/sd" + letters
}

// drop removes a disk of a session.
func (i *Initiator) drop(s *session, lun int32, cause string) {
	node, device := Node(s.target, lun), s.disks[lun]
	delete(s.disks, lun)
	i.removeDevice(device)
	i.add(truth.DiskRemoved, node, device.Path, "", cause)
	if s.iface == fcIface {
		i.unlinkLater(s, lun, device)
	}
	u := i.units[node]
	if delete(u.paths, s); len(u.paths) == 0 {
		delete(i.units, node)
		i.opts.Disk.Remove(node)
		i.removeDevice(u.multipath)
	}
}

// find returns the paths to a logical unit. Those of fibre channel are its disks.
func (i *Initiator) find(m *world.FindSCSIDisks) *world.SCSIDisksFound {
	found := &world.SCSIDisksFound{}
	paths, unitLUN := i.pathsTo(&m.Unit)
	for _, s := range paths {
		is := world.SCSIPath{Host: s.host, Portals: []string{s.portal}, Iface: s.iface,
			Device: s.disks[unitLUN], WWID: wwid(s.target, unitLUN)}
		for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
			numbers := []string{disk.DeviceNumber(s.disks[lun].Path)}
			if joined := i.units[Node(s.target, lun)].multipath; joined.Path != "" {
				numbers = append(numbers, disk.DeviceNumber(joined.Path))
			}
			if is.OfAny = append(is.OfAny, numbers...); lun == unitLUN {
				is.Present = true
				is.OfDisk, is.Multipath = numbers, i.units[Node(s.target, lun)].multipath
			}
		}
		found.Paths = append(found.Paths, is)
	}
	return found
}

// remove removes the disks of a logical unit, unless it is mounted or bound. Of fibre channel,
// those go that are named.
func (i *Initiator) remove(c *wire.Call, m *world.RemoveSCSIDisks) {
	var paths []sessionDisk
	for _, s := range i.sorted() {
		for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
			if s.target == m.Unit.Target && lun == m.Unit.LUN || m.Unit.Target == "" &&
				slices.ContainsFunc(m.Devices, func(device world.BlockDevice) bool {
					return device.Path == s.disks[lun].Path
				}) {
				paths = append(paths, sessionDisk{s, lun})
			}
		}
	}
	for _, p := range paths {
		has := p.session.disks[p.lun]
		if at := i.opts.Disk.UsersOf(Node(p.session.target, p.lun)); len(at) > 0 {
			c.Fail(world.Errorf(world.KindRefused, c.Name, "the disk is in use at %s", at[0]))
			return
		}
		if m.Unit.Target == "" && !slices.Contains(m.Devices, has) {
			c.Fail(world.Errorf(world.KindRefused, c.Name, "another disk is at %s", has.Path))
			return
		}
	}
	for _, p := range paths {
		if p.session.disks[p.lun].Path != "" {
			i.drop(p.session, p.lun, "")
		}
	}
	c.Reply(&world.Done{})
}

// sessionDisk is a disk of a session.
type sessionDisk struct {
	session *session
	lun     int32
}

// diskTakes returns how long a disk of a session takes to appear at most.
func (i *Initiator) diskTakes(s *session) time.Duration {
	t, a := i.targetOf(s.target), i.arrayOf(s)
	switch {
	case i.healed:
	case a != nil:
		return time.Duration(a.DiskTakes)
	case t != nil:
		return time.Duration(t.DiskTakes)
	}
	return 0
}

// hasMultipath reports whether multipathd joins the disks of a session with those of others.
func (i *Initiator) hasMultipath(s *session) bool {
	t, a := i.targetOf(s.target), i.arrayOf(s)
	return a != nil && a.Multipath || t != nil && t.Multipath
}
