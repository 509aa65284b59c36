package tracing

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	spanapi "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/tracing/tracingtest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spanLines returns the paths of the received spans with their pods and errors, sorted.
func spanLines(c *tracingtest.Collector) []string {
	var lines []string
	for _, s := range c.Spans() {
		line := s.Path
		for _, key := range []string{"k8s.pod", "k8s.container.name", "container.id"} {
			for _, a := range s.Attributes {
				if a.Key == key {
					line += " " + a.Value.GetStringValue()
				}
			}
		}
		if s.Status.GetCode() == spanapi.Status_STATUS_CODE_ERROR {
			line += ": " + s.Status.Message
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func newTracer(t *testing.T, address string, rate int32) *Tracer {
	t.Helper()
	// Warn must not use t: spans in flight at the end of a test may fail after it.
	tracer, err := New(Options{NodeName: "n1", Version: "v1", Warn: func(string) {},
		Config: &tracingapi.TracingConfiguration{Endpoint: &address, SamplingRatePerMillion: &rate}})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

const always = 1_000_000

// harness is a tracer, with the OpID of the last effect that it has observed.
type harness struct {
	tracer *Tracer
	last   world.OpID
}

// observe lets the tracer observe an event and the effects that follow from it for a pod. It
// returns the OpIDs of the effects.
func (l *harness) observe(ev world.Event, pod string, bodies ...any) []world.OpID {
	var effects []world.Effect
	var ids []world.OpID
	for _, body := range bodies {
		l.last++
		ids = append(ids, l.last)
		effects = append(effects, world.Effect{Op: l.last, Body: body, Pod: pod})
	}
	l.tracer.Observe(ev, effects)
	return ids
}

func sandboxOf(uid, name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid,
		Namespace: "default", Name: name}}
}

func TestASyncOfAPod(t *testing.T) {
	c := tracingtest.New(t)
	l := &harness{tracer: newTracer(t, c.Address, always)}
	dir := l.observe(world.Event{}, "u1", &world.MakeDir{Path: "/p"})
	other := l.observe(world.Event{}, "u2", &runtimeapi.StopContainerRequest{ContainerId: "c9"})
	sandbox := l.observe(world.Event{Op: dir[0], Body: &world.Done{}}, "u1",
		&runtimeapi.RunPodSandboxRequest{Config: sandboxOf("u1", "web")})
	made := l.observe(world.Event{Op: sandbox[0], Body: &runtimeapi.RunPodSandboxResponse{}}, "u1",
		&runtimeapi.CreateContainerRequest{
			Config:        &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}},
			SandboxConfig: sandboxOf("u1", "web")})
	l.observe(world.Event{Op: made[0], Err: world.Errorf(world.KindInternal, "", "no room")}, "")
	l.observe(world.Event{Op: other[0], Body: &runtimeapi.StopContainerResponse{}}, "")
	l.observe(world.Event{Op: 99, Body: &world.Done{}}, "") // of no operation
	again := l.observe(world.Event{}, "u1", &runtimeapi.StartContainerRequest{ContainerId: "c1"})
	l.observe(world.Event{Op: again[0], Body: &runtimeapi.StartContainerResponse{}}, "")
	if n := len(l.tracer.ops) + len(l.tracer.syncs); n > 0 {
		t.Errorf("%d operations and syncs are kept", n)
	}
	if err := l.tracer.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"syncPod > CreateContainer c: no room",
		"syncPod > MakeDir",
		"syncPod > RunPodSandbox",
		"syncPod > StartContainer c1",
		"syncPod > StopContainer c9",
		"syncPod",                      // of u2, whose name is unknown
		"syncPod default/web",          // the second
		"syncPod default/web: no room", // the first
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, spanLines(c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.Resource("service.name") != "kubelet" || c.Resource("host.name") != "n1" {
		t.Errorf("the spans are of %s on %s", c.Resource("service.name"), c.Resource("host.name"))
	}
}

// fake is a runtime that records the traces of its calls.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	traces chan string
}

func (f *fake) StartContainer(ctx context.Context, _ *runtimeapi.StartContainerRequest) (
	*runtimeapi.StartContainerResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.traces <- strings.Join(md.Get("traceparent"), ",")
	return &runtimeapi.StartContainerResponse{}, nil
}

// A call to the runtime is a child span of its operation, and carries the trace context.
func TestRuntimeCalls(t *testing.T) {
	c, runtime := tracingtest.New(t), &fake{traces: make(chan string, 1)}
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	tracingtest.Serve(t, server, listener)
	l := &harness{tracer: newTracer(t, c.Address, always)}
	conn, err := grpc.NewClient("unix://"+listener.Addr().String(), append(l.tracer.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := &runtimeapi.StartContainerRequest{ContainerId: "c1"}
	id := l.observe(world.Event{}, "u1", request)[0]
	ctx := l.tracer.Context(t.Context(), id)
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).StartContainer(ctx, request); err != nil {
		t.Fatal(err)
	}
	l.observe(world.Event{Op: id, Body: &runtimeapi.StartContainerResponse{}}, "")
	if err := l.tracer.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{"syncPod",
		"syncPod > StartContainer > runtime.v1.RuntimeService/StartContainer",
		"syncPod > StartContainer c1"}
	if diff := cmp.Diff(want, spanLines(c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	trace := fmt.Sprintf("%x", c.Spans()[0].TraceId)
	if reported := <-runtime.traces; !strings.Contains(reported, trace) {
		t.Errorf("the runtime is told of trace %q, want %s", reported, trace)
	}
	if ctx := l.tracer.Context(t.Context(), id); ctx != t.Context() {
		t.Error("an operation that has ended has a context")
	}
}

// Probes recur for as long as a container runs: they neither start a sync nor keep one from ending.
func TestProbesAreNoSyncs(t *testing.T) {
	c := tracingtest.New(t)
	l := &harness{tracer: newTracer(t, c.Address, always)}
	probe := l.observe(world.Event{}, "u1", &world.HTTPGet{})[0]
	l.observe(world.Event{Op: probe, Body: &world.HTTPGot{}}, "")
	list := l.observe(world.Event{}, "", &runtimeapi.ListContainersRequest{})[0]
	l.observe(world.Event{Op: list, Body: &runtimeapi.ListContainersResponse{}}, "")
	if err := l.tracer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := spanLines(c); len(got) > 0 {
		t.Errorf("spans of probes and lists: %q", got)
	}
}

// The list of sandboxes has the names of pods that ran before the agent started.
func TestNamesAreLearntFromLists(t *testing.T) {
	c := tracingtest.New(t)
	l := &harness{tracer: newTracer(t, c.Address, always)}
	l.observe(world.Event{Body: &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Metadata: sandboxOf("u1", "web").Metadata}, {}}}}, "")
	id := l.observe(world.Event{}, "u1", &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"})[0]
	l.observe(world.Event{Op: id, Body: &runtimeapi.StopPodSandboxResponse{}}, "")
	for i := range 2 * namesMax {
		l.tracer.learnName(&runtimeapi.PodSandboxMetadata{Uid: fmt.Sprint(i)})
	}
	if len(l.tracer.names) > namesMax {
		t.Errorf("%d names are kept", len(l.tracer.names))
	}
	if err := l.tracer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := spanLines(c); len(got) != 2 || got[1] != "syncPod default/web" {
		t.Errorf("spans %q", got)
	}
}

func TestNothingIsSampled(t *testing.T) {
	c := tracingtest.New(t)
	l := &harness{tracer: newTracer(t, c.Address, 0)}
	id := l.observe(world.Event{}, "u1", &world.MakeDir{})[0]
	l.observe(world.Event{Op: id, Body: &world.Done{}}, "")
	if err := l.tracer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := spanLines(c); len(got) > 0 {
		t.Errorf("spans at a rate of zero: %q", got)
	}
}

// An unreachable collector delays nothing, and is warned of at most once in warnPeriod.
func TestTheCollectorIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	l := &harness{tracer: newTracer(t, address, always)}
	began := time.Now()
	for range 10_000 {
		id := l.observe(world.Event{}, "u1", &world.MakeDir{})[0]
		l.observe(world.Event{Op: id, Body: &world.Done{}}, "")
	}
	if took := time.Since(began); took > porttest.Patience {
		t.Errorf("10,000 operations took %v", took)
	}
	began = time.Now()
	_ = l.tracer.Close() // unsent spans are lost
	if took := time.Since(began); took > porttest.Patience {
		t.Errorf("closing took %v", took)
	}
}

func TestWarningsAreSeldom(t *testing.T) {
	reported := 0
	handle := rateLimited(func(string) { reported++ })
	for range 100 {
		handle.Handle(fmt.Errorf("away"))
	}
	if reported != 1 {
		t.Errorf("told %d times", reported)
	}
}
