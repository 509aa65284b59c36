// Package wire carries calls from the simulated agent to a simulated port, and answers back: with
// latency, with faults, with deadlines, and across the lives of the agent. Both ports use it, so
// that a runtime and a disk fail in the same ways.
//
// Contract: every effect with an OpID that is sent in a life is answered in that life exactly
// once, or not at all when the life ends first. The answer comes no later than the deadline, but
// for a local port's: that comes when the call has ended and not before, however late that is.
// What the agent is told and what happened are two things: a call whose caller has gone, or was
// told of a timeout, is severed, and the port decides what becomes of its work.
//
// Start reading at Send.
package wire

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/world"
)

// Options are what a wire is made of.
type Options struct {
	Agenda *agenda.Agenda
	Faults FaultSource       // nil: nothing goes wrong
	Answer func(world.Event) // takes the answers of the first life; nil: nobody is there yet
	Seed   uint64

	// Local says that the agent's own process does the work, as on its files: nobody is there who
	// could give up waiting for it, and no answer is lost.
	Local bool
}

// Wire is the way between one port and the agent.
type Wire struct {
	agenda   *agenda.Agenda
	local    bool
	faults   FaultSource
	answer   func(world.Event) // nil while the agent is dead
	seed     uint64
	ordinals map[string]int // by call: how many there were, over all lives
	flying   []*Call        // neither answered nor severed
	breaks   int            // how often the port's process has died
	down     bool           // the port's process is not there
	downTo   time.Time
}

// New makes a wire.
func New(opts Options) *Wire {
	if opts.Faults == nil {
		opts.Faults = calm{}
	}
	return &Wire{
		agenda: opts.Agenda, faults: opts.Faults, answer: opts.Answer, seed: opts.Seed,
		local:    opts.Local,
		ordinals: map[string]int{},
	}
}

// Send brings an effect to the port, as its fate will have it: serve is called when it arrives.
func (w *Wire) Send(eff world.Effect, serve func(*Call)) {
	if eff.Op == 0 || eff.Deadline.IsZero() {
		panic("wire: " + world.BodyName(eff.Body) + " without an operation or a deadline")
	}
	name := world.Call(eff.Body)
	ordinal := w.ordinal(name)
	c := &Call{Effect: eff, Name: name, wire: w, index: len(w.flying), breaks: w.breaks}
	c.Fate = w.faults.Fate(name, ordinal, w.agenda.Now())
	c.rng.Seed(w.seed^hash(name), uint64(ordinal))
	w.flying = append(w.flying, c)
	if !w.agenda.Now().Add(c.Fate.Receive).Before(eff.Deadline) {
		c.expireAtDeadline()
	}
	if c.Fate.Lost {
		c.noticeLoss()
	}
	w.agenda.After(c.Fate.Receive, func() { w.receive(c, serve) })
}

// receive is the arrival at the port.
func (w *Wire) receive(c *Call, serve func(*Call)) {
	if c.PortDied() {
		return // the connection it was on has been reset
	}
	if w.local && c.Late() {
		c.Fail(world.Errorf(world.KindCanceled, c.Name, "not begun before its deadline"))
	} else if w.Down() {
		c.Fail(world.Errorf(world.KindUnavailable, c.Name, "connection refused"))
	} else {
		serve(c)
	}
	if !c.replied {
		c.expireAtDeadline()
	}
}

// Tell draws the fate of something that the port says of its own accord, and brings it to the
// agent that lives now, unless it is lost or the agent has died by then.
func (w *Wire) Tell(name string, body any) {
	if fate := w.Draw(name); !fate.Lost {
		w.Arrive(w.agenda.Now().Add(fate.Receive), body)
	}
}

// Draw draws the fate of something that the port says of its own accord.
func (w *Wire) Draw(name string) Fate {
	return w.faults.Fate(name, w.ordinal(name), w.agenda.Now())
}

// Arrive brings something to the agent that lives now, at a later time, unless the agent or the
// port's process has died by then.
func (w *Wire) Arrive(at time.Time, body any) {
	listener := w.answer
	if listener == nil {
		return
	}
	probe := &Call{wire: w, index: len(w.flying), replied: true}
	w.flying = append(w.flying, probe)
	w.agenda.At(at, func() {
		if probe.flying() {
			w.land(probe)
			listener(world.Event{Time: w.agenda.Now(), Body: body})
		}
	})
}

// Connect begins a life of the agent: answers go to it from now on.
func (w *Wire) Connect(answer func(world.Event)) {
	if w.answer != nil {
		panic("wire: a second agent is connected")
	}
	w.answer = answer
}

// Disconnect ends a life of the agent: whatever is in flight is severed.
func (w *Wire) Disconnect() {
	w.answer = nil
	w.severAll((*Call).sever)
}

// Break ends the port's process for a while: what is in flight, and what comes until it is back,
// is answered with KindUnavailable.
func (w *Wire) Break(lasting time.Duration) {
	w.breaks++
	w.down, w.downTo = true, w.agenda.Now().Add(lasting)
	w.severAll(func(c *Call) {
		c.sever()
		if c.Effect.Op != 0 {
			w.deliver(c, nil, world.Errorf(world.KindUnavailable, c.Name, "connection reset"))
		}
	})
}

// Down reports whether the port's process is gone at the moment.
func (w *Wire) Down() bool {
	w.down = w.down && w.agenda.Now().Before(w.downTo)
	return w.down
}

// severAll cuts every call in flight; cutting one may begin others.
func (w *Wire) severAll(cut func(*Call)) {
	calls := w.flying
	w.flying = nil
	for _, c := range calls {
		c.index = landed
	}
	for _, c := range calls {
		cut(c)
	}
}

// deliver brings an answer to the agent that lives now.
func (w *Wire) deliver(c *Call, body any, err *world.Error) {
	if w.answer != nil {
		w.answer(world.Event{Time: w.agenda.Now(), Op: c.Effect.Op, Body: body, Err: err})
	}
}

// land takes a call out of those in flight. The order of the others may change: it is the same in
// every run, and no meaning is attached to it.
func (w *Wire) land(c *Call) {
	last := len(w.flying) - 1
	w.flying[c.index] = w.flying[last]
	w.flying[c.index].index = c.index
	w.flying[last] = nil
	w.flying = w.flying[:last]
	c.index = landed
}

func (w *Wire) ordinal(name string) int {
	n := w.ordinals[name]
	w.ordinals[name] = n + 1
	return n
}

// hash is FNV-1a: the same in every process, which the hashes of the standard library for maps
// are not.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Stream returns a random stream of its own for one concern, so that taking a draw away from one
// does not disturb the others.
func Stream(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(name)))
}
