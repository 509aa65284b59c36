// Package loop drives a world.Core: it holds the inbox, calls Step one event at a time, wakes
// the core when it asked for it, hands effects to their ports, and holds back what would be too
// much at once.
//
// It has no goroutine and no clock. Production calls Offer and Turn from one goroutine that waits
// for a channel or a timer; the simulator calls them with virtual time. Start reading at Turn.
package loop

import (
	"fmt"
	"time"

	"seedlet.dev/world"
)

// Options are what a loop is made of.
type Options struct {
	Core   world.Core
	Ports  map[world.PortName]world.Port // every port that the core's effects name
	Limits Limits                        // zero fields take their defaults
	// Stopwatch reads a monotonic clock, to measure steps. Nil measures nothing.
	Stopwatch func() time.Duration
	// Observe, if not nil, sees every step: the event and the effects it led to.
	Observe func(world.Event, []world.Effect)
}

// Loop is a core and what is on its way to and from it. It is for one goroutine.
type Loop struct {
	opts     Options
	inbox    queue[world.Event]
	flying   map[world.OpID]Lane // operations that a port has begun and not yet answered
	lanes    [laneCount]laneState
	turns    turns
	last     time.Time // of the newest event
	refused  uint64
	canceled uint64
	steps    Histogram
}

type laneState struct {
	flying  int
	waiting line
}

// New makes a loop. The core is not called until the first event is offered.
func New(opts Options) *Loop {
	opts.Limits = opts.Limits.withDefaults()
	return &Loop{opts: opts, flying: map[world.OpID]Lane{}}
}

// Offer puts an event into the inbox; its time is set when its turn comes. It reports false when
// the inbox is full and the event was not taken. Completions are always taken: there are never
// more of them than operations in flight.
func (l *Loop) Offer(ev world.Event) bool {
	if ev.Op == 0 && l.inbox.len() >= l.opts.Limits.Inbox {
		l.refused++
		return false
	}
	l.inbox.push(ev)
	return true
}

// Turn takes one event from the inbox, or wakes the core if it is due, and hands out what the
// core asks for. It reports false when there was nothing to do.
func (l *Loop) Turn(now time.Time) bool {
	if now.Before(l.last) {
		now = l.last // a clock that steps back stands still instead
	}
	l.cancelExpired(now)
	ev, ok := l.inbox.pop()
	if !ok {
		wake := l.opts.Core.NextWake()
		if wake.IsZero() || wake.After(now) {
			return false
		}
	}
	ev.Time, l.last = now, now
	if lane, was := l.flying[ev.Op]; was {
		delete(l.flying, ev.Op)
		l.lanes[lane].flying--
		defer l.landed(ev.Op, lane)
	}
	l.step(ev)
	return true
}

// Wake says when Turn has something to do, if nothing is offered: the zero time means never.
func (l *Loop) Wake() time.Time {
	if l.inbox.len() > 0 {
		return l.last
	}
	wake := l.opts.Core.NextWake()
	for i := range l.lanes { // what waits for a place is given up at its deadline
		for k := range l.lanes[i].waiting {
			for _, eff := range l.lanes[i].waiting[k].all() {
				if wake.IsZero() || eff.Deadline.Before(wake) {
					wake = eff.Deadline
				}
			}
		}
	}
	if end := l.turns.wake(); !end.IsZero() && (wake.IsZero() || end.Before(wake)) {
		wake = end
	}
	return wake
}

func (l *Loop) step(ev world.Event) {
	var began time.Duration
	if l.opts.Stopwatch != nil {
		began = l.opts.Stopwatch()
	}
	effects := l.opts.Core.Step(ev)
	if l.opts.Stopwatch != nil {
		l.steps.Add(l.opts.Stopwatch() - began)
	}
	if l.opts.Observe != nil {
		l.opts.Observe(ev, effects)
	}
	for _, eff := range effects {
		l.dispatch(eff)
	}
}

// dispatch hands an effect to its port, or lets it wait for a place in its lane.
func (l *Loop) dispatch(eff world.Effect) {
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
	if l.takeTurn(eff) {
		l.enter(eff)
	}
}

// enter begins an operation, or lets it wait for a place in its lane.
func (l *Loop) enter(eff world.Effect) {
	lane := LaneOf(eff)
	if l.lanes[lane].flying >= l.opts.Limits.Flying[lane] {
		l.lanes[lane].waiting.push(eff)
		return
	}
	l.begin(lane, eff)
}

func (l *Loop) begin(lane Lane, eff world.Effect) {
	l.lanes[lane].flying++
	l.flying[eff.Op] = lane
	l.opts.Ports[world.PortOf(eff.Body)].Do(eff)
}

// landed begins what waited for the place, or for the turn, of an operation that was answered.
func (l *Loop) landed(op world.OpID, lane Lane) {
	l.release(lane)
	l.endTurn(op)
}

// release begins what waited for a place in a lane.
func (l *Loop) release(lane Lane) {
	for l.lanes[lane].flying < l.opts.Limits.Flying[lane] {
		eff, ok := l.lanes[lane].waiting.pop()
		if !ok {
			return
		}
		l.begin(lane, eff)
	}
}

// cancelExpired gives up what waited for a place until its deadline: it has not been begun, and
// beginning it now would act on a wish that the core no longer remembers.
func (l *Loop) cancelExpired(now time.Time) {
	var ended []world.OpID
	for i := range l.lanes {
		for k := range l.lanes[i].waiting {
			waiting := &l.lanes[i].waiting[k]
			for n := waiting.len(); n > 0; n-- {
				eff, _ := waiting.pop()
				if now.Before(eff.Deadline) {
					waiting.push(eff)
					continue
				}
				l.cancel(eff, "waited for a free place until its deadline")
				ended = append(ended, eff.Op)
			}
		}
	}
	for _, op := range ended {
		l.endTurn(op)
	}
	l.refuseWaiting(now)
}

func (l *Loop) cancel(eff world.Effect, why string) {
	l.canceled++
	l.inbox.push(world.Event{Op: eff.Op,
		Err: world.Errorf(world.KindCanceled, world.Call(eff.Body), "%s", why)})
}
