// Package tracing sends OpenTelemetry spans to a collector over OTLP: of the syncs of pods, of the
// operations in them, of the calls to the container runtime, of the requests to the API server, and
// of those to the agent's HTTP API.
//
// The core knows nothing of tracing. Spans follow from effects and events: an effect with an OpID
// starts an operation, and the event with that OpID ends it. A sync of a pod is a period in which
// operations for it follow each other without a gap, as in the kubelet. Calls to the runtime are
// child spans of their operations, and carry the trace context, so that the runtime's own spans
// join the trace.
//
// The contract: nothing waits for a collector, and an unreachable collector costs spans only.
// Memory is bounded by the operations in flight. Start reading at Tracer and Observe.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"seedlet.dev/world"
)

// closeTimeout bounds how long Close waits for the last spans to be sent.
const closeTimeout = time.Second

// Options configure a Tracer.
type Options struct {
	Config   *tracingapi.TracingConfiguration // not nil, validated
	NodeName string
	Version  string
	Warn     func(problem string) // called when spans cannot be sent, at most once in warnPeriod
}

// Tracer creates spans from events and effects, and sends them. Close it when done.
type Tracer struct {
	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
	tracer   trace.Tracer

	mu    sync.Mutex // between the loop and the ports
	ops   map[world.OpID]*operation
	syncs map[string]*podSync // by the UID of the pod
	names map[string]podName  // of pods, by UID
}

// New returns a tracer. The collector need not be reachable.
func New(o Options) (*Tracer, error) {
	// The connection is not encrypted, as in all Kubernetes components.
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if o.Config.Endpoint != nil {
		options = append(options, otlptracegrpc.WithEndpoint(*o.Config.Endpoint))
	}
	exporter, err := otlptracegrpc.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	sampler := sdktrace.NeverSample()
	if rate := o.Config.SamplingRatePerMillion; rate != nil && *rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(*rate) / 1e6)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "kubelet"),
			attribute.String("service.version", o.Version),
			attribute.String("host.name", o.NodeName),
		)))
	otel.SetErrorHandler(rateLimited(o.Warn))
	return &Tracer{
		provider: provider, exporter: exporter, tracer: provider.Tracer("seedlet.dev"),
		ops: map[world.OpID]*operation{}, syncs: map[string]*podSync{}, names: map[string]podName{},
	}, nil
}

// warnPeriod is the shortest time between two warnings that spans cannot be sent.
const warnPeriod = time.Minute

// rateLimited passes an error on once in warnPeriod: a collector may be unreachable for days.
func rateLimited(warn func(string)) otel.ErrorHandler {
	var mu sync.Mutex
	var last time.Time
	return otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); last.IsZero() || now.Sub(last) >= warnPeriod {
			last = now
			warn("tracing: " + err.Error())
		}
	})
}

// DialOptions returns the options that trace the calls over a gRPC connection.
func (t *Tracer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(tracing.Propagators())))}
}

// Context returns the context in which a port carries out an operation: calls made with it are
// child spans of the operation.
func (t *Tracer) Context(ctx context.Context, id world.OpID) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if op := t.ops[id]; op != nil {
		return trace.ContextWithSpan(ctx, op.span)
	}
	return ctx
}

// Close sends the spans that have ended, for closeTimeout at most. Spans of operations in flight
// are lost.
func (t *Tracer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if err == nil {
		return nil
	}
	// The exporter is still sending after closeTimeout: it is shut down.
	return fmt.Errorf("tracing: sending the last spans: %w",
		errors.Join(err, t.exporter.Shutdown(ctx)))
}
