// Package apiserver carries out the effects of the API server port on a real one.
//
// It has four ways to the server, so that what matters never waits for what does not: heartbeats
// (the node and its lease) have a connection of their own and no limit; statuses of pods, Event
// objects, and everything else have a limit each. See ways.go.
//
// The contract: Do never blocks. Every operation is answered exactly once, before or soon after
// its deadline, and is asked of the server at most once: nothing is repeated here. Watches are
// reflectors of client-go, which do repeat; see watch.go. What the server cannot take now is
// KindThrottled; what has waited here for its limit until the deadline is KindCanceled. Objects
// are told without their managedFields, which nobody reads and which are half of them.
// Start reading at Port and operate.
package apiserver

import (
	"context"
	"fmt"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/flight"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/world"
)

// Options are what a port is made of.
type Options struct {
	Identity *identity.Identity // who asks; the port connects, and closes what it has connected
	NodeName string
	// ContentType is what objects are sent as; empty for JSON.
	ContentType string
	// QPS bounds the requests in a second, Burst those at once; of Event objects in particular.
	// Zero QPS is no limit.
	QPS, EventQPS     float32
	Burst, EventBurst int
	// HeartbeatTimeout is the longest that a heartbeat may take.
	HeartbeatTimeout time.Duration
	// RetryMin and RetryMax bound how long a watch waits before it tries again. Zero takes the
	// defaults.
	RetryMin, RetryMax time.Duration
	Clock              clock.Clock
	// Deliver takes the events, in the order of each watch, and waits until there is room for
	// them. It is called from many goroutines.
	Deliver func(world.Event)
}

// Port is a world.Port for the API server. Close it when done.
type Port struct {
	opts    Options
	ways    *ways
	flights *flight.Flights

	recorder *recorder
	// watches ends them, by their ids. It belongs to whoever calls Do.
	watches map[world.WatchID]context.CancelFunc
}

// New makes a port. It asks the server nothing.
func New(opts Options) (*Port, error) {
	w, err := newWays(opts)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &Port{
		opts: opts, ways: w, flights: flight.New(opts.Clock, opts.Deliver),
		watches: map[world.WatchID]context.CancelFunc{}, recorder: newRecorder(opts, w.events),
	}, nil
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) {
	switch m := eff.Body.(type) {
	case *world.WatchObjects:
		p.watch(m)
	case *world.RecordEvent:
		p.recorder.record(m)
	case *world.UnwatchObjects:
		if end := p.watches[m.Watch]; end != nil {
			end()
			delete(p.watches, m.Watch)
		}
	default:
		p.flights.Begin(eff, p.carryOut)
	}
}

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	way := p.ways.of(request)
	if way == p.ways.heartbeats {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.HeartbeatTimeout)
		defer cancel()
	}
	body, err := way.operate(ctx, request)
	if err == nil {
		return body, nil
	}
	told := mapped(ctx, world.Call(request), err)
	if way == p.ways.heartbeats && (told.Has(world.KindTimeout) || told.Has(world.KindUnavailable)) {
		// The connection may be dead without anybody having said so, and if one is, so may the
		// others be (kubernetes/kubernetes#48638).
		p.ways.reconnect()
	}
	return nil, told
}

// Close ends the watches and gives up the operations in flight, and waits until they have ended.
// Do must not be called any more.
func (p *Port) Close() {
	p.flights.Close()
	p.recorder.close()
	p.ways.close()
}
