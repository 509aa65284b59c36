// Package scsi attaches the volumes of the kinds iscsi and fc to the node, and detaches them.
//
// A disk is a logical unit of a target, by the portal and the interface that it is got by, or one
// of fibre channel, which comes without a session (fc.go). Pods share it: a file system is mounted
// once at the global path of the disk, and each pod has a bind mount of that, which it makes and
// removes itself (package volume); a device of volumeMode Block is bound once for each pod, at a
// path outside of its directory, and is taken from it here.
//
// Facts of a disk: its uses, which pods declare (Node.Use) and take back (Node.Release); how far
// it is set up; which devices may be bound for pods; how far it is undone; and the one operation in
// flight. Plan (Node.PlanDisk), each part only when the one before is done:
//
//  1. Nothing is done before the search has looked at everything that earlier agents left
//     (search.go). Then what is bound for pods that need it no more is taken from them (block.go).
//  2. A disk with uses is attached (attach.go): the Node says durably that the volume is in use,
//     and the cluster that it is attached. Its directory with iscsi.json is durable before the
//     first command, so that an agent which is started after a crash finds what to log out of. What
//     the kernel has is looked at before each command and after each one that has failed: a session
//     that is there is not logged in to again. The kernel then scans for this one disk.
//     Its file system is mounted with the SELinux label of its pods, and unmounted when all pods
//     that need it need another label (selinux.go).
//  3. A disk without uses is undone (detach.go): unmounted, then removed from the kernel, then the
//     sessions that no other disk needs are logged out, and the directory goes last. Disks are
//     removed, and sessions logged out, only after nothing of them was seen in the mount table of
//     the whole node: neither a mount of a pod whose request came late, nor one of an
//     administrator.
//
// Upstream: pkg/volume/iscsi and pkg/volume/fc. Taken over are the paths, iscsi.json, the commands
// of iscsiadm and their order, how many portals a disk waits for, and the messages. Different are:
// sessions are kept apart by their interface too, so that one of another interface is neither used
// nor left; the disk of a session is found by its host in sysfs, not by a link of udev; only
// multipath devices of multipathd count; the file is written before the login, not after it; what a
// session is used for is seen in the mount table, besides the directories of disks; disks of
// volumeMode Block are removed from the kernel as well; and a disk is mounted only if it is still
// the one that was found at its path.
package scsi

import (
	"maps"
	"path"
	"slices"
	"time"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Node is all that the agent knows of these disks.
type Node struct {
	RootDir string `json:"rootDir"` // of the kubelet
	PodsDir string `json:"podsDir"`
	Dir     string `json:"dir"` // with a directory for each kind of disks

	Disks  map[string]*Disk `json:"disks,omitempty"`  // by name, which is the directory below Dir
	Owners volumeop.Owners  `json:"owners,omitempty"` // names of disks, by UID of the pods
	InUse  map[string]bool  `json:"inUse,omitempty"`  // the disks that may wait for an unmount
	Search Search           `json:"search,omitzero"`
	// SELinux decides with which labels the file systems are mounted.
	SELinux selinux.Node `json:"selinux,omitzero"`
	// Full is set if a pod was refused a disk because the node has too many.
	Full bool `json:"full,omitempty"`
}

// NewNode returns the state of a node before anything is known.
func NewNode(rootDir string) Node {
	return Node{RootDir: rootDir, PodsDir: rootDir + "/pods",
		Dir: rootDir + "/plugins/kubernetes.io"}
}

// Env is what the plans need besides their own state.
type Env struct {
	Effects *op.Effects
	Objects *objectcache.Store // nil without an API server
	Enqueue func(timer.Key)
	// SaysInUse reports whether the Node says durably that a volume is in use, IsAttached whether it
	// says that the volume is attached, by a name in its status. Nil without an API server.
	SaysInUse, IsAttached func(name string) bool
	// CleansUp reports whether all sources of pods and the runtime were listed. IsKnownPod reports
	// whether a pod is known, or may become known.
	CleansUp   bool
	IsKnownPod func(uid string) bool
	// CountLabel counts an event about the SELinux label of a disk; nil to count nothing.
	CountLabel func(o selinux.Counted)
	// EnqueuePod plans a pod, EnqueuePods all of them.
	EnqueuePod  func(uid string)
	EnqueuePods func()
	// ReportsInUse has the status of the Node compared, which names the volumes in use.
	ReportsInUse func()
}

const (
	fsTimeout = 2 * time.Minute
	// commandTimeout bounds a command. iscsiadm waits 15 s for a connection and tries several times
	// (node.conn[0].timeo.login_timeout and node.session.initial_login_retry_max of iscsid.conf).
	commandTimeout = 2 * time.Minute
	// removalTimeout has room for a multipath device that writes what it has.
	removalTimeout = 2 * time.Minute

	// listedPeriod is how often a disk that was found looks whether all pods were listed.
	listedPeriod = 10 * time.Second
)

// Component is the component of the keys of disks.
const Component = "scsi"

// DiskKey returns the key of the disk of a name.
func DiskKey(name string) timer.Key { return timer.Key{Component: Component, Name: name} }

// SearchOwner is the key of the search.
var SearchOwner = timer.Key{Component: "scsisearch"}

// IsOwner reports whether a key is of a disk, or of the search.
func IsOwner(key timer.Key) bool { return key.Component == Component || key == SearchOwner }

// PlanDisk issues the next operation on a disk, and returns when to plan again.
func (n *Node) PlanDisk(name string, env *Env) time.Time {
	d := n.Disks[name]
	if d == nil || d.Op != 0 || !n.Search.Complete {
		return time.Time{}
	}
	if d.FullAt > len(d.Source.Portals) { // a pod was refused, and has room now
		d.FullAt = 0
		env.EnqueuePods()
	}
	previous := env.Effects.WorkOn(d.User)
	wake := n.planDisk(d, env)
	env.Effects.WorkOn(previous)
	if d.isGone() {
		n.watchSecret(d, env)
		delete(n.Disks, name)
		env.ReportsInUse()
		if n.Full { // a pod has waited for room
			n.Full = false
			env.EnqueuePods()
		}
		n.enqueueSharers(d, env)
	}
	return wake
}

// planDisk takes the first step that is possible, and only one.
func (n *Node) planDisk(d *Disk, env *Env) time.Time {
	var wake time.Time
	n.watchSecret(d, env)
	if d.needsMark() {
		d.issue(subjectMark, fsTimeout, &world.MakeDir{Path: path.Join(n.markPath(d), d.id()),
			Mode: 0o750}, env)
		return wake
	}
	if n.planBound(d, env, &wake) {
		return wake
	}
	n.noteLabelConflicts(d, env)
	if len(d.Uses) > 0 && !d.Undo.hasStarted() && d.Undo.Attempts.Failures == 0 {
		d.Undo = Undo{} // it has waited for what a late command brings
	}
	switch {
	case n.mustBeRemounted(d):
		if !d.Undo.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			wake = timer.Soonest(wake, n.undo(d, env))
		}
	case len(d.Uses) > 0:
		d.RemovedOnce, d.Detached = false, false
		if d.Undo.hasStarted() {
			d.Undo = Undo{}
			d.Setup = Setup{Attempts: d.Setup.Attempts} // what is left of it is not known
		}
		if !d.isReady() && !d.Setup.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			wake = timer.Soonest(wake, n.setUp(d, env))
		}
	case len(d.Bound) > 0:
	case !d.MayExist:
	case !env.CleansUp && d.Found:
		wake = env.Effects.Now().Add(listedPeriod)
	case !d.Undo.Attempts.IsWaiting(env.Effects.Now(), &wake):
		wake = timer.Soonest(wake, n.undo(d, env))
	}
	return wake
}

// HandleDiskCompletion handles the completion of an operation on a disk.
func (n *Node) HandleDiskCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	d := n.Disks[r.Owner.Name]
	if d == nil {
		return
	}
	if d.Op != id {
		panic("scsi: " + d.Name + ": completion of an operation it did not issue: " + r.Call)
	}
	d.Op = 0
	if d.Session != "" {
		n.noteChange(d)
	}
	switch kind, uid := splitSubject(r.Subject); kind {
	case subjectSetup:
		n.handleSetup(d, r, ev, env)
		for _, u := range d.sortedUses() {
			env.EnqueuePod(u.UID)
		}
	case subjectUndo:
		n.handleUndo(d, r, ev, env)
	case subjectMark:
		d.handleMark(ev, env)
	case subjectBound:
		n.handleBound(d, uid, ev, env)
	}
	n.enqueueSharers(d, env)
}

// noteChange notes that what the other disks of the target know of its sessions may not be so any
// more: an operation on them has ended.
func (n *Node) noteChange(d *Disk) {
	for _, o := range n.Disks { //ordered: each by itself
		if o != d && o.shares(d) {
			o.Setup.Known, o.Outdated = false, o.Op != 0
		}
	}
}

// enqueueSharers plans the other disks of the target: they may wait for a session.
func (n *Node) enqueueSharers(d *Disk, env *Env) {
	for _, name := range slices.Sorted(maps.Keys(n.Disks)) {
		if other := n.Disks[name]; other != d && other.shares(d) {
			env.Enqueue(DiskKey(name))
		}
	}
}
