// Package runner drives a core in the production world: one goroutine owns the loop, and every
// port offers its events to it from goroutines of its own.
//
// The contract:
//
//  1. Answers are delivered with Deliver, which waits for its turn. There are never more of them
//     than operations in flight, which the loop bounds.
//  2. Requests from outside are offered with Offer, which never waits: when the queue is full
//     they are refused, and it is for the port to say so.
//  3. Ports are called on the runner's goroutine and must not block it.
//  4. The first event is the boot, the last one the shutdown. Ending ends nothing that runs.
//
// Start reading at Run.
package runner

import (
	"context"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// incomingMax bounds the events that wait for the loop's goroutine. The loop's own inbox holds
// one at a time, so this is the queue that pushes back.
const incomingMax = 1024

// Runner hands events from many goroutines to a loop on one. Make it with New, make the ports
// with it, and then Run.
type Runner struct {
	clock    clock.Clock
	incoming chan world.Event
	ended    chan struct{} // closed when Run returns
}

// New makes a runner. Events may be offered before it runs.
func New(c clock.Clock) *Runner {
	return &Runner{
		clock:    c,
		incoming: make(chan world.Event, incomingMax),
		ended:    make(chan struct{}),
	}
}

// Deliver hands an event to the core and waits until there is room for it. Once the runner has
// ended it drops the event. It must not be called on the runner's own goroutine.
func (r *Runner) Deliver(ev world.Event) {
	select {
	case r.incoming <- ev:
	case <-r.ended:
	}
}

// Offer hands an event to the core if there is room for it, and reports whether there was.
func (r *Runner) Offer(ev world.Event) bool {
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

// Run drives the loop until the context is done, from the boot to the shutdown, whose reason is
// the context's cause. It is called once. A panic of the core passes through it.
func (r *Runner) Run(ctx context.Context, l *loop.Loop, boot *world.Boot) {
	defer close(r.ended)
	l.Offer(world.Event{Body: boot})
	for ctx.Err() == nil {
		r.takeOne(l)
		if !l.Turn(r.clock.Now()) {
			r.wait(ctx, l)
		}
	}
	l.Offer(world.Event{Body: &world.Shutdown{Reason: context.Cause(ctx).Error()}})
	for turns := 0; turns <= incomingMax && l.Turn(r.clock.Now()); turns++ {
		// The shutdown is behind what is in the inbox already, which is little: see takeOne.
	}
}

// takeOne moves at most one event into the loop's inbox. One in, one out: the inbox stays short,
// and what waits does so in the channel, where Offer sees that it is full.
func (r *Runner) takeOne(l *loop.Loop) {
	select {
	case ev := <-r.incoming:
		l.Offer(ev)
	default:
	}
}

// wait sleeps until an event comes, the core is due, or the context is done.
func (r *Runner) wait(ctx context.Context, l *loop.Loop) {
	var due <-chan time.Time
	if wake := l.Wake(); !wake.IsZero() {
		timer := time.NewTimer(r.clock.Until(wake))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case ev := <-r.incoming:
		l.Offer(ev)
	case <-due:
	case <-ctx.Done():
	}
}
