package main

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/tracing"
	"seedlet.dev/world"
)

// trace makes a tracer if the configuration asks for one. Otherwise there is none, and nothing of
// it runs.
func (n *node) trace(s settings, nodeName string) error {
	if s.config.Tracing == nil {
		return nil
	}
	var err error
	n.tracer, err = tracing.New(tracing.Options{Config: s.config.Tracing, NodeName: nodeName,
		Version: version,
		Warn:    func(problem string) { klog.InfoS(problem, "severity", "warning") }})
	return err
}

// runtimeOptions are those of connections to the runtime: what measures calls, and what traces
// them.
func (n *node) runtimeOptions() []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(n.numbers.RuntimeCalls)}
	if n.tracer != nil {
		options = append(options, n.tracer.DialOptions()...)
	}
	return options
}

// operationContext adds to a context what an operation is part of; nil if nobody traces.
func (n *node) operationContext() func(context.Context, world.OpID) context.Context {
	if n.tracer == nil {
		return nil
	}
	return n.tracer.Context
}

// observer sees every step; nil if nobody does.
func (n *node) observer() func(world.Event, []world.Effect) {
	if n.tracer == nil {
		return nil
	}
	return n.tracer.Observe
}

func (n *node) closeTracer() {
	if n.tracer != nil {
		complain(n.tracer.Close())
	}
}
