package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// streamEvents delivers container events until the stream ends, and returns the reason. It never
// returns nil: a stream that ends without an error, as when the runtime shuts down, is a lost
// stream too. It never drops an event and continues: without room for an event the stream ends, so
// that the core knows that events are missing. And it never waits for room: a listener that does
// not read blocks containerd's whole CRI service after about a hundred events.
func (p *Port) streamEvents(ctx context.Context, m *runtimeapi.GetEventsRequest) error {
	// gRPC keeps a stream until the stream or its context has ended.
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
			return streamError(world.KindUnavailable, "the runtime has ended the stream")
		case err != nil:
			return err
		}
		if err := checkComplete(event); err != nil {
			return fmt.Errorf("container event: %w", err)
		}
		if !p.opts.Offer(world.Event{Body: event}) {
			return streamError(world.KindExhausted, "no room for an event: the stream was given up")
		}
	}
}

func streamError(kind world.ErrorKind, message string) error {
	return world.Errorf(kind, "GetEvents", "%s", message)
}
