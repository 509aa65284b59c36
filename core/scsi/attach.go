package scsi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// How a disk is attached and mounted (AttachDisk, persistISCSI and MountDevice upstream).

// Setup is how far a disk is set up since the last failure.
type Setup struct {
	TableSeen bool `json:"tableSeen,omitempty"` // whether it is mounted was looked at
	DirMade   bool `json:"dirMade,omitempty"`
	// Paths are the sessions with the target, or the disks of fibre channel, once that is known.
	Known bool             `json:"known,omitempty"`
	Paths []world.SCSIPath `json:"paths,omitempty"`
	// Portal is the one that is being logged in to, and Step its next command.
	// User is the use by which it is: all commands of a login are those of one pod.
	Portal string `json:"portal,omitempty"`
	Step   int    `json:"step,omitempty"`
	User   string `json:"user,omitempty"`
	// Cleanup is the command that takes back what the commands before a failure have made.
	Cleanup []string `json:"cleanup,omitempty"`
	// Iface is what the interface of the disk itself has, as the one that it is made after; it is
	// known once that was shown.
	IfaceShown bool     `json:"ifaceShown,omitempty"`
	IfaceMade  bool     `json:"ifaceMade,omitempty"`
	Iface      []string `json:"iface,omitempty"` // names and values in turns
	// Failed are the portals that could not be logged in to in this round, with the reason.
	Failed map[string]string `json:"failed,omitempty"`
	// LoggedIn are those that could be, also if there is no session.
	LoggedIn []string `json:"loggedIn,omitempty"`

	Last    string `json:"last,omitempty"` // of all rounds
	Rounds  int    `json:"rounds,omitempty"`
	Scanned []int  `json:"scanned,omitempty"` // hosts, in this round
	// DisksUntil is until when the disks of scanned hosts are waited for, MultipathUntil the same of
	// the device that joins them, and NextLook when is looked for either.
	DisksUntil     time.Time `json:"disksUntil,omitzero"`
	MultipathUntil time.Time `json:"multipathUntil,omitzero"`
	NextLook       time.Time `json:"nextLook,omitzero"`

	Device   world.BlockDevice `json:"device,omitzero"` // the disk, once it is there
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
	// FailedStep is the step of a kubelet that has failed last; empty: WaitForAttach.
	FailedStep string `json:"failedStep,omitempty"`
}

// restart has everything looked at again.
func (s *Setup) restart() { *s = Setup{Attempts: s.Attempts, FailedStep: s.FailedStep} }

const (
	// How long a disk is waited for, and after how many rounds over its portals it is used with two
	// paths, or with one, of more (deviceDiscoveryTimeout, multipathDeviceTimeout, minAttachAttempts
	// and maxAttachAttempts upstream).
	disksWait     = 30 * time.Second
	multipathWait = 10 * time.Second
	roundsOfTwo   = 2
	roundsMax     = 5
	lookPeriod    = time.Second
	// lateMax is for how long a command whose outcome is not known may still have an effect: iscsid
	// goes on with a login whose iscsiadm was killed.
	lateMax = 5 * time.Minute
)

// The subjects of operations on a disk.
const (
	subjectSetup = "setup"
	subjectUndo  = "undo"
	subjectMark  = "mark"
	subjectBound = "bound" // followed by a slash and the UID of a pod
)

func splitSubject(subject string) (kind, uid string) {
	kind, uid, _ = strings.Cut(subject, "/")
	return kind, uid
}

func (d *Disk) issue(subject string, timeout time.Duration, body any, env *Env) {
	d.Op = env.Effects.IssueFor(d.User, DiskKey(d.Name), subject, timeout, body)
}

// issueAt issues an operation on a path that may hang with the disk.
func (d *Disk) issueAt(path, subject string, body any, env *Env) {
	d.Op = env.Effects.IssueAtFor(d.User, path, DiskKey(d.Name), subject, fsTimeout, body)
}

// setUp issues the next operation that sets a disk up, and returns when to plan again.
func (n *Node) setUp(d *Disk, env *Env) time.Time {
	s, u := &d.Setup, n.firstUse(d)
	switch {
	case !d.Block && !s.TableSeen:
		d.issue(subjectSetup, fsTimeout, &world.ListMounts{Path: n.tablePath(d)}, env)
	case u == nil:
	case !d.isAttached(u, env):
		env.ReportsInUse()
	case !d.Source.IsFC && !d.Written && !d.DataRead && d.MayExist && !s.DirMade:
		// It may name portals that the pod does not, and is about to be replaced.
		d.readData(n.path(d), subjectSetup, env)
	case !d.Written && !s.DirMade:
		d.MayExist = true
		d.issue(subjectSetup, fsTimeout, &world.MakeDir{Path: n.path(d), Mode: 0o750}, env)
	case !d.Written:
		d.PortalsWritten = slices.Clone(d.Source.Portals)
		d.issue(subjectSetup, fsTimeout, &world.WriteFile{Path: n.path(d) + "/" + dataFile,
			Data: d.Source.encode(), Mode: 0o600}, env)
	case s.Cleanup != nil:
		d.command(s.Portal, &world.RunISCSIAdm{Args: s.Cleanup}, subjectSetup, env)
	case !s.Known:
		if !slices.ContainsFunc(append([]string{allSessions}, d.Source.Portals...),
			func(p string) bool { return n.isBusy(d, p) }) {
			n.find(d, subjectSetup, env) // else the end of that operation has this disk planned
		}
	case d.Source.IsFC:
		return n.connectFC(d, u, env)
	default:
		return n.connect(d, u, env)
	}
	return time.Time{}
}

// isAttached reports whether the Node says durably that the volume is in use, so that it is not
// detached meanwhile, and that it is attached. The attach/detach controller does nothing to attach
// it, but keeps a volume for one node from being attached to two (Attach upstream); it does not if
// the agent is to attach volumes, for which there is as little to do. A device that an earlier
// agent has bound was attached, and is not detached as long as it is in use.
func (d *Disk) isAttached(u *Use, env *Env) bool {
	for _, b := range d.Bound { //ordered: whether there is one
		if b.Mounted {
			return true
		}
	}
	return env.SaysInUse == nil || env.SaysInUse(u.Unique) && env.IsAttached(u.Unique)
}

func (n *Node) find(d *Disk, subject string, env *Env) {
	d.Outdated = false
	unit := d.unit()
	if subject == subjectSetup && len(d.Bound) == 0 {
		unit.IDs = nil // nothing is mounted: what the volume names counts, not which disk it once was
	}
	d.issue(subject, fsTimeout, &world.FindSCSIDisks{Unit: unit}, env)
}

// command runs a command about the session of a portal.
func (d *Disk) command(portal string, body *world.RunISCSIAdm, subject string, env *Env) {
	d.Session = portal
	d.issue(subject, commandTimeout, body, env)
}

// allSessions stands for the sessions of all portals.
const allSessions = "all"

// isBusy reports whether an operation on the session of a portal, or on the disks of all sessions,
// is in flight for another disk of the same target.
func (n *Node) isBusy(d *Disk, portal string) bool {
	for _, o := range n.Disks { //ordered: whether there is one
		if o != d && o.Op != 0 && o.shares(d) &&
			(o.Session == allSessions || o.Session != "" && samePortal(o.Session, portal) &&
				o.Source.Iface == d.Source.Iface) {
			return true
		}
	}
	return false
}

// sessionOf returns the session of a portal; nil if there is none.
func sessionOf(s *Source, portal string, sessions []world.SCSIPath) *world.SCSIPath {
	for i := range sessions {
		is := &sessions[i]
		if (is.Iface == "" || is.Iface == s.Iface) &&
			slices.ContainsFunc(is.Portals, func(p string) bool { return samePortal(p, portal) }) {
			return is
		}
	}
	return nil
}

// connect takes the next step from what the kernel has to a disk of it.
func (n *Node) connect(d *Disk, u *Use, env *Env) time.Time {
	s, now := &d.Setup, env.Effects.Now()
	var found []*world.SCSIPath
	isMissing := false
	for _, portal := range u.Source.Portals {
		session := sessionOf(&d.Source, portal, s.Paths)
		if session != nil {
			d.noteTried(portal)
		}
		switch {
		case session == nil && slices.Contains(s.LoggedIn, portal):
			s.Last = "Could not find a session of portal " + portal + " after logging in"
		case session == nil && s.Failed[portal] == "":
			return n.logIn(d, u, portal, env)
		case session == nil:
		case session.Device.Path != "":
			found = append(found, session)
		case !slices.Contains(s.Scanned, session.Host):
			if s.DisksUntil.IsZero() {
				s.DisksUntil = now.Add(disksWait)
			}
			s.Scanned = append(s.Scanned, session.Host)
			d.noteScan(session.Host, now)
			d.issue(subjectSetup, fsTimeout, &world.ScanSCSIHost{Host: session.Host, LUN: d.Source.LUN},
				env)
			return time.Time{}
		default:
			isMissing = true
			s.Last = fmt.Sprintf("Timed out waiting for LUN %d of %s at %s after %v", d.Source.LUN,
				d.Source.Target, portal, disksWait)
		}
	}
	if isMissing && now.Before(s.DisksUntil) {
		return s.look(now)
	}
	if len(found) == 0 {
		d.failSetup("WaitForAttach", "failed to get any path for iscsi disk, last err seen:\n"+s.Last,
			env)
		return s.Attempts.NotBefore
	}
	if len(found) < len(u.Source.Portals) && !s.isEnough(len(found)) {
		s.Rounds++
		s.Failed, s.LoggedIn, s.Scanned, s.DisksUntil = nil, nil, nil, time.Time{}
		s.Known = false
		return now
	}
	return n.useDisk(d, u, found, env)
}

// noteScan notes that the disk may appear for a while, by each of the scans of a host.
func (d *Disk) noteScan(host int, now time.Time) {
	if !now.Before(d.ScanUntil) {
		d.ScannedHosts, d.Rescanned = nil, false
	}
	if slices.Contains(d.ScannedHosts, host) {
		d.Rescanned = true
	} else {
		d.ScannedHosts = append(d.ScannedHosts, host)
	}
	d.ScanUntil = now.Add(disksWait)
}

// isEnough reports whether a disk with missing paths is used with those that there are.
func (s *Setup) isEnough(found int) bool {
	return found > 1 && s.Rounds+1 >= roundsOfTwo || s.Rounds+1 >= roundsMax
}

// look has it looked at the disks again, from time to time, and returns when.
func (s *Setup) look(now time.Time) time.Time {
	if now.Before(s.NextLook) {
		return s.NextLook
	}
	s.Known, s.NextLook = false, now.Add(lookPeriod)
	return now
}

// useDisk mounts a disk that is there, or has pods get it.
func (n *Node) useDisk(d *Disk, u *Use, found []*world.SCSIPath, env *Env) time.Time {
	s, now := &d.Setup, env.Effects.Now()
	if len(found) == len(u.Source.Portals) && !d.Rescanned {
		d.ScanUntil = time.Time{}
	}
	device := world.BlockDevice{}
	for _, session := range found {
		if session.Multipath.Path != "" {
			device = session.Multipath
			break
		}
	}
	// How many paths of fibre channel there are is not known: another one may be about to appear.
	if device.Path == "" && (len(found) > 1 || len(u.Source.Portals) > 1 || d.Source.IsFC) {
		if s.MultipathUntil.IsZero() {
			s.MultipathUntil = now.Add(multipathWait)
		}
		if now.Before(s.MultipathUntil) {
			return s.look(now)
		}
	}
	if device.Path == "" {
		device = found[0].Device
	}
	if d.Block {
		s.Device, s.Attempts, s.FailedStep = device, volumeop.Attempts{}, ""
		for _, u := range d.sortedUses() {
			env.EnqueuePod(u.UID)
		}
		return time.Time{}
	}
	d.Mounted = Uncertain
	d.issueAt(n.path(d), subjectSetup, &world.MountDevice{Device: device.Path,
		Sequence: device.Sequence, Path: n.path(d), FSType: u.FSType, ReadOnly: u.ReadOnly,
		Options: n.mountOptions(d, u, env)}, env)
	return time.Time{}
}

// logIn issues the next command of a login, unless another disk has one in flight for the session.
func (n *Node) logIn(d *Disk, u *Use, portal string, env *Env) time.Time {
	s := &d.Setup
	if n.isBusy(d, portal) {
		s.Known = false // what comes of it is looked at before anything is done
		return time.Time{}
	}
	secret, known, err := d.secretOf(u, env)
	switch {
	case err != nil:
		d.failSetup("WaitForAttach", err.Error(), env)
		return s.Attempts.NotBefore
	case !known:
		return time.Time{}
	}
	if s.Portal != portal || s.User != u.target() {
		s.Portal, s.Step, s.User = portal, 0, u.target()
	}
	all := d.commands(u, secret)
	for all[s.Step].isSecret && all[s.Step].password == "" {
		s.Step++ // the last command is none of these
	}
	c := all[s.Step]
	d.noteTried(portal)
	d.command(portal, &world.RunISCSIAdm{Args: c.args, Password: c.password}, subjectSetup, env)
	return time.Time{}
}

// handleSetup applies the completion of an operation of setUp.
func (n *Node) handleSetup(d *Disk, r op.Record, ev world.Event, env *Env) {
	s := &d.Setup
	d.Session = ""
	if r.Call == "RunISCSIAdm" {
		n.handleCommand(d, ev, env)
		return
	}
	if r.Call == "ScanSCSIHost" || r.Call == "ScanSCSIHosts" {
		// The disk appears after it; if it has failed, perhaps not.
		s.Known, s.DisksUntil = false, timer.Later(s.DisksUntil, ev.Time.Add(disksWait))
		d.ScanUntil = ev.Time.Add(disksWait)
		if r.Call == "ScanSCSIHosts" {
			n.noteScanOfAll(d, ev.Time)
		}
		if ev.Err.Has(world.KindTimeout) { // the kernel goes on with it
			d.noteLate(ev.Time)
		}
		return
	}
	if ev.Err.Has(world.KindNotFound) && r.Call == "ReadFiles" {
		ev.Err = nil
	}
	if ev.Err != nil {
		step := "WaitForAttach"
		if r.Call == "MountDevice" {
			step = "MountDevice"
		}
		d.failSetup(step, ev.Err.Message, env)
		return
	}
	switch body := ev.Body.(type) {
	case *world.MountsListed:
		n.applyOwnMounts(d, body.Mounts)
	case *world.SCSIDisksFound:
		s.Known, s.Paths = !d.Outdated, body.Paths
		d.noteFound(body.Paths)
	default:
		switch r.Call {
		case "MakeDir":
			s.DirMade, d.Written = true, d.Written || d.Source.IsFC
		case "ReadFiles":
			n.applyData(d, ev, env)
		case "WriteFile":
			d.Written, d.DataRead = s.DirMade, true // else portals came meanwhile
		case "MountDevice":
			d.Taken = d.Source.IsFC
			if mounted, is := ev.Body.(*world.Mounted); is && mounted.Existed && n.hasLabels(d) {
				d.failSetup("MountDevice", "it was mounted meanwhile, with which label is to be seen", env)
				return
			}
			d.Mounted, s.Attempts, s.FailedStep = Done, volumeop.Attempts{}, ""
		}
	}
}

// failSetup begins the back-off after a failure. What there is has to be looked at again.
func (d *Disk) failSetup(step, problem string, env *Env) {
	if d.Setup.Attempts.Fail(env.Effects.Now(), problem); d.Setup.Attempts.Failures == 1 {
		env.Effects.Log(world.LevelWarning, "Failed to set up a disk", "disk", d.Name, "err",
			d.Setup.Attempts.Problem)
	}
	d.Setup.FailedStep = step
	d.Setup.restart()
	for _, u := range d.sortedUses() {
		env.EnqueuePod(u.UID)
	}
}

// errNotInstalled is why no command can be run.
var errNotInstalled = errors.New("iscsiadm is not installed on the node")

// handleCommand applies the end of a command of a login.
func (n *Node) handleCommand(d *Disk, ev world.Event, env *Env) {
	s := &d.Setup
	ran, isRan := ev.Body.(*world.ISCSIAdmRan)
	switch {
	case ev.Err.Has(world.KindNotFound):
		d.failSetup("WaitForAttach", errNotInstalled.Error()+": "+ev.Err.Message, env)
	case ev.Err != nil || !isRan: // what it has done is not known
		d.noteLate(ev.Time)
		problem := "answered with another message"
		if ev.Err != nil {
			problem = ev.Err.Message
		}
		d.failPortal("iscsiadm: "+problem, nil)
		s.Known = false
	case s.Portal == "": // looked at again meanwhile
		s.Known = false
	case s.Cleanup != nil:
		s.Cleanup, s.Portal, s.User = nil, "", ""
	default:
		d.endCommand(ran, env)
	}
}

// noteLate notes that a command may still have an effect.
func (d *Disk) noteLate(now time.Time) { d.LateUntil = timer.Later(d.LateUntil, now.Add(lateMax)) }

// failPortal ends a login, after a command that takes back what it has made.
func (d *Disk) failPortal(problem string, cleanup []string) {
	s := &d.Setup
	if s.Failed == nil {
		s.Failed = map[string]string{}
	}
	if s.Portal != "" {
		s.Failed[s.Portal] = problem
	}
	s.Last, s.Cleanup, s.Step = problem, cleanup, 0
	if cleanup == nil {
		s.Portal, s.User = "", ""
	}
}

// endCommand goes on after a command of a login that has ended.
func (d *Disk) endCommand(ran *world.ISCSIAdmRan, env *Env) {
	s := &d.Setup
	u := d.Uses[s.User]
	if u == nil { // the pod has gone
		s.restart()
		return
	}
	all := d.commands(u, nil)
	c := all[s.Step]
	if ran.ExitCode != 0 && !c.mayFail && !slices.Contains(c.accepted, ran.ExitCode) {
		problem := fmt.Sprintf("iscsi: %s: iscsiadm has failed with exit code %d: %s", c.failure,
			ran.ExitCode, strings.TrimSpace(ran.Output))
		if c.ofIface {
			d.failSetup("WaitForAttach", problem, env)
			return
		}
		d.failPortal(problem, c.undo)
		return
	}
	if c.shows {
		s.IfaceShown, s.Iface = true, parseIface(ran.Output)
		return
	}
	if s.Step++; s.Step < len(all) {
		return
	}
	if c.ofIface {
		s.IfaceMade, s.Step = true, 0
		return
	}
	s.LoggedIn = append(s.LoggedIn, s.Portal)
	s.Portal, s.User, s.Step, s.Known = "", "", 0, false
}
