package scsi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// How a disk that no pod needs is taken from the node (DetachDisk and DetachBlockISCSIDisk
// upstream).

// Undo is how far a disk is undone since the last failure.
type Undo struct {
	TableSeen bool `json:"tableSeen,omitempty"` // nothing of it is mounted for a pod
	// Device is what is mounted at the global path. Identified is set once it was looked which disk of
	// fibre channel that is: after the unmount, its ports may not lead to it.
	Device     string `json:"device,omitempty"`
	Identified bool   `json:"identified,omitempty"`
	// Paths are the sessions with the target, or the disks of fibre channel, once that is known.
	Known    bool             `json:"known,omitempty"`
	Paths    []world.SCSIPath `json:"paths,omitempty"`
	LookedAt time.Time        `json:"lookedAt,omitzero"` // when that was asked for
	// Free is set once the mount table of the node was looked at after the unmount: nothing has the
	// disk mounted. Busy are the hosts of sessions of which something else is.
	Free    bool  `json:"free,omitempty"`
	Busy    []int `json:"busy,omitempty"`
	Removed bool  `json:"removed,omitempty"` // from the kernel
	// Portals is how many portals are dealt with, and LoggedOut whether the next one is logged out of.
	Portals   int  `json:"portals,omitempty"`
	LoggedOut bool `json:"loggedOut,omitempty"`
	IfaceGone bool `json:"ifaceGone,omitempty"`

	// IsInUse is set while something is mounted that the agent waits for.
	IsInUse  bool              `json:"isInUse,omitempty"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
}

// hasStarted reports whether anything may have been undone.
func (u *Undo) hasStarted() bool { return u.TableSeen }

// undo issues the next operation that undoes a disk, and returns when to plan again.
func (n *Node) undo(d *Disk, env *Env) time.Time {
	u, at := &d.Undo, n.path(d)
	switch {
	case !u.TableSeen:
		d.Setup.restart() // what was looked at is of a disk that is there
		d.issue(subjectUndo, fsTimeout, &world.ListMounts{Path: n.RootDir}, env)
	case d.isToIdentify():
		unit := d.unit()
		unit.Mounted = u.Device
		d.issue(subjectUndo, fsTimeout, &world.FindSCSIDisks{Unit: unit}, env)
	case d.Mounted != "":
		d.issueAt(at, subjectUndo, &world.Unmount{Path: at}, env)
	case !d.Source.IsFC && !d.Written && !d.DataRead:
		d.readData(at, subjectUndo, env)
	case !u.Known:
		n.find(d, subjectUndo, env)
	case !u.Free:
		d.issue(subjectUndo, fsTimeout, &world.ListMounts{Path: "/"}, env)
	case !u.Removed && n.hasUnknownSharer(d): // the sessions are looked at again then
		d.Undo = Undo{TableSeen: true, Attempts: u.Attempts}
		d.Undo.Attempts.NotBefore = env.Effects.Now().Add(listedPeriod)
		return d.Undo.Attempts.NotBefore
	case !u.Removed:
		if n.leaveToOthers(d) || !d.hasDisk() || d.Source.IsFC && !d.Taken {
			u.Removed, d.RemovedOnce = true, true
			return n.undo(d, env)
		}
		d.Session = allSessions
		m := &world.RemoveSCSIDisks{Unit: d.Source.unit()}
		if d.Source.IsFC {
			m.Devices = devicesOf(u.Paths)
		}
		d.issue(subjectUndo, removalTimeout, m, env)
	case u.Portals < len(d.Source.Portals):
		return n.logOut(d, env)
	case u.LookedAt.Before(timer.Later(d.LateUntil, d.ScanUntil)):
		// A session or a disk may still appear: all is looked at again then.
		d.Undo = Undo{Attempts: volumeop.Attempts{NotBefore: timer.Later(d.LateUntil, d.ScanUntil)}}
		return d.Undo.Attempts.NotBefore
	case !u.IfaceGone && d.Source.hasOwnIface():
		if n.sharesIface(d) {
			u.IfaceGone = true
			return n.undo(d, env)
		}
		d.command("", &world.RunISCSIAdm{Args: []string{"-m", "iface", "-I", d.Source.Iface, "-o",
			"delete"}}, subjectUndo, env)
	case d.Marked:
		d.issue(subjectUndo, fsTimeout, &world.RemoveTree{Path: n.markPath(d)}, env)
	default:
		d.Written, d.DataRead, d.PortalsWritten = false, true, nil // also if it fails
		d.issue(subjectUndo, fsTimeout, &world.RemoveTree{Path: at}, env)
	}
	return time.Time{}
}

// readData reads what an earlier agent has written of a disk. Only where nothing is mounted: what
// is in the disk is written by pods.
func (d *Disk) readData(at, subject string, env *Env) {
	d.issue(subject, fsTimeout, &world.ReadFiles{Path: at + "/" + dataFile, FilesMax: 1,
		BytesMax: dataMax}, env)
}

// sharesIface reports whether another disk needs the interface of a disk: inline volumes of one
// name and portal have the same. Of disks that are undone together the last one removes it.
func (n *Node) sharesIface(d *Disk) bool {
	for _, o := range n.Disks { //ordered: whether there is one
		if o != d && o.MayExist && o.Source.Iface == d.Source.Iface && !o.Undo.IfaceGone {
			return true
		}
	}
	return false
}

// hasDisk reports whether the kernel has the disk, be it without a block device.
func (d *Disk) hasDisk() bool {
	return slices.ContainsFunc(d.Undo.Paths, func(s world.SCSIPath) bool {
		return s.Present
	})
}

// isSameDisk reports whether another disk of the node is the same logical unit, by another way or
// in another mode. One that is undone as well has left it to this one once it has dealt with it.
func (d *Disk) isSameDisk(o *Disk) bool {
	return o != d && o.MayExist && !o.RemovedOnce && (d.overlaps(o) ||
		o.Source.sharesTarget(&d.Source) && o.Source.LUN == d.Source.LUN)
}

// hasSameDisk reports whether there is any such disk.
func (n *Node) hasSameDisk(d *Disk) bool {
	for _, o := range n.Disks { //ordered: whether there is one
		if d.isSameDisk(o) {
			return true
		}
	}
	return false
}

// leaveToOthers reports whether there is any such disk, and leaves the removal to them.
func (n *Node) leaveToOthers(d *Disk) (left bool) {
	for _, o := range n.Disks { //ordered: each by itself
		if d.isSameDisk(o) {
			o.Taken, left = o.Taken || o.Source.IsFC && d.Taken, true
		}
	}
	return left
}

// isToIdentify reports whether it is to be looked which disk is mounted.
func (d *Disk) isToIdentify() bool {
	return d.Source.IsFC && d.Mounted != "" && d.Undo.Device != "" && len(d.IDs) == 0 &&
		!d.Undo.Identified
}

// hasUnknownSharer reports whether another disk of the target was found of which only the first
// portal is known yet: its file is read once nothing is mounted there, or a pod says what it is.
func (n *Node) hasUnknownSharer(d *Disk) bool {
	for _, o := range n.Disks { //ordered: whether there is one
		if o != d && !o.Source.IsFC && o.Source.sharesTarget(&d.Source) && o.Found && !o.DataRead {
			return true
		}
	}
	return false
}

// logOut logs out of the session of the next portal that nothing else needs, and removes its
// record.
func (n *Node) logOut(d *Disk, env *Env) time.Time {
	u, left := &d.Undo, n.leaveSessions(d)
	for ; u.Portals < len(d.Source.Portals); u.Portals, u.LoggedOut = u.Portals+1, false {
		portal := d.Source.Portals[u.Portals]
		session := sessionOf(&d.Source, portal, u.Paths)
		if left[canonical(portal)] || session != nil && slices.Contains(u.Busy, session.Host) {
			continue
		}
		node := []string{"-m", "node", "-p", portal, "-T", d.Source.Target, "-I", d.Source.Iface}
		if !u.LoggedOut && session == nil {
			u.LoggedOut = true
		}
		if u.LoggedOut {
			d.command(portal, &world.RunISCSIAdm{Args: append(node, "-o", "delete")}, subjectUndo, env)
			return time.Time{}
		}
		env.Effects.Log(world.LevelInfo, "Logging out of an iSCSI target", "target", d.Source.Target,
			"portal", portal)
		d.command(portal, &world.RunISCSIAdm{Args: append(node, "--logout")}, subjectUndo, env)
		return time.Time{}
	}
	return n.undo(d, env)
}

// handleUndo applies the completion of an operation of undo. The state of Undo says which it was.
func (n *Node) handleUndo(d *Disk, r op.Record, ev world.Event, env *Env) {
	u := &d.Undo
	d.Session = ""
	if u.TableSeen && d.Mounted != "" && r.Call == "FindSCSIDisks" {
		d.identify(ev)
		return
	}
	ran, isRan := ev.Body.(*world.ISCSIAdmRan)
	switch {
	case isRan && ran.ExitCode != 0 && ran.ExitCode != world.ISCSINothingFound &&
		ran.ExitCode != world.ISCSISessionNotFound:
		ev.Err = world.Errorf(world.KindInternal, "RunISCSIAdm", "exit code %d: %s", ran.ExitCode,
			strings.TrimSpace(ran.Output))
	case ev.Err.Has(world.KindNotFound) && r.Call == "RunISCSIAdm" &&
		(u.LoggedOut || u.Portals == len(d.Source.Portals)):
		ev.Err = nil // without iscsiadm there are no records
	case ev.Err.Has(world.KindNotFound) && r.Call == "ReadFiles":
		ev.Err = nil // the agent has died before it has written it
	}
	if ev.Err != nil {
		d.failUndo(ev.Err.Message, env)
		return
	}
	switch {
	case !u.TableSeen:
		n.applyMounts(d, ev, env)
	case d.Mounted != "":
		d.Mounted, d.Label = "", ""
	case !d.Source.IsFC && !d.Written && !d.DataRead:
		n.applyData(d, ev, env)
	case !u.Known:
		if found, isFound := ev.Body.(*world.SCSIDisksFound); isFound {
			u.Known, u.Paths, u.LookedAt = true, d.ownPaths(found.Paths), r.IssuedAt
			d.noteFound(u.Paths)
		}
	case !u.Free:
		n.applyTable(d, ev, env)
	case !u.Removed:
		u.Removed, d.RemovedOnce, d.Detached = true, true, true
		env.ReportsInUse()
	case u.Portals < len(d.Source.Portals) && !u.LoggedOut:
		u.LoggedOut = true
	case u.Portals < len(d.Source.Portals):
		u.Portals, u.LoggedOut = u.Portals+1, false
	case !u.IfaceGone && d.Source.hasOwnIface():
		u.IfaceGone = true
	case d.Marked:
		d.Marked, d.Taken, d.MarkedID = false, false, ""
	default:
		d.MayExist, d.Undo, d.Setup, d.Tried = false, Undo{}, Setup{}, nil
		d.dropPortals()
	}
}

// failUndo begins the back-off after a failure. Everything has to be looked at again.
func (d *Disk) failUndo(problem string, env *Env) {
	a := d.Undo.Attempts
	if a.Fail(env.Effects.Now(), problem); a.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "A disk cannot be detached", "disk", d.Name, "err",
			a.Problem)
	}
	d.Undo = Undo{Attempts: a}
}

// waitForUnmount has a disk wait until what is mounted at a path has gone.
func (n *Node) waitForUnmount(d *Disk, problem string, env *Env) {
	d.failUndo(problem, env)
	d.Undo.IsInUse = true
	if n.InUse == nil {
		n.InUse = map[string]bool{}
	}
	n.InUse[d.Name] = true
}

// applyMounts applies the mount table of the kubelet's directories: as long as a pod has the file
// system of the disk, or a file of its directory is mounted, it stays.
func (n *Node) applyMounts(d *Disk, ev world.Event, env *Env) {
	listed, isList := ev.Body.(*world.MountsListed)
	if !isList {
		return
	}
	at, device := n.path(d), ""
	for i := range listed.Mounts {
		switch m := &listed.Mounts[i]; {
		case m.Path == at:
			d.Mounted, device, d.Taken = Uncertain, m.Device, d.Source.IsFC
			d.RemovedOnce, d.Detached = false, false // by a late request
		case d.Block && strings.HasPrefix(m.Path, at+"/"):
			n.note(d, strings.TrimPrefix(m.Path, at+"/"))
			return
		}
	}
	for i := range listed.Mounts {
		if m := &listed.Mounts[i]; device != "" && m.Device == device && m.Path != at &&
			!strings.HasPrefix(m.Path, n.Dir+"/") && !n.isOfOther(d, m.Path) {
			n.waitForUnmount(d, fmt.Sprintf("it is mounted at %s", m.Path), env)
			return
		}
	}
	d.Undo.TableSeen, d.Undo.Device = true, device
}

// isOfOther reports whether a pod has what is mounted at a path by another name of a disk of fibre
// channel: it has it from another global path, and keeps it when this one goes. A kubelet waits for
// such a pod, and so does a disk of iSCSI, whose session the other one may not know.
func (n *Node) isOfOther(d *Disk, at string) bool {
	if !d.Source.IsFC {
		return false
	}
	uid, _, isOfPod := strings.Cut(strings.TrimPrefix(at, n.PodsDir+"/"), "/")
	podDir := n.PodsDir + "/" + uid
	return isOfPod && slices.ContainsFunc(n.Owners[uid], func(name string) bool {
		o := n.Disks[name]
		return o != d && !o.Block && slices.ContainsFunc(o.sortedUses(), func(u *Use) bool {
			return u.UID == uid && (at == MountPath(podDir, u) ||
				strings.HasPrefix(at, volumeop.SubPathDir(podDir)+"/"+u.SpecName+"/"))
		})
	})
}

// applyData applies what an earlier agent has written of a disk. Its file can be missing or torn. A
// disk that is used is what its uses say, and has the sessions of both.
func (n *Node) applyData(d *Disk, ev world.Event, env *Env) {
	d.DataRead = true
	read, isRead := ev.Body.(*world.FilesRead)
	if !isRead || len(read.Files) != 1 {
		return
	}
	s, isSource := decodeSource(read.Files[0].Data)
	if !isSource || diskName(&s, d.Block) != d.Name {
		return
	}
	if !d.Found {
		n.adoptPortals(d, s.Portals, env)
		return
	}
	d.Source, d.Tried = s, s.Portals
}

// applyTable applies the mount table of the node, as it is after the unmount: no pod can get the
// disk from then on. A mount that is there was made by a request that came late, or by an
// administrator.
func (n *Node) applyTable(d *Disk, ev world.Event, env *Env) {
	listed, isList := ev.Body.(*world.MountsListed)
	if !isList {
		return
	}
	n.identifySharers(d, listed.Mounts)
	mounted := map[string]string{} // a path, by file system
	for i := range listed.Mounts {
		mounted[listed.Mounts[i].Device] = listed.Mounts[i].Path
	}
	d.Undo.Busy = nil
	for i := range d.Undo.Paths {
		s := &d.Undo.Paths[i]
		for _, number := range s.OfDisk {
			if at := mounted[number]; at != "" && !n.hasSameDisk(d) && (d.Taken || !d.Source.IsFC) {
				n.waitForUnmount(d, fmt.Sprintf("%s is mounted at %s", s.Device.Path, at), env)
				return
			}
		}
		isMounted := func(number string) bool { return mounted[number] != "" }
		if s.UsedBy != "" || slices.ContainsFunc(s.OfAny, isMounted) {
			d.Undo.Busy = append(d.Undo.Busy, s.Host)
		}
	}
	d.Undo.Free = true
}

// identifySharers notes which disk those are that an earlier agent has mounted, and that this one
// has not looked for yet: the same one as another that was just found, if its device is mounted.
func (n *Node) identifySharers(d *Disk, mounts []world.Mount) {
	if !d.Source.IsFC {
		return
	}
	for i := range mounts {
		o := n.Disks[strings.TrimPrefix(mounts[i].Path, n.Dir+"/")]
		at := slices.IndexFunc(d.Undo.Paths, func(p world.SCSIPath) bool {
			return slices.Contains(p.OfDisk, mounts[i].Device)
		})
		if at >= 0 && o != nil && o != d && o.Source.IsFC && len(o.IDs)+len(o.Devices) == 0 {
			o.noteFound(slices.DeleteFunc(slices.Clone(d.Undo.Paths), func(p world.SCSIPath) bool {
				return p.WWID != d.Undo.Paths[at].WWID
			}))
		}
	}
}
