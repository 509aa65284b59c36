// Package disk is the simulated file system: the file system port of the simulated world, and the
// disk under it, which loses unsynced changes with the power.
//
// Contract: the content outlives the agent. Watches and operations in flight belong to the agent
// and end with it, so a tree may be left half removed. Every effect is recorded in the truth log at
// its instant. Modes and groups are stored but not enforced; there are no hard links; a mount is
// never busy.
//
// Start reading at serve; then tree.go for the current tree, mount.go for the mounts that cover
// parts of it, and journal.go for its state after a power loss. external.go and file.go are for all
// other users of the disk: an administrator's actions of the plan, the processes in containers, the
// runtime.
package disk

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure a disk.
type Options struct {
	Agenda  *agenda.Agenda
	Truth   *truth.Log
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation
	// Files are the files that the disk has from the start: their texts, by path.
	Files map[string]string
	// Filesystems are the file systems of the disk. That of the root may be left out: it is then as
	// RootFilesystem.
	Filesystems []Filesystem
	// Fills has writes fail while a file system has no space or inodes left, beside those that
	// SetFull has fail. NoteFull is called when one does.
	Fills    bool
	NoteFull func()
	SELinux  bool // of the machine
}

// Disk is a simulated file system. It is for use by one goroutine.
type Disk struct {
	opts    Options
	wire    *wire.Wire
	root    *node
	mounts  []*mount // oldest first
	devices int      // that were ever mounted
	journal journal
	watched []string // paths that the current incarnation of the agent watches
	full    bool
	hung    map[string]int // paths and sources of mounts that hang, with the number of Hang calls
	// stored are the file systems of devices and exports, by their source.
	stored map[string]*node
	stuck  []*wire.Call    // calls on paths that hang
	held   map[string]bool // the paths of devices that are kept open
}

// New returns a disk with the files of the options.
func New(opts Options) *Disk {
	d := &Disk{
		opts: opts,
		wire: wire.New(wire.Options{
			Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver, Seed: opts.Seed,
			Local: true,
		}),
		root:    newDir(0o755, opts.Agenda.Now()),
		journal: journal{rng: wire.Stream(opts.Seed, "disk journal")},
		held:    map[string]bool{},
		hung:    map[string]int{},
		stored:  map[string]*node{},
	}
	for _, file := range slices.Sorted(maps.Keys(opts.Files)) {
		d.Write(file, []byte(opts.Files[file]))
	}
	d.sync()
	return d
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (d *Disk) InFlight() []*wire.Call { return d.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (d *Disk) Reseed(seed uint64) { d.wire.Reseed(seed) }

// Do implements world.Port.
func (d *Disk) Do(eff world.Effect) {
	if watch, ok := eff.Body.(*world.Watch); ok {
		if p := path.Clean(watch.Path); !slices.Contains(d.watched, p) {
			d.watched = append(d.watched, p)
		}
		return
	}
	d.wire.Send(eff, d.serve)
}

// Cancel implements world.Canceler.
func (d *Disk) Cancel(id world.OpID) { d.wire.Cancel(id) }

// serve handles a call that has arrived.
func (d *Disk) serve(call *wire.Call) {
	if call.Outcome.ErrorBefore != nil {
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	if d.isHung(call) {
		d.stuck = append(d.stuck, call)
		return
	}
	d.execute(call)
}

// execute carries out a call.
func (d *Disk) execute(call *wire.Call) {
	call.Execute(func() {
		switch req := call.Effect.Body.(type) {
		case *world.ReadFiles:
			d.readFiles(call, req)
		case *world.ReadTail:
			d.readTail(call, req)
		case *world.ReadInVolume:
			d.readInVolume(call, req)
		case *world.StatPath:
			d.statPath(call, req)
		case *world.ListDir:
			d.listDir(call, req)
		case *world.ReadLinks:
			d.readLinks(call, req)
		case *world.MeasureFiles:
			d.measureFiles(call, req)
		case *world.MeasureTrees:
			d.measureTrees(call, req)
		case *world.MeasureTree:
			d.measureTree(call, req)
		case *world.MeasureFilesystem:
			d.measureFilesystem(call, req)
		case *world.MeasureDevice:
			d.measureDevice(call, req)
		case *world.ListMounts:
			d.listMounts(call, req)
		default:
			d.executeChange(call)
		}
	})
}

// executeChange carries out a call that changes the disk.
func (d *Disk) executeChange(call *wire.Call) {
	switch req := call.Effect.Body.(type) {
	case *world.MakeDir:
		d.makeDir(call, req)
	case *world.MakeFile:
		d.makeFile(call, req)
	case *world.MakeLink:
		d.makeLink(call, req)
	case *world.WriteFile:
		d.writeFile(call, req)
	case *world.WriteDir:
		d.writeDir(call, req)
	case *world.Rename:
		d.rename(call, req)
	case *world.Compress:
		d.compress(call, req)
	case *world.RemoveTree:
		d.removeTree(call, req)
	case *world.ShareWithGroup:
		d.shareWithGroup(call, req)
	case *world.MountMemory:
		d.mountMemory(call, req)
	case *world.BindSubPath:
		d.bindSubPath(call, req)
	case *world.BindMount:
		d.bindMount(call, req)
	case *world.MountDevice:
		d.mountDevice(call, req)
	case *world.MountNFS:
		d.mountNFS(call, req)
	case *world.Unmount:
		d.unmountAll(call, req)
	case *world.HoldDevice:
		d.holdDevice(call, req)
	case *world.ReleaseDevice:
		d.releaseDevice(path.Clean(req.Path), "")
		d.complete(call, nil)
	default:
		panic("disk: unknown call: " + call.Name)
	}
}

// continueLater runs the next step of a call after a delay. If the agent dies before, the call is
// left half done.
func (d *Disk) continueLater(call *wire.Call, step func()) {
	d.opts.Agenda.After(call.DurationBetween(100*time.Microsecond, 10*time.Millisecond), func() {
		if d.decideToContinue(call) {
			step()
		}
	})
}

// decideToContinue decides whether a call runs its next step. A call that aborts after its deadline
// completes with a timeout.
func (d *Disk) decideToContinue(call *wire.Call) bool {
	if !call.DrawsAbort() {
		return true
	}
	if !call.HasPortDied() {
		call.Fail(world.Errorf(world.KindTimeout, call.Name, "gave up after its deadline"))
	}
	return false
}

// Connect starts an incarnation of the agent, which receives all events from now on.
func (d *Disk) Connect(deliver func(world.Event)) { d.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent, with its watches and its operations in flight.
func (d *Disk) Disconnect() {
	d.watched = nil
	d.wire.Disconnect()
	d.wire.Crash(0)
}

// recordMade records a directory that the agent has created.
func (d *Disk) recordMade(p string) {
	d.recordFact(truth.PathCreated, path.Clean(p), "")
	d.notify(path.Clean(p))
}

func (d *Disk) recordWritten(p string) {
	d.recordFact(truth.PathWritten, p, "")
	d.notify(p)
}

// notify sends FileChanged to the agent for a change of a path.
func (d *Disk) notify(changed string) {
	for _, p := range d.watched {
		if p == changed || p == path.Dir(changed) || strings.HasPrefix(p, changed+"/") {
			d.wire.Notify("FileChanged", &world.FileChanged{Path: p})
		}
	}
}

func (d *Disk) recordFact(kind truth.Kind, p, cause string) {
	d.opts.Truth.Add(truth.Fact{Time: d.now(), Kind: kind, Path: p, Cause: cause})
}

func (d *Disk) now() time.Time { return d.opts.Agenda.Now() }
