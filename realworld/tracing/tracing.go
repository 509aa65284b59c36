// Package tracing tells an OpenTelemetry collector how long what the agent does takes: OTLP spans
// of the syncs of pods, of the operations in them, and of the calls of the container runtime.
//
// The core knows nothing of it. A span is what can be seen from outside: an effect that is handed
// out begins an operation, and the event that answers it ends it. A sync of a pod is the time in
// which operations for it follow each other without a break, as the kubelet's is. The calls to the
// runtime are spans of the operations they belong to, and the runtime is told of them, so that its
// own spans join in.
//
// The contract: nothing waits for a collector, and one that is away loses spans and nothing else.
// What is kept is bounded by the operations in flight. Start reading at Tracer and Observe.
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

// closeTimeout is how long the last spans have to be sent.
const closeTimeout = time.Second

// Options are what a tracer is made of.
type Options struct {
	Config   *tracingapi.TracingConfiguration // not nil, validated
	NodeName string
	Version  string
	Warn     func(problem string) // of spans that cannot be sent, once in a while
}

// Tracer makes spans of what it observes, and sends them. Close it when done.
type Tracer struct {
	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
	tracer   trace.Tracer

	mu    sync.Mutex // between the loop and the ports
	ops   map[world.OpID]*operation
	syncs map[string]*podSync // by the UID of the pod
	names map[string]name     // of pods, by UID
}

// New makes a tracer. The collector may be away.
func New(o Options) (*Tracer, error) {
	// As of the Kubernetes components, the connection is not protected.
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
	otel.SetErrorHandler(seldom(o.Warn))
	return &Tracer{
		provider: provider, exporter: exporter, tracer: provider.Tracer("seedlet.dev"),
		ops: map[world.OpID]*operation{}, syncs: map[string]*podSync{}, names: map[string]name{},
	}, nil
}

// warnPeriod is how often it is told that spans cannot be sent.
const warnPeriod = time.Minute

// seldom hands on what cannot be sent, but not each time: a collector may be away for days.
func seldom(warn func(string)) otel.ErrorHandler {
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

// DialOptions have the calls over a connection traced.
func (t *Tracer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(tracing.Propagators())))}
}

// Context is a context in which an operation is carried out: what it calls is part of it.
func (t *Tracer) Context(ctx context.Context, id world.OpID) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if op := t.ops[id]; op != nil {
		return trace.ContextWithSpan(ctx, op.span)
	}
	return ctx
}

// Close sends what has not been sent, for a moment, and ends. What is still going on is never told.
func (t *Tracer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if err == nil {
		return nil
	}
	// It is still sending. The time is up: that is given up.
	return fmt.Errorf("tracing: sending the last spans: %w",
		errors.Join(err, t.exporter.Shutdown(ctx)))
}
