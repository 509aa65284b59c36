package cri_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a gRPC server that answers any call by one function, whatever the method: methods
// that are not registered come to the unknown service handler.
type runtime struct {
	socket string
	answer func(ctx context.Context, method string) (proto.Message, error)
	stream func(grpc.ServerStream) error // answers instead, if it is set
	server *grpc.Server
	served sync.WaitGroup
}

func newRuntime(t *testing.T) *runtime {
	dir, err := os.MkdirTemp("", "cri") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &runtime{socket: filepath.Join(dir, "runtime.sock")}
}

func (r *runtime) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	r.server = grpc.NewServer(grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			if r.stream != nil {
				return r.stream(stream)
			}
			method, _ := grpc.MethodFromServerStream(stream)
			answer, err := r.answer(stream.Context(), method)
			if err != nil {
				return err
			}
			return stream.SendMsg(answer)
		}))
	r.served.Go(func() { _ = r.server.Serve(listener) })
}

// kill ends the server as SIGKILL does: connections break, the socket's file stays.
func (r *runtime) kill(t *testing.T) {
	t.Helper()
	r.server.Stop()
	r.served.Wait()
	_ = os.Remove(r.socket)
}

// bench is a port and what it has said.
type bench struct {
	t       *testing.T
	port    *cri.Port
	clock   clock.Clock
	answers chan world.Event
	lastOp  world.OpID

	mu     sync.Mutex
	room   int // for events
	events []*runtimeapi.ContainerEventResponse
}

func (b *bench) offer(ev world.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == b.room {
		return false
	}
	b.events = append(b.events, ev.Body.(*runtimeapi.ContainerEventResponse))
	return true
}

func (b *bench) heard() []*runtimeapi.ContainerEventResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events
}

func newBench(t *testing.T, r *runtime) *bench {
	b := &bench{t: t, clock: clock.New(), answers: make(chan world.Event, 64), room: 64}
	port, err := cri.New(cri.Options{
		RuntimeEndpoint: "unix://" + r.socket, Clock: b.clock,
		Deliver: func(ev world.Event) { b.answers <- ev }, Offer: b.offer,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.port = port
	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) do(body any, timeout time.Duration) (any, *world.Error) {
	b.t.Helper()
	b.lastOp++
	b.port.Do(world.Effect{Op: b.lastOp, Body: body, Deadline: b.clock.Now().Add(timeout)})
	select {
	case ev := <-b.answers:
		if ev.Op != b.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			b.t.Fatalf("%s answered by %+v", world.Call(body), ev)
		}
		return ev.Body, ev.Err
	case <-time.After(timeout + 5*time.Second):
		b.t.Fatalf("%s is not answered", world.Call(body))
		return nil, nil
	}
}

// complete are answers that lack nothing.
var complete = map[string]proto.Message{
	"RunPodSandbox":   &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s"},
	"CreateContainer": &runtimeapi.CreateContainerResponse{ContainerId: "c"},
	"PodSandboxStatus": &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}},
	"ContainerStatus": &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}},
}

// Every request body there is reaches the method of its name and is answered by its response.
func TestEveryCall(t *testing.T) {
	r := newRuntime(t)
	r.answer = func(_ context.Context, method string) (proto.Message, error) {
		call := method[strings.LastIndexByte(method, '/')+1:]
		if m := complete[call]; m != nil {
			return m, nil
		}
		body, err := world.ParseBody(call+"Response", nil)
		return body.(proto.Message), err
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	calls := 0
	for _, name := range world.BodyNames() {
		call, isRequest := strings.CutSuffix(name, "Request")
		body, err := world.ParseBody(name, nil)
		if _, isCRI := body.(proto.Message); err != nil || !isRequest || !isCRI ||
			call == "GetEvents" { // has no response: see stream_test.go
			continue
		}
		answer, failed := b.do(body, 5*time.Second)
		if failed != nil {
			t.Errorf("%s: %v", call, failed)
		} else if got := world.BodyName(answer); got != call+"Response" {
			t.Errorf("%s is answered by %s", call, got)
		}
		calls++
	}
	if calls < 18 {
		t.Errorf("tried %d calls, want all", calls)
	}
}

func TestErrors(t *testing.T) {
	cases := []struct {
		body any
		err  error
		want world.ErrorKind
	}{
		{&runtimeapi.ContainerStatusRequest{}, status.Error(codes.NotFound, "x"), world.KindNotFound},
		{&runtimeapi.PullImageRequest{}, status.Error(codes.AlreadyExists, "x"), world.KindExists},
		{&runtimeapi.PullImageRequest{}, status.Error(codes.InvalidArgument, "x"), world.KindInvalid},
		{&runtimeapi.RuntimeConfigRequest{}, status.Error(codes.Unimplemented, "x"),
			world.KindInvalid},
		{&runtimeapi.PullImageRequest{}, status.Error(codes.PermissionDenied, "x"),
			world.KindRefused},
		{&runtimeapi.PullImageRequest{}, status.Error(codes.Unauthenticated, "x"), world.KindRefused},
		{&runtimeapi.PullImageRequest{}, status.Error(codes.ResourceExhausted, "x"),
			world.KindExhausted},
		{&runtimeapi.StopContainerRequest{}, status.Error(codes.DeadlineExceeded, "x"),
			world.KindTimeout},
		{&runtimeapi.VersionRequest{}, status.Error(codes.Unavailable, "x"), world.KindUnavailable},
		{&runtimeapi.VersionRequest{}, status.Error(codes.Canceled, "x"), world.KindUnavailable},
		{&runtimeapi.VersionRequest{}, status.Error(codes.FailedPrecondition, "x"),
			world.KindInternal},
		{&runtimeapi.VersionRequest{}, status.Error(codes.Internal, "x"), world.KindInternal},
		{&runtimeapi.VersionRequest{}, status.Error(codes.Unknown, "x"), world.KindInternal},
		{&runtimeapi.VersionRequest{},
			status.Error(codes.Unknown, "server is not initialized yet"), world.KindUnavailable},
		{&runtimeapi.RunPodSandboxRequest{}, status.Error(codes.Unknown,
			`failed to reserve sandbox name "n": name "n" is reserved for "id"`), world.KindExists},
		{&runtimeapi.CreateContainerRequest{}, status.Error(codes.Unavailable,
			`failed to reserve container name: name "n" is reserved for "id"`), world.KindExists},
		{&runtimeapi.RemoveContainerRequest{}, status.Error(codes.Unknown,
			`name "n" is reserved for "id"`), world.KindInternal},
	}
	r := newRuntime(t)
	var fail error
	r.answer = func(context.Context, string) (proto.Message, error) { return nil, fail }
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	for _, c := range cases {
		fail = c.err
		_, err := b.do(c.body, 5*time.Second)
		if !err.Has(c.want) || err.Op != world.Call(c.body) ||
			err.Message != status.Convert(c.err).Message() {
			t.Errorf("%s failing with %q gives %v, want %s", world.Call(c.body), c.err, err, c.want)
		}
	}
}

func TestIncompleteAnswers(t *testing.T) {
	cases := []struct{ request, answer proto.Message }{
		{&runtimeapi.RunPodSandboxRequest{}, &runtimeapi.RunPodSandboxResponse{}},
		{&runtimeapi.CreateContainerRequest{}, &runtimeapi.CreateContainerResponse{}},
		{&runtimeapi.PodSandboxStatusRequest{}, &runtimeapi.PodSandboxStatusResponse{}},
		{&runtimeapi.ContainerStatusRequest{}, &runtimeapi.ContainerStatusResponse{}},
		{&runtimeapi.ListPodSandboxRequest{}, &runtimeapi.ListPodSandboxResponse{
			Items: []*runtimeapi.PodSandbox{{Id: "no metadata"}}}},
		{&runtimeapi.ListContainersRequest{}, &runtimeapi.ListContainersResponse{
			Containers: []*runtimeapi.Container{{Metadata: &runtimeapi.ContainerMetadata{}}}}},
	}
	r := newRuntime(t)
	var answer proto.Message
	r.answer = func(context.Context, string) (proto.Message, error) { return answer, nil }
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	for _, c := range cases {
		answer = c.answer
		body, err := b.do(c.request, 5*time.Second)
		if !err.Has(world.KindInternal) || !strings.Contains(err.Message, "answer has no") {
			t.Errorf("%T gives %v and error %v, want Internal", c.answer, body, err)
		}
	}
}

func TestDeadline(t *testing.T) {
	r := newRuntime(t)
	r.answer = func(ctx context.Context, _ string) (proto.Message, error) {
		<-ctx.Done() // a runtime that hangs
		return nil, ctx.Err()
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	began := time.Now()
	_, err := b.do(&runtimeapi.VersionRequest{}, 200*time.Millisecond)
	if !err.Has(world.KindTimeout) {
		t.Errorf("error %v, want Timeout", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("answered after %v, want 200ms", took)
	}
	if _, err := b.do(&runtimeapi.VersionRequest{}, -time.Second); !err.Has(world.KindTimeout) {
		t.Errorf("past its deadline: error %v, want Timeout", err)
	}
}

func TestLargeAnswers(t *testing.T) {
	r := newRuntime(t)
	bytes := 15 << 20
	r.answer = func(context.Context, string) (proto.Message, error) {
		return &runtimeapi.VersionResponse{RuntimeName: strings.Repeat("x", bytes)}, nil
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	if _, err := b.do(&runtimeapi.VersionRequest{}, 10*time.Second); err != nil {
		t.Errorf("15 MiB: %v", err)
	}
	bytes = 17 << 20
	if _, err := b.do(&runtimeapi.VersionRequest{}, 10*time.Second); !err.Has(world.KindInternal) {
		t.Errorf("17 MiB: error %v, want Internal: the call has been carried out", err)
	}
}

// The runtime is away when the agent starts, comes, is killed in the middle of a call, and comes
// back, twice.
func TestRuntimeComesAndGoes(t *testing.T) {
	r := newRuntime(t)
	hang := make(chan struct{})
	r.answer = func(ctx context.Context, method string) (proto.Message, error) {
		if strings.HasSuffix(method, "/Status") {
			hang <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &runtimeapi.VersionResponse{}, nil
	}
	b := newBench(t, r)
	for range 2 {
		began := time.Now()
		_, err := b.do(&runtimeapi.VersionRequest{}, time.Minute)
		if took := time.Since(began); !err.Has(world.KindUnavailable) || took > time.Second {
			t.Fatalf("away: error %v after %v, want Unavailable at once", err, took)
		}
		r.start(t)
		began = time.Now()
		for err != nil && time.Since(began) < 5*time.Second {
			_, err = b.do(&runtimeapi.VersionRequest{}, time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Fatalf("back: %v after %v, want an answer within 2s", err, took)
		}
		b.port.Do(world.Effect{Op: 99, Body: &runtimeapi.StatusRequest{},
			Deadline: b.clock.Now().Add(time.Minute)})
		<-hang
		r.kill(t)
		ev := <-b.answers
		if ev.Op != 99 || !ev.Err.Has(world.KindUnavailable) {
			t.Fatalf("killed in the middle of a call: %+v, want Unavailable", ev)
		}
	}
}

func TestBadEndpoints(t *testing.T) {
	for _, endpoint := range []string{"", "tcp://127.0.0.1:1", "unix://", "http://x", "unix://%zz"} {
		port, err := cri.New(cri.Options{RuntimeEndpoint: endpoint})
		if err == nil {
			t.Errorf("%q is taken", endpoint)
			_ = port.Close()
		} else if !strings.Contains(err.Error(), "container runtime endpoint") {
			t.Errorf("%q: error %q does not name what is wrong", endpoint, err)
		}
	}
}

func TestCloseAnswersWhatIsInFlight(t *testing.T) {
	r := newRuntime(t)
	r.answer = func(ctx context.Context, _ string) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.start(t)
	defer r.kill(t)
	b := newBench(t, r)
	b.port.Do(world.Effect{Op: 1, Body: &runtimeapi.VersionRequest{},
		Deadline: b.clock.Now().Add(time.Minute)})
	if err := b.port.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-b.answers; ev.Op != 1 || !ev.Err.Has(world.KindUnavailable) {
		t.Errorf("answered by %+v, want Unavailable", ev)
	}
}
