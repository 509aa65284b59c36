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

// narrator makes a runtime tell some events and then end the stream as end does.
func narrator(t *testing.T, r *runtime, events int, end func(context.Context) error) {
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
		{"not offered", func(context.Context) error {
			return status.Error(codes.Unimplemented, "x")
		}, time.Minute, world.KindInvalid},
		{"at its deadline", hang, 300 * time.Millisecond, world.KindTimeout},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRuntime(t)
			narrator(t, r, 3, c.end)
			b := newBench(t, r)
			_, err := b.do(&runtimeapi.GetEventsRequest{}, c.deadline)
			if !err.Has(c.want) || err.Op != "GetEvents" {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if heard := b.heard(); len(heard) != 3 || heard[2].ContainerId != "2" {
				t.Errorf("heard %v, want events 0, 1 and 2", heard)
			}
		})
	}
}

// An event that there is no room for ends the stream: the ones after it are not taken either.
func TestStreamIsGivenUpWhenThereIsNoRoom(t *testing.T) {
	r := newRuntime(t)
	narrator(t, r, 10, hang)
	b := newBench(t, r)
	b.room = 4
	_, err := b.do(&runtimeapi.GetEventsRequest{}, time.Minute)
	if !err.Has(world.KindExhausted) || len(b.heard()) != 4 {
		t.Errorf("error %v after %d events, want Exhausted after 4", err, len(b.heard()))
	}
}

func TestStreamOfBrokenEvents(t *testing.T) {
	r := newRuntime(t)
	r.stream = func(stream grpc.ServerStream) error {
		return stream.SendMsg(&runtimeapi.ContainerEventResponse{})
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	_, err := b.do(&runtimeapi.GetEventsRequest{}, time.Minute)
	if !err.Has(world.KindInternal) || len(b.heard()) != 0 {
		t.Errorf("error %v after %v, want Internal", err, b.heard())
	}
}

func TestStreamOfARuntimeThatGoes(t *testing.T) {
	r := newRuntime(t)
	b := newBench(t, r)
	if _, err := b.do(&runtimeapi.GetEventsRequest{}, time.Minute); !err.Has(
		world.KindUnavailable) {
		t.Errorf("away: error %v, want Unavailable", err)
	}
}

func TestCloseEndsTheStream(t *testing.T) {
	r := newRuntime(t)
	narrator(t, r, 1, hang)
	b := newBench(t, r)
	b.port.Do(world.Effect{Op: 1, Body: &runtimeapi.GetEventsRequest{},
		Deadline: b.clock.Now().Add(time.Minute)})
	if err := b.port.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-b.answers; ev.Op != 1 || !ev.Err.Has(world.KindUnavailable) {
		t.Errorf("answered by %+v, want Unavailable", ev)
	}
}
