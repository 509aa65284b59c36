// Package runner drives a core in production: one goroutine owns the loop, and every port offers
// its events to it from goroutines of its own.
//
// The contract:
//
//  1. Completions of operations are delivered with Deliver, which waits for room. There are never
//     more of them than operations in flight, which the loop bounds.
//  2. Events that may be lost are offered with Offer, requests of clients with OfferRequest.
//     Neither waits: when the queue is full they return false, and the port responds with an
//     error. A request that was given up before its turn is dropped and never reaches the core.
//  3. Ports are called on the runner's goroutine and must not block it.
//  4. The first event is the boot, the last one the shutdown. A shutdown of the agent stops no pod.
//
// Start reading at Run.
package runner

import (
	"context"
	"sync/atomic"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// incomingMax bounds the events that wait for the loop's goroutine. The loop's inbox holds one
// event at a time, so back-pressure comes from this queue.
const incomingMax = 1024

// Runner hands events from many goroutines to a loop on a single one. Create it with New, create
// the ports with it, then call Run.
type Runner struct {
	clock    clock.Clock
	offset   func() time.Duration // of the date, replaced by tests
	reported time.Duration        // the offset that the core knows
	incoming chan queuedEvent
	ended    chan struct{} // closed when Run returns
	dropped  atomic.Uint64 // requests that were given up
}

// queuedEvent is an event that waits for the loop's goroutine.
type queuedEvent struct {
	event   world.Event
	request context.Context // of the client; nil if the event is no request
}

// New returns a runner. Events may be offered before Run.
func New(c clock.Clock) *Runner {
	return &Runner{
		clock:    c,
		offset:   c.Offset,
		incoming: make(chan queuedEvent, incomingMax),
		ended:    make(chan struct{}),
	}
}

// Deliver hands an event to the core and waits until the queue has room. After Run has returned the
// event is dropped. Deliver must not be called on the runner's own goroutine.
func (r *Runner) Deliver(ev world.Event) {
	select {
	case r.incoming <- queuedEvent{event: ev}:
	case <-r.ended:
	}
}

// Offer hands an event to the core if the queue has room, and reports whether it did.
func (r *Runner) Offer(ev world.Event) bool { return r.offer(queuedEvent{event: ev}) }

// OfferRequest is Offer for a request of a client. The request is dropped if its context is done
// when its turn comes: the core shall not work for clients that have gone.
func (r *Runner) OfferRequest(ctx context.Context, ev world.Event) bool {
	return r.offer(queuedEvent{ev, ctx})
}

// Metrics returns the metrics of the queue.
func (r *Runner) Metrics() []world.Metric {
	return []world.Metric{{Name: "seedlet_http_requests_dropped_total", Counter: true,
		Value: float64(r.dropped.Load()),
		Help: "Requests that were dropped before they reached the core, because their client had " +
			"disconnected or their time had passed."}}
}

func (r *Runner) offer(ev queuedEvent) bool {
	select {
	case <-r.ended:
		return false
	default:
	}
	select {
	case r.incoming <- ev:
		return true
	default:
		return false
	}
}

// Run drives the loop from the boot until the context is done, then hands the core the shutdown
// with the context's cause as its reason. It is called once. A panic of the core passes through it.
func (r *Runner) Run(ctx context.Context, l *loop.Loop, boot *world.Boot) {
	defer close(r.ended)
	l.Offer(world.Event{Body: boot})
	for ctx.Err() == nil {
		r.reportClockStep(l)
		r.receiveOne(l)
		if !l.Turn(r.clock.Now()) {
			r.wait(ctx, l)
		}
	}
	l.Offer(world.Event{Body: &world.Shutdown{Reason: context.Cause(ctx).Error()}})
	for turns := 0; turns <= incomingMax && l.Turn(r.clock.Now()); turns++ {
		// The shutdown waits behind the events in the inbox, which are few: see receiveOne.
	}
}

// receiveOne moves at most one event into the loop's inbox. The inbox stays short, and events wait
// in the channel, where Offer sees that the queue is full.
func (r *Runner) receiveOne(l *loop.Loop) {
	for range incomingMax { // requests that were given up are passed over
		select {
		case ev := <-r.incoming:
			if r.handOver(l, ev) {
				return
			}
		default:
			return
		}
	}
}

// handOver offers an event to the loop. It drops a request that was given up and returns false.
func (r *Runner) handOver(l *loop.Loop, ev queuedEvent) bool {
	if ev.request != nil && ev.request.Err() != nil {
		r.dropped.Add(1)
		return false
	}
	r.reportClockStep(l)
	l.Offer(ev.event)
	return true
}

// clockStepMin is the least change of the date that is reported. Smaller ones matter to no reader
// of a timestamp.
const clockStepMin = 500 * time.Millisecond

// reportClockStep hands the core a change of the date, before whatever happens next.
func (r *Runner) reportClockStep(l *loop.Loop) {
	if offset := r.offset(); (offset - r.reported).Abs() >= clockStepMin {
		r.reported = offset
		l.Offer(world.Event{Body: &world.ClockStepped{Offset: offset}})
	}
}

// wait sleeps until an event arrives, the core's next wake-up is due, or the context is done.
func (r *Runner) wait(ctx context.Context, l *loop.Loop) {
	var due <-chan time.Time
	if wake := l.NextWake(); !wake.IsZero() {
		timer := time.NewTimer(r.clock.Until(wake))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case ev := <-r.incoming:
		r.handOver(l, ev)
	case <-due:
	case <-ctx.Done():
	}
}
