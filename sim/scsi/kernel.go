package scsi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The sessions and disks of the kernel.

// Node returns the node of a disk, which its devices are links to.
func Node(target string, lun int32) string {
	return fmt.Sprintf("/dev/iscsi/%s-lun-%d", target, lun)
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
	i.sessions[name] = &session{sessionName: name, host: i.hosts, disks: map[int32]string{}}
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
		takes := c.DurationBetween(0, max(1, 1+i.diskTakes(s.target)))
		i.opts.Agenda.After(takes, func() {
			if i.sessions[s.sessionName] == s && s.disks[m.LUN] == "" {
				i.appear(s, m.LUN)
			}
		})
	}
}

func (i *Initiator) appear(s *session, lun int32) {
	i.names++
	node, device := Node(s.target, lun), fmt.Sprintf("/dev/sdx%d", i.names)
	if i.disks[node] == nil {
		i.disks[node] = map[*session]bool{}
		i.opts.Disk.CreateSpecial(node, world.PathBlockDevice)
	}
	i.disks[node][s] = true
	s.disks[lun] = device
	i.opts.Disk.Link(device, node)
	i.add(truth.DiskAppeared, node, device, "", "")
}

// drop removes a disk of a session.
func (i *Initiator) drop(s *session, lun int32, cause string) {
	node, device := Node(s.target, lun), s.disks[lun]
	delete(s.disks, lun)
	i.opts.Disk.Remove(device)
	i.add(truth.DiskRemoved, node, device, "", cause)
	if delete(i.disks[node], s); len(i.disks[node]) == 0 {
		delete(i.disks, node)
		i.opts.Disk.Remove(node)
		i.opts.Disk.Remove(multipathOf(node))
	}
}

// multipathOf returns the device that joins the disks of a node.
func multipathOf(node string) string {
	h := uint32(2166136261)
	for n := range len(node) {
		h = (h ^ uint32(node[n])) * 16777619
	}
	return fmt.Sprintf("/dev/dm-%d", h)
}

// find returns the sessions of a target.
func (i *Initiator) find(m *world.FindISCSIDisks) *world.ISCSIDisksFound {
	found := &world.ISCSIDisksFound{}
	t := i.targetOf(m.Target)
	for _, s := range i.sorted() {
		if s.target != m.Target {
			continue
		}
		is := world.ISCSISession{Host: s.host, Portals: []string{s.portal}, Iface: s.iface,
			Device: s.disks[m.LUN]}
		for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
			is.OfAny = append(is.OfAny, "device "+Node(s.target, lun))
		}
		if node := Node(m.Target, m.LUN); is.Device != "" {
			is.OfDisk = []string{"device " + node}
			if t != nil && t.Multipath && len(i.disks[node]) > 1 {
				is.Multipath = multipathOf(node)
				if !i.opts.Disk.Exists(is.Multipath) {
					i.opts.Disk.Link(is.Multipath, node)
				}
			}
		}
		found.Sessions = append(found.Sessions, is)
	}
	return found
}

// remove removes the disks of a logical unit, unless it is mounted.
func (i *Initiator) remove(c *wire.Call, m *world.RemoveISCSIDisks) {
	if at := i.opts.Disk.MountsOf(Node(m.Target, m.LUN)); len(at) > 0 {
		c.Fail(world.Errorf(world.KindRefused, c.Name, "the disk is in use at %s", at[0]))
		return
	}
	for _, s := range i.sorted() {
		if s.target == m.Target && s.disks[m.LUN] != "" {
			i.drop(s, m.LUN, "")
		}
	}
	c.Reply(&world.Done{})
}

// diskTakes returns how long a disk of a target takes to appear at most.
func (i *Initiator) diskTakes(target string) time.Duration {
	if t := i.targetOf(target); t != nil && !i.healed {
		return time.Duration(t.DiskTakes)
	}
	return 0
}
