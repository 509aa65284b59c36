// Package csi is the simulated CSI port: the node services of CSI drivers, with the semantics of
// the specification.
//
// Contract: the process of a driver keeps nothing in memory but its calls in flight. What is staged
// and published is in the mount table of the simulated disk, so it outlives the process and ends
// with the power. The content of a volume outlives both. All calls are idempotent. While a call for
// a volume is in flight another one gets ABORTED. A call takes effect in steps; the process may end
// between them, and a call whose caller has gone may be finished or not. A driver may hang, or say
// that it has published what it has not, as the plan says. Every effect is recorded in the truth
// when it happens.
//
// Start reading at serve, then stage.go, publish.go and usage.go for the calls; volume.go has what
// they share.
package csi

import (
	"maps"
	"slices"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure the drivers.
type Options struct {
	Agenda  *agenda.Agenda
	Truth   *truth.Log
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation
	Disk    *disk.Disk
	Node    string // the ID of the node of drivers that name none
	// HasVolume reports whether a driver has a volume. Nil: it has all.
	HasVolume func(driver, handle string) bool
	// IsAttached reports whether a volume is attached to the node, or does not have to be. Nil: all
	// are.
	IsAttached func(driver, handle string) bool
}

// Drivers are the simulated CSI drivers of the node. They are for use by one goroutine.
type Drivers struct {
	opts    Options
	wire    *wire.Wire
	running map[string]*process // by endpoint
	volumes map[volumeName]*volume
}

// process is a running driver.
type process struct {
	name, endpoint string
	is             *plan.CSIDriver
	hung, lied     int // calls so far
	calls          []*call
}

// call is a call that a driver works on.
type call struct {
	*wire.Call
	driver *process
	volume *volume // that is locked meanwhile; nil: none
	isOver bool    // it is answered, or given up
}

// New returns a node without drivers.
func New(opts Options) *Drivers {
	return &Drivers{opts: opts, running: map[string]*process{}, volumes: map[volumeName]*volume{},
		wire: wire.New(wire.Options{Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver,
			Seed: opts.Seed})}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (d *Drivers) InFlight() []*wire.Call { return d.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (d *Drivers) Reseed(seed uint64) { d.wire.Reseed(seed) }

// Do implements world.Port.
func (d *Drivers) Do(eff world.Effect) { d.wire.Send(eff, d.serve) }

// Connect starts an incarnation of the agent, which receives all events from now on.
func (d *Drivers) Connect(deliver func(world.Event)) { d.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent. The callers of all calls in flight are gone.
func (d *Drivers) Disconnect() { d.wire.Disconnect() }

// Start starts the process of a driver, in place of one at the same endpoint.
func (d *Drivers) Start(name, endpoint string, is *plan.CSIDriver) {
	d.Stop(endpoint)
	p := &process{name: name, endpoint: endpoint, is: is}
	d.running[endpoint] = p
	d.record(truth.DriverStarted, p)
}

// Stop ends the process of the driver at an endpoint, if there is one. Its calls in flight fail.
// What it has mounted stays.
func (d *Drivers) Stop(endpoint string) {
	p := d.running[endpoint]
	if p == nil {
		return
	}
	delete(d.running, endpoint)
	for _, c := range slices.Clone(p.calls) {
		d.fail(c, world.KindUnavailable, "connection reset")
	}
	d.record(truth.DriverEnded, p)
}

// Heal ends what is wrong with the drivers that run. Calls that hang stay so until their deadlines.
func (d *Drivers) Heal() {
	for _, p := range d.running { //ordered: each for itself
		healed := *p.is
		healed.Hangs, healed.Lies = 0, 0
		p.is = &healed
	}
}

// LosePower forgets what no mount stands for: the devices that are staged.
func (d *Drivers) LosePower() {
	for _, v := range d.volumes { //ordered: each for itself
		v.blockStagedAt = nil
	}
}

// Running returns the drivers of which a process runs, in order of their endpoints.
func (d *Drivers) Running() []world.CSIDriver {
	var all []world.CSIDriver
	for _, endpoint := range slices.Sorted(maps.Keys(d.running)) {
		all = append(all, world.CSIDriver{Name: d.running[endpoint].name, Endpoint: endpoint})
	}
	return all
}

func (d *Drivers) record(kind truth.Kind, p *process) {
	d.opts.Truth.Add(truth.Fact{Time: d.opts.Agenda.Now(), Kind: kind, Path: p.endpoint,
		Driver: &truth.Driver{Name: p.name, Endpoint: p.endpoint, Stages: !p.is.NoStage,
			Measures: !p.is.NoStats, Groups: p.is.MountGroup, VolumesMax: p.is.VolumesMax,
			VolumesThen: p.is.VolumesThen, LimitAt: limitAt(p.is)}})
}

// serve handles a call that has arrived.
func (d *Drivers) serve(w *wire.Call) {
	p := d.running[w.Effect.Body.(world.CSICall).CalledDriver().Endpoint]
	switch {
	case w.Outcome.ErrorBefore != nil:
		w.Fail(w.Outcome.ErrorBefore)
		return
	case p == nil:
		w.Fail(world.Errorf(world.KindUnavailable, w.Name, "connection refused"))
		return
	}
	c := &call{Call: w, driver: p}
	p.calls = append(p.calls, c)
	if _, asksInfo := w.Effect.Body.(*world.GetCSINodeInfo); !asksInfo && p.hangs() {
		return
	}
	if handle, is := handleOf(w.Effect.Body); is {
		if !d.lock(c, handle) {
			return
		}
	}
	w.Execute(func() {
		if !c.isOver {
			d.carryOut(c)
		}
	})
}

// hangs reports whether a driver does not answer its next call for a volume, and counts the call.
func (p *process) hangs() bool {
	p.hung++
	return p.is.Hangs < 0 || p.hung <= p.is.Hangs
}

// handleOf returns the handle of the volume that a call changes.
func handleOf(body any) (string, bool) {
	switch m := body.(type) {
	case *world.StageVolume:
		return m.Handle, true
	case *world.UnstageVolume:
		return m.Handle, true
	case *world.PublishVolume:
		return m.Handle, true
	case *world.UnpublishVolume:
		return m.Handle, true
	case *world.ExpandVolume:
		return m.Handle, true
	}
	return "", false
}

// lock locks the volume of a call. If it is locked, the call fails.
func (d *Drivers) lock(c *call, handle string) bool {
	v := d.volume(c.driver.name, handle)
	if v.lockedBy != nil {
		d.fail(c, world.KindUnavailable, "an operation for volume %s is pending", handle)
		return false
	}
	v.lockedBy, c.volume = c, v
	return true
}

func (d *Drivers) carryOut(c *call) {
	switch m := c.Effect.Body.(type) {
	case *world.GetCSINodeInfo:
		d.getNodeInfo(c)
	case *world.StageVolume:
		d.stage(c, m)
	case *world.UnstageVolume:
		d.unstage(c, m)
	case *world.PublishVolume:
		d.publish(c, m)
	case *world.UnpublishVolume:
		d.unpublish(c, m)
	case *world.ExpandVolume:
		d.expand(c, m)
	case *world.GetVolumeStats:
		d.stats(c, m)
	default:
		panic("csi: unknown call: " + c.Name)
	}
}

// stepsTake is how long a step of a call takes at most: the time to format and to mount.
const stepsTake = 300 * time.Millisecond

// continueLater runs the next step of a call after a while, unless the process has ended, or gives
// up because the caller has gone.
func (d *Drivers) continueLater(c *call, step func()) {
	d.opts.Agenda.After(c.DurationBetween(time.Millisecond, stepsTake), func() {
		switch {
		case c.isOver:
		case c.DrawsAbort():
			d.fail(c, world.KindTimeout, "given up, as the caller has gone")
		default:
			step()
		}
	})
}

// reply answers a call.
func (d *Drivers) reply(c *call, body any) {
	d.end(c)
	c.Reply(body)
}

// fail answers a call with an error.
func (d *Drivers) fail(c *call, kind world.ErrorKind, format string, args ...any) {
	d.end(c)
	c.Fail(world.Errorf(kind, c.Name, format, args...))
}

func (d *Drivers) end(c *call) {
	if c.isOver {
		panic("csi: " + c.Name + " is answered twice")
	}
	c.isOver = true
	c.driver.calls = slices.DeleteFunc(c.driver.calls, func(o *call) bool { return o == c })
	if c.volume != nil {
		c.volume.lockedBy = nil
	}
}
