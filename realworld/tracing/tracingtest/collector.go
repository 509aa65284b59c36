// Package tracingtest has a fake OpenTelemetry collector, for tests of the spans that are sent.
package tracingtest

import (
	"context"
	"net"
	"sync"
	"testing"

	collectorapi "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spanapi "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector is an OTLP collector on loopback that keeps the spans it receives.
type Collector struct {
	collectorapi.UnimplementedTraceServiceServer
	Address string // as the endpoint of a TracingConfiguration

	mu       sync.Mutex
	spans    []*spanapi.Span
	resource map[string]string
}

// New starts a collector, which is stopped at the end of the test.
func New(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Address: listener.Addr().String(), resource: map[string]string{}}
	server := grpc.NewServer()
	collectorapi.RegisterTraceServiceServer(server, c)
	Serve(t, server, listener)
	return c
}

// Serve runs a gRPC server until the test ends.
func Serve(t testing.TB, server *grpc.Server, listener net.Listener) {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended // the error does not matter
	})
}

// Export receives spans.
func (c *Collector) Export(_ context.Context, request *collectorapi.ExportTraceServiceRequest) (
	*collectorapi.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorapi.ExportTraceServiceResponse{}, nil
}

// Resource returns a resource attribute of the sender of the spans.
func (c *Collector) Resource(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource[key]
}

// Span is a received span with its path: the names of its ancestors, then its own.
type Span struct {
	*spanapi.Span
	Path string
}

// Spans returns all received spans, in the order of their arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*spanapi.Span{}
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
	}
	var spans []Span
	for _, s := range c.spans {
		path := s.Name
		for at := byID[string(s.ParentSpanId)]; at != nil; at = byID[string(at.ParentSpanId)] {
			path = at.Name + " > " + path
		}
		spans = append(spans, Span{s, path})
	}
	return spans
}
