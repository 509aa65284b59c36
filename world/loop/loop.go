// Package loop drives a world.Core. It holds the inbox, calls Step with one event at a time, wakes
// the core when it is due, dispatches effects to their ports, and delays operations that exceed a
// limit.
//
// A lane (lanes.go) is a class of operations with its own limit on operations in flight. Tenants
// share the slots of a lane, so that none of them delays the others (slots.go). A path lock
// (pathlocks.go) admits one operation at a time to a path.
//
// The loop has no goroutine and no clock. In production one goroutine calls Offer and Turn and
// waits for a channel or a timer; the simulator calls them with virtual time. Start reading at
// Loop.Turn.
package loop

import (
	"fmt"
	"time"

	"seedlet.dev/world"
)

// Options configure a loop.
type Options struct {
	Core   world.Core
	Ports  map[world.PortName]world.Port // must have every port that the core's effects use
	Limits Limits                        // zero fields take their defaults
	// Stopwatch reads a monotonic clock to measure the duration of steps. Nil disables the
	// measurement.
	Stopwatch func() time.Duration
	// Observe, if not nil, is called after every step with the event and the effects of the step.
	Observe func(world.Event, []world.Effect)
}

// Loop drives a core and tracks its operations in flight. It is for use by one goroutine.
type Loop struct {
	opts               Options
	inbox              queue[world.Event]
	inFlight           map[world.OpID]*operation // started operations without a completion
	waiting            map[world.OpID]*operation // for a slot
	lanes              [laneCount]slots
	queued             deadlines // operations that wait for a slot
	started            deadlines // operations in flight that are not hung
	locks              pathLocks
	lastTime           time.Time // of the newest event
	refusedEvents      uint64
	canceledOperations uint64
	stepDurations      Histogram
}

// New returns a loop. The core is not called before the first event is offered.
func New(opts Options) *Loop {
	opts.Limits = opts.Limits.withDefaults()
	l := &Loop{opts: opts, inFlight: map[world.OpID]*operation{},
		waiting: map[world.OpID]*operation{}}
	for i := range l.lanes {
		l.lanes[i] = newSlots(Lane(i), opts.Limits.InFlight[i])
	}
	return l
}

// Offer adds an event to the inbox. Turn sets its time. Offer returns false if the inbox is full
// and the event was dropped. A completion is always accepted: there are never more completions than
// operations in flight.
func (l *Loop) Offer(ev world.Event) bool {
	if ev.Op == 0 && l.inbox.len() >= l.opts.Limits.Inbox {
		l.refusedEvents++
		return false
	}
	l.inbox.push(ev)
	return true
}

// Turn handles one event of the inbox, or wakes the core if it is due, and dispatches the resulting
// effects. It returns false if there was nothing to do.
func (l *Loop) Turn(now time.Time) bool {
	if now.Before(l.lastTime) {
		now = l.lastTime // the time of events stands still while the clock is behind
	}
	l.expire(now)
	ev, ok := l.inbox.pop()
	if !ok {
		wake := l.opts.Core.NextWake()
		if wake.IsZero() || wake.After(now) {
			return false
		}
	}
	ev.Time, l.lastTime = now, now
	if op, found := l.inFlight[ev.Op]; found {
		delete(l.inFlight, ev.Op)
		l.started.remove(op)
		l.lanes[op.lane].release(op)
		defer l.finish(op)
	}
	l.step(ev)
	return true
}

// NextWake returns when Turn has something to do if no event is offered. The zero time means never.
func (l *Loop) NextWake() time.Time {
	if l.inbox.len() > 0 {
		return l.lastTime
	}
	wake := l.opts.Core.NextWake()
	if next := l.queued.next(); !next.IsZero() { // a waiting operation is canceled at its deadline
		// An operation in flight that is hung from its deadline may make room for one that waits.
		wake = earliest(wake, earliest(next, l.started.next()))
	}
	return earliest(wake, l.locks.nextWake())
}

// earliest returns the earlier of two times, of which zero means never.
func earliest(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

func (l *Loop) step(ev world.Event) {
	var started time.Duration
	if l.opts.Stopwatch != nil {
		started = l.opts.Stopwatch()
	}
	effects := l.opts.Core.Step(ev)
	if l.opts.Stopwatch != nil {
		l.stepDurations.Add(l.opts.Stopwatch() - started)
	}
	if l.opts.Observe != nil {
		l.opts.Observe(ev, effects)
	}
	for _, eff := range effects {
		l.dispatch(eff)
	}
}

// dispatch hands an effect to its port. An operation may have to wait for its path lock or for a
// slot in its lane first.
func (l *Loop) dispatch(eff world.Effect) {
	if c, ok := eff.Body.(*world.CancelOperation); ok {
		l.cancelOperation(c.Operation)
		return
	}
	name := world.PortOf(eff.Body)
	port := l.opts.Ports[name]
	if port == nil {
		panic(fmt.Sprintf("loop: no port %q for %s", name, world.BodyName(eff.Body)))
	}
	if eff.Op == 0 {
		port.Do(eff)
		return
	}
	if eff.Deadline.IsZero() {
		panic(fmt.Sprintf("loop: %s has no deadline", world.BodyName(eff.Body)))
	}
	if l.acquire(eff) {
		l.startOrQueue(eff)
	}
}

// finish starts the operations that waited for the lane slot or the path lock of a completed
// operation.
func (l *Loop) finish(op *operation) {
	l.startWaiting(op.lane)
	l.releasePaths(op.effect.Op)
}

// cancelOperation carries out a world.CancelOperation. An operation that waits for its path goes on
// to wait: those are short, and the core cancels none of them.
func (l *Loop) cancelOperation(id world.OpID) {
	if op := l.waiting[id]; op != nil {
		l.queued.remove(op)
		l.drop(op, "is not wanted any more")
		return
	}
	op := l.inFlight[id]
	if op == nil {
		return
	}
	port := l.opts.Ports[world.PortOf(op.effect.Body)]
	if c, ok := port.(world.Canceler); ok {
		c.Cancel(id)
	}
}

// drop completes an operation that waits for a slot, and is no longer queued, without starting it.
func (l *Loop) drop(op *operation, reason string) {
	delete(l.waiting, op.effect.Op)
	l.lanes[op.lane].withdraw(op)
	l.cancel(op.effect, reason)
	l.releasePaths(op.effect.Op)
}

func (l *Loop) cancel(eff world.Effect, reason string) {
	l.canceledOperations++
	l.inbox.push(world.Event{Op: eff.Op,
		Err: world.Errorf(world.KindCanceled, world.CallName(eff.Body), "%s", reason)})
}
