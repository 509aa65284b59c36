// Package apiserver carries out the effects of the API server port on a real API server.
//
// It has four clients of the server, so that an important request never waits for a less important
// one: heartbeats (the node and its lease) have a connection of their own and no rate limit; pod
// statuses, Event objects, and all other objects have a rate limit each. See clients.go.
//
// The contract: Do never blocks. Every operation is completed by exactly one event, before or soon
// after its deadline, and is sent to the server at most once: requests are not retried here.
// Watches are client-go reflectors, which do retry; see watch.go. A request that the server rejects
// for overload is KindThrottled; an operation that waited for its rate limit until the deadline is
// KindCanceled. Objects are delivered without their managedFields, which no reader needs and which
// are half of their size, and services only with what variables are made of. Start reading at Port
// and execute.
package apiserver

import (
	"context"
	"fmt"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Identity *identity.Identity // of the node; the port opens and closes its own connections
	NodeName string
	// ContentType is the encoding of objects that are sent; empty for JSON.
	ContentType string
	// QPS is the rate limit of requests, Burst how many may be sent at once; EventQPS and
	// EventBurst are those of Event objects. Zero QPS is no limit.
	QPS, EventQPS     float32
	Burst, EventBurst int
	// HeartbeatTimeout bounds the duration of a heartbeat.
	HeartbeatTimeout time.Duration
	// RetryMin and RetryMax bound the backoff of a failing watch. Zero selects the defaults.
	RetryMin, RetryMax time.Duration
	Clock              clock.Clock
	// Deliver receives the events, in the order of each watch, and blocks until there is room for
	// them. It is called from many goroutines.
	Deliver func(world.Event)
}

// Port is a world.Port for the API server. Close it when done.
type Port struct {
	opts       Options
	clients    *clients
	operations *inflight.Operations

	recorder *recorder
	// watches has the cancel function of each watch. Only Do uses it.
	watches map[world.WatchID]context.CancelFunc
}

// New returns a port. It sends no request.
func New(opts Options) (*Port, error) {
	clients, err := newClients(opts)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &Port{
		opts: opts, clients: clients, operations: inflight.New(opts.Clock, opts.Deliver),
		watches: map[world.WatchID]context.CancelFunc{}, recorder: newRecorder(opts, clients.events),
	}, nil
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) {
	switch m := eff.Body.(type) {
	case *world.WatchObjects:
		p.startWatch(m)
	case *world.RecordEvent:
		p.recorder.record(m)
	case *world.UnwatchObjects:
		if cancel := p.watches[m.Watch]; cancel != nil {
			cancel()
			delete(p.watches, m.Watch)
		}
	default:
		p.operations.Start(eff, p.carryOut)
	}
}

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	client := p.clients.forRequest(request)
	if client == p.clients.heartbeats {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.HeartbeatTimeout)
		defer cancel()
	}
	body, err := client.execute(ctx, request)
	if err == nil {
		return body, nil
	}
	worldErr := toWorldError(ctx, world.CallName(request), err)
	if client == p.clients.heartbeats &&
		(worldErr.Has(world.KindTimeout) || worldErr.Has(world.KindUnavailable)) {
		// The connection may be dead without an error, and then the other connection may be too
		// (kubernetes/kubernetes#48638).
		p.clients.reconnect()
	}
	return nil, worldErr
}

// Close ends the watches, cancels the operations in flight, and waits until they have ended. Do
// must not be called after it.
func (p *Port) Close() {
	p.operations.Close()
	p.recorder.close()
	p.clients.close()
}
