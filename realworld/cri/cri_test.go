package cri_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime is a gRPC server with one handler for all methods: calls of unregistered methods
// reach the unknown service handler.
type fakeRuntime struct {
	socket string
	handle func(ctx context.Context, method string) (proto.Message, error)
	stream func(grpc.ServerStream) error // replaces handle, if set
	// moreSandboxes is how many serveContainers lists beside three.
	moreSandboxes int
	away          atomic.Bool // serveContainers lists none
	server        *grpc.Server
	served        sync.WaitGroup
}

func newRuntime(t *testing.T) *fakeRuntime {
	dir, err := os.MkdirTemp("", "cri") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &fakeRuntime{socket: filepath.Join(dir, "runtime.sock")}
}

func (r *fakeRuntime) start(t *testing.T) {
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
			answer, err := r.handle(stream.Context(), method)
			if err != nil {
				return err
			}
			return stream.SendMsg(answer)
		}))
	r.served.Go(func() { _ = r.server.Serve(listener) })
}

// kill ends the server like SIGKILL: connections break.
func (r *fakeRuntime) kill(t *testing.T) {
	t.Helper()
	r.server.Stop()
	r.served.Wait()
	_ = os.Remove(r.socket)
}

// harness is a port with its completions and events.
type harness struct {
	t           *testing.T
	port        *cri.Port
	clock       clock.Clock
	completions chan world.Event
	lastOp      world.OpID

	mu       sync.Mutex
	capacity int // for events
	events   []*runtimeapi.ContainerEventResponse
}

func (h *harness) offer(ev world.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == h.capacity {
		return false
	}
	h.events = append(h.events, ev.Body.(*runtimeapi.ContainerEventResponse))
	return true
}

func (h *harness) received() []*runtimeapi.ContainerEventResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

func newHarness(t *testing.T, r *fakeRuntime) *harness {
	h := &harness{t: t, clock: clock.New(), completions: make(chan world.Event, 64), capacity: 64}
	port, err := cri.New(cri.Options{
		RuntimeEndpoint: "unix://" + r.socket, Clock: h.clock,
		Deliver: func(ev world.Event) { h.completions <- ev }, Offer: h.offer,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.port = port
	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *harness) call(body any, timeout time.Duration) (any, *world.Error) {
	h.t.Helper()
	h.lastOp++
	h.port.Do(world.Effect{Op: h.lastOp, Body: body, Deadline: h.clock.Now().Add(timeout)})
	select {
	case ev := <-h.completions:
		if ev.Op != h.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			h.t.Fatalf("%s completed by %+v", world.CallName(body), ev)
		}
		return ev.Body, ev.Err
	case <-time.After(porttest.Patience):
		h.t.Fatalf("%s is not completed", world.CallName(body))
		return nil, nil
	}
}

// completeResponses are responses with all required fields.
var completeResponses = map[string]proto.Message{
	"RunPodSandbox":   &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s"},
	"CreateContainer": &runtimeapi.CreateContainerResponse{ContainerId: "c"},
	"PodSandboxStatus": &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}},
	"ContainerStatus": &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}},
}

// requestsOf are requests about the objects of completeResponses.
var requestsOf = map[string]any{
	"PodSandboxStatus": &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "s"},
	"ContainerStatus":  &runtimeapi.ContainerStatusRequest{ContainerId: "c"},
}

// Every request body reaches the method of its name, and is completed with its response.
func TestEveryCall(t *testing.T) {
	r := newRuntime(t)
	r.handle = func(_ context.Context, method string) (proto.Message, error) {
		call := method[strings.LastIndexByte(method, '/')+1:]
		if m := completeResponses[call]; m != nil {
			return m, nil
		}
		body, err := world.ParseBody(call+"Response", nil)
		return body.(proto.Message), err
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	calls := 0
	for _, name := range world.BodyNames() {
		call, isRequest := strings.CutSuffix(name, "Request")
		body, err := world.ParseBody(name, nil)
		if _, isCRI := body.(proto.Message); err != nil || !isRequest || !isCRI ||
			call == "GetEvents" { // no response: see stream_test.go
			continue
		}
		if request := requestsOf[call]; request != nil {
			body = request
		}
		answer, failed := h.call(body, porttest.Patience)
		if failed != nil {
			t.Errorf("%s: %v", call, failed)
		} else if got := world.BodyName(answer); got != call+"Response" {
			t.Errorf("%s is completed by %s", call, got)
		}
		calls++
	}
	if calls < 18 {
		t.Errorf("checked %d calls, want all", calls)
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
			world.KindUnimplemented},
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
	r.handle = func(context.Context, string) (proto.Message, error) { return nil, fail }
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	for _, c := range cases {
		fail = c.err
		_, err := h.call(c.body, porttest.Patience)
		if !err.Has(c.want) || err.Op != world.CallName(c.body) ||
			err.Message != status.Convert(c.err).Message() {
			t.Errorf("%s failing with %q gives %v, want %s", world.CallName(c.body), c.err, err, c.want)
		}
	}
}

// newHarnessWith returns a harness whose runtime has one answer to all requests.
func newHarnessWith(t *testing.T, answer *proto.Message) *harness {
	t.Helper()
	r := newRuntime(t)
	r.handle = func(context.Context, string) (proto.Message, error) { return *answer, nil }
	r.start(t)
	t.Cleanup(func() { r.kill(t) })
	return newHarness(t, r)
}

func TestIncompleteResponses(t *testing.T) {
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
	var answer proto.Message
	h := newHarnessWith(t, &answer)
	for _, c := range cases {
		answer = c.answer
		body, err := h.call(c.request, porttest.Patience)
		if !err.Has(world.KindInternal) || !strings.Contains(err.Message, "answer has no") {
			t.Errorf("%T gives %v and error %v, want Internal", c.answer, body, err)
		}
	}
}

// An answer about another object than the one asked for is an error that names both.
func TestAnswersAboutOtherObjects(t *testing.T) {
	cases := []struct {
		request func(id string) any
		answer  proto.Message
	}{
		{func(id string) any { return &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id} },
			completeResponses["PodSandboxStatus"]},
		{func(id string) any { return &runtimeapi.ContainerStatusRequest{ContainerId: id} },
			completeResponses["ContainerStatus"]},
		{func(id string) any { return &runtimeapi.ContainerStatsRequest{ContainerId: id} },
			&runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
				Attributes: &runtimeapi.ContainerAttributes{Id: "c"}}}},
	}
	var answer proto.Message
	h := newHarnessWith(t, &answer)
	for _, c := range cases {
		answer = c.answer
		body, err := h.call(c.request("mine"), porttest.Patience)
		if !err.Has(world.KindInternal) || !strings.Contains(err.Message, `asked about "mine"`) ||
			!strings.HasSuffix(err.Message, `answered about "s"`) &&
				!strings.HasSuffix(err.Message, `answered about "c"`) {
			t.Errorf("%T gives %v and error %v, want Internal with both IDs", c.answer, body, err)
		}
	}
	if _, err := h.call(cases[2].request("c"), porttest.Patience); err != nil {
		t.Errorf("stats of the container asked for: %v", err)
	}
	answer = &runtimeapi.ContainerStatsResponse{}
	if _, err := h.call(cases[2].request("c"), porttest.Patience); err != nil {
		t.Errorf("stats without an ID: %v", err)
	}
}

func TestDeadline(t *testing.T) {
	r := newRuntime(t)
	r.handle = func(ctx context.Context, _ string) (proto.Message, error) {
		<-ctx.Done() // the runtime hangs
		return nil, ctx.Err()
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	_, err := h.call(&runtimeapi.VersionRequest{}, 200*time.Millisecond)
	if !err.Has(world.KindTimeout) {
		t.Errorf("error %v, want Timeout", err)
	}
	if _, err := h.call(&runtimeapi.VersionRequest{}, -time.Second); !err.Has(world.KindTimeout) {
		t.Errorf("past its deadline: error %v, want Timeout", err)
	}
}

func TestLargeResponses(t *testing.T) {
	r := newRuntime(t)
	bytes := 15 << 20
	r.handle = func(context.Context, string) (proto.Message, error) {
		return &runtimeapi.VersionResponse{RuntimeName: strings.Repeat("x", bytes)}, nil
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	if _, err := h.call(&runtimeapi.VersionRequest{}, porttest.Patience); err != nil {
		t.Errorf("15 MiB: %v", err)
	}
	bytes = 17 << 20
	if _, err := h.call(&runtimeapi.VersionRequest{}, porttest.Patience); !err.Has(
		world.KindInternal) {
		t.Errorf("17 MiB: error %v, want Internal: the call has been executed", err)
	}
}

// A runtime may send longer lists than the kubelet receives.
func TestLargeLists(t *testing.T) {
	r := newRuntime(t)
	large := map[string]string{"a": strings.Repeat("x", 20<<20)}
	r.handle = func(_ context.Context, method string) (proto.Message, error) {
		if strings.HasSuffix(method, "/ListPodSandbox") {
			return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s",
				Metadata: &runtimeapi.PodSandboxMetadata{}, Annotations: large}}}, nil
		}
		return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c",
			Metadata: &runtimeapi.ContainerMetadata{}, Annotations: large}}}, nil
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	for _, request := range []any{&runtimeapi.ListPodSandboxRequest{},
		&runtimeapi.ListContainersRequest{}} {
		if _, err := h.call(request, porttest.Patience); err != nil {
			t.Error(err)
		}
	}
}

// The runtime is down when the agent starts, starts, is killed during a call, and starts again,
// twice.
func TestReconnect(t *testing.T) {
	r := newRuntime(t)
	hang := make(chan struct{})
	r.handle = func(ctx context.Context, method string) (proto.Message, error) {
		if strings.HasSuffix(method, "/Status") {
			hang <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &runtimeapi.VersionResponse{}, nil
	}
	h := newHarness(t, r)
	for range 2 {
		_, err := h.call(&runtimeapi.VersionRequest{}, porttest.BeyondPatience)
		if !err.Has(world.KindUnavailable) {
			t.Fatalf("runtime down: error %v, want Unavailable", err)
		}
		r.start(t)
		porttest.Eventually(t, "a response of the runtime", func() bool {
			_, err = h.call(&runtimeapi.VersionRequest{}, porttest.BeyondPatience)
			return err == nil
		})
		h.port.Do(world.Effect{Op: 99, Body: &runtimeapi.StatusRequest{},
			Deadline: h.clock.Now().Add(porttest.BeyondPatience)})
		<-hang
		r.kill(t)
		ev := <-h.completions
		if ev.Op != 99 || !ev.Err.Has(world.KindUnavailable) {
			t.Fatalf("runtime killed during a call: %+v, want Unavailable", ev)
		}
	}
}

func TestBadEndpoints(t *testing.T) {
	for _, endpoint := range []string{"", "tcp://127.0.0.1:1", "unix://", "http://x", "unix://%zz"} {
		port, err := cri.New(cri.Options{RuntimeEndpoint: endpoint})
		if err == nil {
			t.Errorf("%q is accepted", endpoint)
			_ = port.Close()
		} else if !strings.Contains(err.Error(), "container runtime endpoint") {
			t.Errorf("%q: error %q does not name the endpoint", endpoint, err)
		}
	}
}

func TestCloseCompletesCallsInFlight(t *testing.T) {
	r := newRuntime(t)
	r.handle = func(ctx context.Context, _ string) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.start(t)
	defer r.kill(t)
	h := newHarness(t, r)
	h.port.Do(world.Effect{Op: 1, Body: &runtimeapi.VersionRequest{},
		Deadline: h.clock.Now().Add(porttest.BeyondPatience)})
	if err := h.port.Close(); err != nil {
		t.Fatal(err)
	}
	if ev := <-h.completions; ev.Op != 1 || !ev.Err.Has(world.KindUnavailable) {
		t.Errorf("completed by %+v, want Unavailable", ev)
	}
}
