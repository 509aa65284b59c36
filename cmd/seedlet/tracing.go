package main

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/tracing"
	"seedlet.dev/world"
)

// startTracing creates a tracer if the configuration has tracing.
func (n *node) startTracing(s settings, nodeName string) error {
	if s.config.Tracing == nil {
		return nil
	}
	var err error
	n.tracer, err = tracing.New(tracing.Options{Config: s.config.Tracing, NodeName: nodeName,
		Version: version,
		Warn:    func(problem string) { klog.InfoS(problem, "severity", "warning") }})
	return err
}

// runtimeOptions returns the options of connections to the runtime: metrics and tracing of calls.
func (n *node) runtimeOptions() []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(n.metrics.RuntimeCalls)}
	if n.tracer != nil {
		options = append(options, n.tracer.DialOptions()...)
	}
	return options
}

// operationContext returns the function that adds an operation's span to a context; nil without
// tracing.
func (n *node) operationContext() func(context.Context, world.OpID) context.Context {
	if n.tracer == nil {
		return nil
	}
	return n.tracer.Context
}

// observer returns the function that is called for every step; nil without tracing.
func (n *node) observer() func(world.Event, []world.Effect) {
	if n.tracer == nil {
		return nil
	}
	return n.tracer.Observe
}

// traceRequests returns the function that traces the requests of a client; nil without tracing.
func (n *node) traceRequests() func(http.RoundTripper) http.RoundTripper {
	if n.tracer == nil {
		return nil
	}
	return n.tracer.Transport
}

// traceReadOnly returns a handler that traces the requests that it passes on, if tracing is on.
func (n *node) traceReadOnly(handler http.Handler) http.Handler {
	if n.tracer == nil {
		return handler
	}
	return n.tracer.PublicHandler(handler)
}

// guard returns a handler that authenticates and authorizes requests, and traces those that it
// passes on, if tracing is on. Others have no span: the kubelet's filters have the same order.
func (n *node) guard(handler http.Handler) http.Handler {
	if n.tracer != nil {
		handler = n.tracer.Handler(handler)
	}
	return n.access.Guard(handler)
}

func (n *node) closeTracer() {
	if n.tracer != nil {
		logError(n.tracer.Close())
	}
}
