package cri_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// serveEvents starts a runtime that sends some events and then ends the stream as end does.
func serveEvents(t *testing.T, r *fakeRuntime, events int, end func(context.Context) error) {
	t.Helper()
	r.stream = func(stream grpc.ServerStream) error {
		for i := range events {
			event := &runtimeapi.ContainerEventResponse{ContainerId: fmt.Sprint(i)}
			if err := stream.SendMsg(event); err != nil {
				return err
			}
		}
		return end(stream.Context())
	}
	r.start(t)
	t.Cleanup(func() { r.kill(t) })
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStreamEnds(t *testing.T) {
	cases := []struct {
		name     string
		end      func(context.Context) error
		deadline time.Duration
		want     world.ErrorKind
	}{
		{"in order", func(context.Context) error { return nil }, time.Minute, world.KindUnavailable},
		{"failing", func(context.Context) error { return status.Error(codes.Unknown, "x") },
			time.Minute, world.KindInternal},
		{"unimplemented", func(context.Context) error {
			return status.Error(codes.Unimplemented, "x")
		}, time.Minute, world.KindUnimplemented},
		{"at its deadline", hang, 300 * time.Millisecond, world.KindTimeout},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRuntime(t)
			serveEvents(t, r, 3, c.end)
			h := newHarness(t, r)
			_, err := h.call(&runtimeapi.GetEventsRequest{}, c.deadline)
			if !err.Has(c.want) || err.Op != "GetEvents" {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if received := h.received(); len(received) != 3 || received[2].ContainerId != "2" {
				t.Errorf("received %v, want events 0, 1 and 2", received)
			}
		})
	}
}

// A stream ends at an event for which there is no room: the events after it are not accepted
// either.
func TestStreamEndsWithoutRoom(t *testing.T) {
	r := newRuntime(t)
	serveEvents(t, r, 10, hang)
	h := newHarness(t, r)
	h.capacity = 4
	_, err := h.call(&runtimeapi.GetEventsRequest{}, time.Minute)
	if !err.Has(world.KindExhausted) || len(h.received()) != 4 {
		t.Errorf("error %v after %d events, want Exhausted after 4", err, len(h.received()))
	}
}

func TestStreamOfIncompleteEvents(t *testing.T) {
	r := newRuntime(t)
	r.stream = func(stream grpc.ServerStream) error {
		return stream.SendMsg(&runtimeapi.ContainerEventResponse{})
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	_, err := h.call(&runtimeapi.GetEventsRequest{}, time.Minute)
	if !err.Has(world.KindInternal) || len(h.received()) != 0 {
		t.Errorf("error %v after %v, want Internal", err, h.received())
	}
}

func TestStreamWithoutRuntime(t *testing.T) {
	r := newRuntime(t)
	h := newHarness(t, r)
	if _, err := h.call(&runtimeapi.GetEventsRequest{}, time.Minute); !err.Has(
		world.KindUnavailable) {
		t.Errorf("runtime down: error %v, want Unavailable", err)
	}
}

func TestCloseEndsTheStream(t *testing.T) {
	r := newRuntime(t)
	serveEvents(t, r, 1, hang)
	h := newHarness(t, r)
	h.port.Do(world.Effect{Op: 1, Body: &runtimeapi.GetEventsRequest{},
		Deadline: h.clock.Now().Add(time.Minute)})
	if err := h.port.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-h.completions; ev.Op != 1 || !ev.Err.Has(world.KindUnavailable) {
		t.Errorf("completed by %+v, want Unavailable", ev)
	}
}
