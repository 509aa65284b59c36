// Package scsi is the simulated SCSI port: an iSCSI initiator with the program iscsiadm, and the
// disks that the kernel gets by it.
//
// Contract: records of targets and interfaces outlive a loss of power, sessions and disks do not.
// All of them outlive the agent. A session is one of a target, a portal and an interface; a login
// opens it, a scan of its host makes a disk appear some time later. The disk gets the first path,
// /dev/sdX or /dev/dm-N, that no other one has by then: that of one that has gone. It is a link to
// the node of the logical unit, which the facts and the oracles name, so that its content is the
// same whatever its path is. A command takes effect when it ends. One that hangs is
// killed at its deadline, and a login that it has started may end without it. Sessions and disks
// that come and go are recorded in the truth.
//
// Start reading at serve; commands.go has iscsiadm, kernel.go the disks, fc.go those of fibre
// channel.
package scsi

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure the initiator.
type Options struct {
	Agenda    *agenda.Agenda
	Truth     *truth.Log
	Seed      uint64
	Faults    wire.FaultSource // nil: no faults
	Disk      *disk.Disk
	Plan      *plan.ISCSI // nil: nothing is installed
	FC        *plan.FC    // nil: there is none
	Beginning time.Time   // of the plan
}

// Initiator is the simulated initiator of the node. It is for use by one goroutine.
type Initiator struct {
	opts     Options
	wire     *wire.Wire // of commands
	kernel   *wire.Wire // of what the kernel does for the agent's process
	healed   bool
	boot     int                        // of the machine
	failed   map[string]int             // logins so far that have failed, by target
	hung     map[string]int             // commands so far that hang, by target
	records  map[sessionName]settings   // of nodes
	ifaces   map[string]settings        // by name
	portals  map[discoveryName]settings // of discoveries
	sessions map[sessionName]*session   // those that are logged in
	units    map[string]*unit           // those that have a disk, by their nodes
	hosts    int                        // so far
	devices  uint64                     // so far
	taken    map[string]bool            // the paths of those that there are
	known    map[string]map[int32]bool  // the LUNs that there were so far, by target
	// links are the disks of fibre channel that udev has by a name, and udev what it draws from.
	links map[string][]world.BlockDevice
	udev  *rand.Rand
}

// sessionName identifies a session.
type sessionName struct{ target, portal, iface string }

// discoveryName identifies a record of a discovery.
type discoveryName struct{ portal, iface string }

// settings are those of a record.
type settings map[string]string

// session is a session that is logged in.
type session struct {
	sessionName
	host int
	// Of fibre channel: set while it is lost, and the LUNs that it had.
	isLost bool
	lost   []int32
	disks  map[int32]world.BlockDevice // by LUN
}

// unit is a logical unit of which the node has disks.
type unit struct {
	paths     map[*session]bool
	multipath world.BlockDevice // zero: there is none
}

// New returns an initiator without sessions.
func New(opts Options) *Initiator {
	i := &Initiator{opts: opts, failed: map[string]int{}, hung: map[string]int{},
		records: map[sessionName]settings{}, portals: map[discoveryName]settings{},
		sessions: map[sessionName]*session{}, units: map[string]*unit{}, taken: map[string]bool{},
		known: map[string]map[int32]bool{}, links: map[string][]world.BlockDevice{},
		udev:   wire.Stream(opts.Seed, "udev"),
		ifaces: map[string]settings{"default": {"iface.transport_name": "tcp"}}}
	o := wire.Options{Agenda: opts.Agenda, Faults: opts.Faults, Seed: opts.Seed}
	i.wire, o.Local = wire.New(o), true
	i.kernel = wire.New(o)
	i.addArrays()
	return i
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (i *Initiator) InFlight() []*wire.Call {
	return slices.Concat(i.wire.InFlight(), i.kernel.InFlight())
}

// Reseed makes every later call draw from another seed.
func (i *Initiator) Reseed(seed uint64) {
	i.wire.Reseed(seed)
	i.kernel.Reseed(seed)
}

// Do implements world.Port.
func (i *Initiator) Do(eff world.Effect) {
	if _, isCommand := eff.Body.(*world.RunISCSIAdm); isCommand {
		i.wire.Send(eff, i.serve)
		return
	}
	i.kernel.Send(eff, i.serve)
}

// Connect starts an incarnation of the agent, which receives all events from now on.
func (i *Initiator) Connect(deliver func(world.Event)) {
	i.wire.Connect(deliver)
	i.kernel.Connect(deliver)
}

// Disconnect ends an incarnation of the agent. The callers of all calls in flight are gone.
func (i *Initiator) Disconnect() {
	i.wire.Disconnect()
	i.kernel.Disconnect()
}

// Heal ends what is wrong with the program and the targets. A command that hangs stays so until its
// deadline.
func (i *Initiator) Heal() {
	i.healed = true
	for _, s := range i.sorted() {
		i.regainPath(s)
	}
}

// after has something happen some time later, unless the machine loses its power before.
func (i *Initiator) after(takes time.Duration, do func()) {
	boot := i.boot
	i.opts.Agenda.After(takes, func() {
		if i.boot == boot {
			do()
		}
	})
}

// LosePower closes all sessions, and ends what is under way. Paths of fibre channel are there
// again, without disks.
func (i *Initiator) LosePower() {
	i.boot++
	i.links = map[string][]world.BlockDevice{}
	for _, s := range i.sorted() {
		if s.iface != fcIface {
			i.close(s, truth.CauseReboot)
			continue
		}
		s.lost = nil
		for _, lun := range slices.Sorted(maps.Keys(s.disks)) {
			i.drop(s, lun, truth.CauseReboot)
		}
	}
}

// targetOf returns a target; nil if there is none.
func (i *Initiator) targetOf(name string) *plan.ISCSITarget {
	if i.opts.Plan == nil {
		return nil
	}
	for n := range i.opts.Plan.Targets {
		if t := &i.opts.Plan.Targets[n]; t.Name == name {
			return t
		}
	}
	return nil
}

func (i *Initiator) sinceBeginning() time.Duration {
	return i.opts.Agenda.Now().Sub(i.opts.Beginning)
}

func (i *Initiator) isInstalled() bool {
	p := i.opts.Plan
	return p != nil && (i.healed || i.sinceBeginning() >= time.Duration(p.InstalledAt))
}

// stepsTake is how long a call takes at most that does not hang.
const stepsTake = 400 * time.Millisecond

// serve handles a call that has arrived. A call whose caller has gone takes effect or not.
func (i *Initiator) serve(c *wire.Call) {
	if c.Outcome.ErrorBefore != nil {
		c.Fail(c.Outcome.ErrorBefore)
		return
	}
	run, isRun := c.Effect.Body.(*world.RunISCSIAdm)
	if isRun && !i.isInstalled() {
		c.Fail(world.Errorf(world.KindNotFound, c.Name,
			`exec: "iscsiadm": executable file not found in $PATH`))
		return
	}
	if isRun && i.hangs(run) {
		i.hang(c, run)
		return
	}
	c.Execute(func() {
		i.after(c.DurationBetween(time.Millisecond, stepsTake), func() {
			if c.DrawsAbort() {
				c.Fail(world.Errorf(world.KindTimeout, c.Name, "given up, as the caller has gone"))
				return
			}
			i.carryOut(c)
		})
	})
}

func (i *Initiator) carryOut(c *wire.Call) {
	switch m := c.Effect.Body.(type) {
	case *world.RunISCSIAdm:
		c.Reply(i.iscsiadm(m))
	case *world.FindSCSIDisks:
		c.Reply(i.find(m))
	case *world.ScanSCSIHost:
		i.scan(c, m)
		c.Reply(&world.Done{})
	case *world.ScanSCSIHosts:
		i.scanAll(c, &m.Unit)
		c.Reply(&world.Done{})
	case *world.RemoveSCSIDisks:
		i.remove(c, m)
	default:
		panic("scsi: unknown call: " + c.Name)
	}
}

// hangs reports whether a command does not end, and counts it.
func (i *Initiator) hangs(m *world.RunISCSIAdm) bool {
	o := parse(m)
	t := i.targetOf(o.target)
	if t == nil || i.healed || i.hung[t.Name] >= t.Hangs {
		return false
	}
	i.hung[t.Name]++
	return true
}

// iscsidTakes is how long iscsid goes on with a login whose command was killed.
const iscsidTakes = time.Minute

// hang leaves a command without an answer.
func (i *Initiator) hang(c *wire.Call, m *world.RunISCSIAdm) {
	o := parse(m)
	takes := c.DurationBetween(time.Millisecond, iscsidTakes)
	if !o.login || c.Draw()&1 == 0 {
		return
	}
	c.OnCallerGone(func() {
		i.after(takes, func() { i.open(o.session()) })
	})
}
