// Package wire carries calls from the simulated agent to a simulated port and completions back. It
// adds latency, faults and deadlines, and handles restarts of the agent. All simulated ports use
// it, so that they fail in the same ways.
//
// Contract: every effect with an OpID that an incarnation of the agent sends completes exactly once
// in that incarnation, or not at all if the incarnation ends first. A call completes no later than
// its deadline. The exception is a local port, whose calls complete when the work has ended, even
// after the deadline.
//
// A call whose caller is gone, because the agent died or the call timed out, is still worked on:
// the port decides whether to finish the work or to abort it.
//
// Start reading at Send.
package wire

import (
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/world"
)

// Options configure a wire.
type Options struct {
	Agenda  *agenda.Agenda
	Faults  FaultSource       // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation; nil: not connected
	Seed    uint64

	// Local is set for work of the agent's own process, as on its files. Then nothing can stop waiting
	// for the work before it has ended, and no response can be lost.
	Local bool
}

// Wire connects one port with the agent.
type Wire struct {
	agenda       *agenda.Agenda
	local        bool
	faults       FaultSource
	deliverEvent func(world.Event) // nil while the agent is dead
	seed         uint64
	counters     map[counterKey]*counter
	inFlight     []*Call        // sent and neither completed nor given up by the caller
	observer     EffectObserver // nil: none
	portDeaths   int            // how often the port's process has died
	down         bool           // the port's process is not running
	downUntil    time.Time
}

// counterKey is what the calls that a counter counts have in common.
type counterKey struct{ name, pod string }

// counter counts calls, over all incarnations of the agent.
type counter struct {
	hash   uint64 // of the key
	calls  int
	agenda *agenda.Agenda // of the actor that the calls of the name are
}

// New returns a wire.
func New(opts Options) *Wire {
	if opts.Faults == nil {
		opts.Faults = faultFree{}
	}
	observer, _ := opts.Faults.(EffectObserver)
	return &Wire{
		observer: observer,
		agenda:   opts.Agenda, faults: opts.Faults, deliverEvent: opts.Deliver, seed: opts.Seed,
		local:    opts.Local,
		counters: map[counterKey]*counter{},
	}
}

// InFlight returns the calls that the agent waits for, and the notifications on their way to it,
// which have no name. The slice must not be changed or retained.
func (w *Wire) InFlight() []*Call { return w.inFlight }

// Reseed makes every later call draw from another seed.
func (w *Wire) Reseed(seed uint64) { w.seed = seed }

// Send sends an effect to the port with the outcome that the FaultSource decides. It calls serve
// when the request arrives.
func (w *Wire) Send(eff world.Effect, serve func(*Call)) {
	if eff.Op == 0 || eff.Deadline.IsZero() {
		panic("wire: " + world.BodyName(eff.Body) + " has no OpID or no deadline")
	}
	name := world.CallName(eff.Body)
	counter := w.counterOf(name, eff.Pod)
	id := counter.nextID(name, eff.Pod)
	c := &Call{Effect: eff, Name: name, wire: w, agenda: counter.agenda, index: len(w.inFlight),
		deathsWhenSent: w.portDeaths}
	c.Outcome = w.faults.Decide(id, w.agenda.Now())
	c.rng.Seed(w.seed^id.Hash, uint64(id.Nth))
	w.inFlight = append(w.inFlight, c)
	if !w.agenda.Now().Add(c.Outcome.RequestLatency).Before(eff.Deadline) {
		c.expireAtDeadline()
	}
	if c.Outcome.ResponseLost {
		c.failAtConnectionTimeout()
	}
	c.agenda.After(c.Outcome.RequestLatency, func() { w.receive(c, serve) })
}

// receive handles the arrival of a call at the port.
func (w *Wire) receive(c *Call, serve func(*Call)) {
	if c.HasPortDied() {
		return // the connection has been reset
	}
	if w.local && c.IsPastDeadline() {
		c.Fail(world.Errorf(world.KindCanceled, c.Name, "not begun before its deadline"))
	} else if w.IsDown() {
		c.Fail(world.Errorf(world.KindUnavailable, c.Name, "connection refused"))
	} else {
		serve(c)
	}
	if !c.replied {
		c.expireAtDeadline()
	}
}

// Cancel ends the wait for an operation of the current incarnation of the agent, as that of a call
// whose context is canceled: it fails with KindUnavailable at once. A local operation goes on; one
// that has ended, and whose response is lost, fails at once. One that is not in flight is ignored.
func (w *Wire) Cancel(id world.OpID) {
	i := slices.IndexFunc(w.inFlight, func(c *Call) bool { return id != 0 && c.Effect.Op == id })
	if i < 0 {
		return
	}
	c := w.inFlight[i]
	canFail := !c.replied
	if w.local {
		canFail = c.replied && c.Outcome.ResponseLost
	}
	if !canFail {
		return
	}
	c.agenda.After(0, func() {
		if c.isInFlight() {
			w.removeInFlight(c)
			c.markCallerGone()
			w.complete(c, nil, world.Errorf(world.KindUnavailable, c.Name, "canceled"))
		}
	})
}

// Notify sends a notification of the port to the current incarnation of the agent, with the latency
// and loss that the FaultSource decides. The notification is dropped if the agent dies before it
// arrives.
func (w *Wire) Notify(name string, body any) {
	if outcome := w.NextOutcome(name); !outcome.ResponseLost {
		w.DeliverAt(w.agenda.Now().Add(outcome.RequestLatency), body)
	}
}

// NextOutcome returns the outcome of the next notification of that name.
func (w *Wire) NextOutcome(name string) Outcome {
	return w.faults.Decide(w.counterOf(name, "").nextID(name, ""), w.agenda.Now())
}

// DeliverAt delivers a notification to the current incarnation of the agent at the given time,
// unless the agent or the port's process dies before.
func (w *Wire) DeliverAt(at time.Time, body any) {
	deliverEvent := w.deliverEvent
	if deliverEvent == nil {
		return
	}
	notification := &Call{wire: w, index: len(w.inFlight), replied: true}
	w.inFlight = append(w.inFlight, notification)
	w.agenda.At(at, func() {
		if notification.isInFlight() {
			w.removeInFlight(notification)
			deliverEvent(world.Event{Time: w.agenda.Now(), Body: body})
		}
	})
}

// Connect starts an incarnation of the agent, which receives all events from now on.
func (w *Wire) Connect(deliver func(world.Event)) {
	if w.deliverEvent != nil {
		panic("wire: an agent is already connected")
	}
	w.deliverEvent = deliver
}

// Disconnect ends an incarnation of the agent. The callers of all calls in flight are gone.
func (w *Wire) Disconnect() {
	w.deliverEvent = nil
	w.dropInFlight((*Call).markCallerGone)
}

// Crash ends the port's process for a while. Calls in flight, and calls that arrive before the
// process is back, fail with KindUnavailable.
func (w *Wire) Crash(downFor time.Duration) {
	w.portDeaths++
	w.down, w.downUntil = true, w.agenda.Now().Add(downFor)
	w.dropInFlight(func(c *Call) {
		c.markCallerGone()
		if c.Effect.Op != 0 {
			w.complete(c, nil, world.Errorf(world.KindUnavailable, c.Name, "connection reset"))
		}
	})
}

// IsDown reports whether the port's process is not running.
func (w *Wire) IsDown() bool {
	w.down = w.down && w.agenda.Now().Before(w.downUntil)
	return w.down
}

// dropInFlight removes all calls in flight and calls notify for each. notify may send new calls.
func (w *Wire) dropInFlight(notify func(*Call)) {
	calls := w.inFlight
	w.inFlight = nil
	for _, c := range calls {
		c.index = notInFlight
	}
	for _, c := range calls {
		notify(c)
	}
}

// complete delivers the completion of a call to the current incarnation of the agent, if there is
// one.
func (w *Wire) complete(c *Call, body any, err *world.Error) {
	if w.deliverEvent != nil {
		w.deliverEvent(world.Event{Time: w.agenda.Now(), Op: c.Effect.Op, Body: body, Err: err})
	}
}

// removeInFlight removes a call from those in flight. It may change the order of the others, which
// is deterministic and has no meaning.
func (w *Wire) removeInFlight(c *Call) {
	last := len(w.inFlight) - 1
	w.inFlight[c.index] = w.inFlight[last]
	w.inFlight[c.index].index = c.index
	w.inFlight[last] = nil
	w.inFlight = w.inFlight[:last]
	c.index = notInFlight
}

// counterOf returns the counter of the calls of a name about a pod.
func (w *Wire) counterOf(name, pod string) *counter {
	key := counterKey{name, pod}
	c := w.counters[key]
	if c == nil {
		c = &counter{hash: hash(name + " " + pod), agenda: w.agenda.Actor(name)}
		w.counters[key] = c
	}
	return c
}

// nextID returns the ID of the next call.
func (c *counter) nextID(name, pod string) CallID {
	id := CallID{Name: name, Pod: pod, Nth: c.calls, Hash: c.hash}
	c.calls++
	return id
}

// hash is FNV-1a. Unlike the map hashes of the standard library it is the same in every process.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Stream returns the random stream of one concern, so that additional draws for one concern do not
// change the draws for others.
func Stream(seed uint64, name string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(name)))
}
