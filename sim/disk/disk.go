// Package disk is the simulated file system: the file system port of the simulated world, and the
// disk under it, which forgets what nobody forced it to keep when the power goes.
//
// Contract: the content outlives the agent; the watches and the work in flight, which are the
// agent's own, die with it, so that a tree may be left half removed. What takes effect is written
// to the truth log at that instant. Modes and groups are kept but keep nobody out; a file has one
// name; nothing keeps a mount from being unmounted.
//
// Start reading at serve; then tree.go for what is there now, mount.go for what hides it, and
// journal.go for what a power cut would leave of it. hand.go and file.go are for all others who
// use the disk: the plan's user, the processes in containers, the runtime.
package disk

import (
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options are what a disk is made of.
type Options struct {
	Agenda *agenda.Agenda
	Truth  *truth.Log
	Seed   uint64
	Faults wire.FaultSource  // nil: nothing goes wrong
	Answer func(world.Event) // takes the answers of the first life
}

// Disk is a file system. It is for one goroutine.
type Disk struct {
	opts    Options
	wire    *wire.Wire
	root    *node
	mounts  []*mount // oldest first
	journal journal
	watched []string // by the agent that lives now
	full    bool
	hung    map[string]int // paths that hang, and how many times they have been told to
	stuck   []*wire.Call   // by them
}

// New makes an empty disk.
func New(opts Options) *Disk {
	return &Disk{
		opts: opts,
		wire: wire.New(wire.Options{
			Agenda: opts.Agenda, Faults: opts.Faults, Answer: opts.Answer, Seed: opts.Seed,
			Local: true,
		}),
		root:    newDir(0o755, opts.Agenda.Now()),
		journal: journal{rng: wire.Stream(opts.Seed, "disk journal")},
		hung:    map[string]int{},
	}
}

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

// serve takes a call that has arrived.
func (d *Disk) serve(call *wire.Call) {
	if call.Fate.Before != nil {
		call.Fail(call.Fate.Before)
		return
	}
	if d.hangs(call) {
		d.stuck = append(d.stuck, call)
		return
	}
	d.carryOut(call)
}

// carryOut does what a call asks for.
func (d *Disk) carryOut(call *wire.Call) {
	call.Begin(func() {
		switch req := call.Effect.Body.(type) {
		case *world.ReadFiles:
			d.readFiles(call, req)
		case *world.ReadTail:
			d.readTail(call, req)
		case *world.StatPath:
			d.statPath(call, req)
		case *world.ListDir:
			d.listDir(call, req)
		case *world.ReadLinks:
			d.readLinks(call, req)
		case *world.MeasureTree:
			d.measureTree(call, req)
		default:
			d.alterTree(call)
		}
	})
}

// alterTree takes the calls that change something.
func (d *Disk) alterTree(call *wire.Call) {
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
	case *world.Unmount:
		d.unmountAll(call, req)
	default:
		panic("disk: no such call: " + call.Name)
	}
}

// later goes on with a call a little later: an agent that dies in between leaves what was begun.
func (d *Disk) later(call *wire.Call, goOn func()) {
	d.opts.Agenda.After(call.Between(100*time.Microsecond, 10*time.Millisecond), func() {
		if d.goesOn(call) {
			goOn()
		}
	})
}

// goesOn decides whether a call takes its next step. One that gives up after its deadline says so.
func (d *Disk) goesOn(call *wire.Call) bool {
	if !call.GivesUp() {
		return true
	}
	if !call.PortDied() {
		call.Fail(world.Errorf(world.KindTimeout, call.Name, "gave up after its deadline"))
	}
	return false
}

// Connect begins a life of the agent: answers go to it from now on.
func (d *Disk) Connect(answer func(world.Event)) { d.wire.Connect(answer) }

// Disconnect ends a life of the agent, and with it all that it was doing on the disk.
func (d *Disk) Disconnect() {
	d.watched = nil
	d.wire.Disconnect()
	d.wire.Break(0)
}

// made tells of a directory that the agent has made, written of a file or a link.
func (d *Disk) made(p string) {
	d.tell(truth.PathMade, path.Clean(p), "")
	d.notify(path.Clean(p))
}

func (d *Disk) written(p string) {
	d.tell(truth.PathWritten, p, "")
	d.notify(p)
}

// notify tells the agent of a change at a path.
func (d *Disk) notify(changed string) {
	for _, p := range d.watched {
		if p == changed || p == path.Dir(changed) || strings.HasPrefix(p, changed+"/") {
			d.wire.Tell("FileChanged", &world.FileChanged{Path: p})
		}
	}
}

func (d *Disk) tell(kind truth.Kind, p, cause string) {
	d.opts.Truth.Add(truth.Fact{Time: d.now(), Kind: kind, Path: p, Cause: cause})
}

func (d *Disk) now() time.Time { return d.opts.Agenda.Now() }
