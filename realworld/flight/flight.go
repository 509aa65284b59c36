// Package flight carries out the effects of a real port, each on a goroutine of its own, which is
// all that the ports have in common: the runtime, the file system, the network and the machine.
//
// The contract: Begin never blocks; every effect is answered exactly once, by what the port makes
// of it. The context that it is given is done at the effect's deadline, and when the port is
// closed. How many there are at once is bounded by the loop's lanes. Start reading at Flights.
package flight

import (
	"context"
	"errors"
	"sync"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
)

// Flights are the effects that a port is carrying out.
type Flights struct {
	clock   clock.Clock
	deliver func(world.Event) // called from many goroutines
	ctx     context.Context   // done when the port is closed
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// New makes the flights of a port. Close them when done.
func New(c clock.Clock, deliver func(world.Event)) *Flights {
	f := &Flights{clock: c, deliver: deliver}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Begin has an effect carried out and answered. On an error the body that comes with it means
// nothing.
func (f *Flights) Begin(eff world.Effect,
	carryOut func(ctx context.Context, body any) (any, *world.Error)) {
	f.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, f.clock.Until(eff.Deadline))
		defer cancel()
		body, err := carryOut(ctx, eff.Body)
		if err != nil {
			f.deliver(world.Event{Op: eff.Op, Err: err})
			return
		}
		f.deliver(world.Event{Op: eff.Op, Body: body})
	})
}

// Go runs something of the port's own until it is closed.
func (f *Flights) Go(do func(context.Context)) {
	f.work.Go(func() { do(f.ctx) })
}

// Close gives up what is going on and waits until it has ended. Nothing must begin any more.
// Closing again does nothing.
func (f *Flights) Close() {
	f.cancel()
	f.work.Wait()
}

// Mapped says what an error of an operation means to the core: what it says itself, or that the
// deadline has passed, however that showed, or else what is given.
func Mapped(ctx context.Context, op string, err error, otherwise world.ErrorKind) *world.Error {
	if known, ok := errors.AsType[*world.Error](err); ok {
		return known
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		otherwise = world.KindTimeout
	}
	return world.Errorf(otherwise, op, "%v", err)
}
