// Package inflight carries out the effects of a real port, each on a goroutine of its own. The
// ports of the runtime, the API server, the file system, the network and the host use it.
//
// The contract: Start never blocks, and every effect is completed by exactly one event, whose body
// or error comes from the port. The context of an effect is done at its deadline, when it is
// canceled and when the port is closed. The loop's lanes bound how many effects are in flight. Start
// reading at Operations.
package inflight

import (
	"context"
	"errors"
	"sync"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
)

// Operations are the effects that a port is carrying out.
type Operations struct {
	clock      clock.Clock
	deliver    func(world.Event) // called from many goroutines
	ctx        context.Context   // done when the port is closed
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu      sync.Mutex
	cancels map[world.OpID]context.CancelFunc // of the operations in flight
}

// New returns the operations of a port. Close them when done.
func New(c clock.Clock, deliver func(world.Event)) *Operations {
	o := &Operations{clock: c, deliver: deliver, cancels: map[world.OpID]context.CancelFunc{}}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Start carries out an effect and delivers its completion. If carryOut returns an error, its body
// is ignored.
func (o *Operations) Start(eff world.Effect,
	carryOut func(ctx context.Context, body any) (any, *world.Error)) {
	ctx, cancel := context.WithTimeout(o.ctx, o.clock.Until(eff.Deadline))
	o.mu.Lock()
	o.cancels[eff.Op] = cancel
	o.mu.Unlock()
	o.Go(func(context.Context) {
		body, err := carryOut(ctx, eff.Body)
		o.mu.Lock()
		delete(o.cancels, eff.Op)
		o.mu.Unlock()
		cancel()
		if err != nil {
			o.deliver(world.Event{Op: eff.Op, Err: err})
			return
		}
		o.deliver(world.Event{Op: eff.Op, Body: body})
	})
}

// Cancel ends the context of an operation; one that is not in flight is ignored.
func (o *Operations) Cancel(id world.OpID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cancel := o.cancels[id]; cancel != nil {
		cancel()
	}
}

// Go runs a goroutine of the port's own, whose context is done when the port is closed.
func (o *Operations) Go(do func(context.Context)) {
	o.goroutines.Go(func() { do(o.ctx) })
}

// Close cancels the operations in flight and waits until they have ended. No operation may be
// started after it. A second Close does nothing.
func (o *Operations) Close() {
	o.cancel()
	o.goroutines.Wait()
}

// ToWorldError converts an error of an operation to the core's error type. A *world.Error is
// returned unchanged. After the context's deadline the kind is KindTimeout, whatever the error is;
// otherwise it is the given kind.
func ToWorldError(ctx context.Context, op string, err error,
	otherwise world.ErrorKind) *world.Error {
	if worldErr, ok := errors.AsType[*world.Error](err); ok {
		return worldErr
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		otherwise = world.KindTimeout
	}
	return world.Errorf(otherwise, op, "%v", err)
}
