package cri_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// A call has the context of its operation, which the interceptors of the dial options see.
func TestCallsAreTraced(t *testing.T) {
	type key struct{}
	r, ticks := newRuntime(t), clock.New()
	r.handle = func(context.Context, string) (proto.Message, error) {
		return &runtimeapi.VersionResponse{}, nil
	}
	r.start(t)
	defer r.kill(t)
	answers, seen := make(chan world.Event, 1), make(chan any, 1)
	port, err := cri.New(cri.Options{
		RuntimeEndpoint: "unix://" + r.socket, Clock: ticks,
		Deliver: func(ev world.Event) { answers <- ev },
		Trace: func(ctx context.Context, id world.OpID) context.Context {
			return context.WithValue(ctx, key{}, id)
		},
		Dial: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string,
			request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption) error {
			seen <- ctx.Value(key{})
			return invoke(ctx, method, request, reply, conn, opts...)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	port.Do(world.Effect{Op: 7, Body: &runtimeapi.VersionRequest{},
		Deadline: ticks.Now().Add(porttest.Patience)})
	if got := <-seen; got != world.OpID(7) {
		t.Errorf("the call has the context of operation %v, want 7", got)
	}
	if ev := <-answers; ev.Op != 7 || ev.Err != nil {
		t.Errorf("completed by %+v", ev)
	}
}
