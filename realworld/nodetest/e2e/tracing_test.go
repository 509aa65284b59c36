package e2e

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collectorapi "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spanapi "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"seedlet.dev/realworld/nodetest"
)

// spans are what a collector of traces was sent.
type spans struct {
	collectorapi.UnimplementedTraceServiceServer
	mu  sync.Mutex
	all []*spanapi.Span
}

func (s *spans) Export(_ context.Context, request *collectorapi.ExportTraceServiceRequest) (
	*collectorapi.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.all = append(s.all, scope.Spans...)
		}
	}
	return &collectorapi.ExportTraceServiceResponse{}, nil
}

// paths are the names of the spans, each after those that it is part of.
func (s *spans) paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	byID := map[string]*spanapi.Span{}
	for _, is := range s.all {
		byID[string(is.SpanId)] = is
	}
	var paths []string
	for _, is := range s.all {
		path := is.Name
		for at := byID[string(is.ParentSpanId)]; at != nil; at = byID[string(at.ParentSpanId)] {
			path = at.Name + " > " + path
		}
		paths = append(paths, path)
	}
	return paths
}

// TestTraces has a collector told of what the agent does for a pod, and of its calls to a real
// runtime as parts of that.
func TestTraces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told, server := &spans{}, grpc.NewServer()
	collectorapi.RegisterTraceServiceServer(server, told)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended }) // how it ends says nothing
	s := &scene{node: nodetest.New(t, nodetest.V2)}
	s.agent = newAgent(t, s.node, "tracing: {endpoint: \""+listener.Addr().String()+
		"\", samplingRatePerMillion: 1000000}\n")
	s.agent.start(t)
	s.agent.add(t, "traced", pod("traced", "Never", 5, "sleep"))
	s.eventually(t, soon, "the pod runs", func() bool {
		return s.container(t, "traced", "main").GetState() == running
	})
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		s.eventually(t, soon, "it is told of "+call, func() bool {
			return slices.ContainsFunc(told.paths(), func(path string) bool {
				return strings.HasPrefix(path, "syncPod > "+call+" > ") &&
					strings.HasSuffix(path, "runtime.v1.RuntimeService/"+call)
			})
		})
	}
	s.agent.remove(t, "traced")
	s.eventually(t, soon, "nothing is left", func() bool { return len(s.sandboxes(t, "")) == 0 })
	if code := s.agent.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent ended with %d", code)
	}
}
