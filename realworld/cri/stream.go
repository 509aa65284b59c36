package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// stream hands on container events until the stream ends, and says why it did. It never returns
// nil: a stream that ends without an error, as when the runtime is shut down, is one that has
// been lost. Nor does it ever drop an event and go on: where there is no room for one, the core
// must learn that it has missed something. And it never waits for room: a listener that does not
// read holds up containerd's whole CRI, once about a hundred events wait for it.
func (p *Port) stream(ctx context.Context, m *runtimeapi.GetEventsRequest) error {
	// gRPC keeps a stream until it has ended or its context has.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := p.runtime.GetContainerEvents(ctx, m)
	if err != nil {
		return err
	}
	for {
		event, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return lost(world.KindUnavailable, "the runtime has ended the stream")
		case err != nil:
			return err
		}
		if err := incomplete(event); err != nil {
			return fmt.Errorf("container event: %w", err)
		}
		if !p.opts.Offer(world.Event{Body: event}) {
			return lost(world.KindExhausted, "no room for an event: the stream was given up")
		}
	}
}

func lost(kind world.ErrorKind, message string) error {
	return world.Errorf(kind, "GetEvents", "%s", message)
}
