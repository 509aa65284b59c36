package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// operation is one that is going on for a pod.
type operation struct {
	span trace.Span
	pod  string
	sync *podSync // that it is part of
}

// podSync is what is being done for a pod without a break.
type podSync struct {
	ctx   context.Context
	span  trace.Span
	ops   int // in flight
	named bool
}

// name is what a pod is called.
type name struct{ namespace, name string }

// namesMax bounds the names that are kept. When there are more they are forgotten, and learnt anew
// from the next list.
const namesMax = 4096

// asks are the operations that ask a container how it is. They go on as long as it runs, and are
// part of a sync only while there is one.
var asks = []string{"ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck"}

// Observe takes what a step of the core was told and has handed out. It is for the loop, which
// calls it before the ports begin.
func (t *Tracer) Observe(ev world.Event, effects []world.Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn(ev.Body)
	ended := t.ops[ev.Op]
	for i := range effects {
		if eff := &effects[i]; eff.Op != 0 && eff.Pod != "" {
			t.begin(eff)
		}
	}
	if ended != nil { // only now: what follows it is part of the same sync
		delete(t.ops, ev.Op)
		t.end(ended, ev)
	}
}

// begin makes spans of an operation that is handed out.
func (t *Tracer) begin(eff *world.Effect) {
	call, sync := world.Call(eff.Body), t.syncs[eff.Pod]
	if slices.Contains(asks, call) && sync == nil {
		return
	}
	if sync == nil {
		sync = &podSync{}
		sync.ctx, sync.span = t.tracer.Start(context.Background(), "syncPod",
			trace.WithAttributes(attribute.String("k8s.pod.uid", eff.Pod)))
		t.syncs[eff.Pod] = sync
	}
	t.learnAsked(eff)
	t.nameSync(eff.Pod, sync)
	_, span := t.tracer.Start(sync.ctx, call, trace.WithAttributes(attributesOf(eff)...))
	sync.ops++
	t.ops[eff.Op] = &operation{span: span, pod: eff.Pod, sync: sync}
}

// end ends the span of an operation that was answered, and the sync if it was the last.
func (t *Tracer) end(op *operation, ev world.Event) {
	if ev.Err != nil {
		op.span.RecordError(ev.Err)
		op.span.SetStatus(codes.Error, ev.Err.Message)
		op.sync.span.SetStatus(codes.Error, ev.Err.Message)
	}
	op.span.End()
	op.sync.ops--
	if op.sync.ops > 0 {
		return
	}
	t.nameSync(op.pod, op.sync)
	op.sync.span.End()
	delete(t.syncs, op.pod)
}

// nameSync says of which pod a sync is, as soon as its name is known.
func (t *Tracer) nameSync(uid string, sync *podSync) {
	n, known := t.names[uid]
	if sync.named || !known {
		return
	}
	sync.named = true
	sync.span.SetAttributes(attribute.String("k8s.pod", n.namespace+"/"+n.name),
		attribute.String("k8s.pod.name", n.name), attribute.String("k8s.namespace.name", n.namespace))
}

// attributesOf are those of an operation: what of the runtime it is about.
func attributesOf(eff *world.Effect) []attribute.KeyValue {
	about := []attribute.KeyValue{attribute.String("k8s.pod.uid", eff.Pod)}
	add := func(key, value string) { about = append(about, attribute.String(key, value)) }
	switch m := eff.Body.(type) {
	case *runtimeapi.CreateContainerRequest:
		add("k8s.container.name", m.GetConfig().GetMetadata().GetName())
	case interface{ GetContainerId() string }:
		add("container.id", m.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		add("seedlet.sandbox.id", m.GetPodSandboxId())
	}
	return about
}

// learn takes the names of pods from what the runtime lists.
func (t *Tracer) learn(body any) {
	list, is := body.(*runtimeapi.ListPodSandboxResponse)
	if !is {
		return
	}
	for _, s := range list.Items {
		t.learnName(s.GetMetadata())
	}
}

// learnAsked takes the name of a pod from what is asked for it.
func (t *Tracer) learnAsked(eff *world.Effect) {
	switch m := eff.Body.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		t.learnName(m.GetConfig().GetMetadata())
	case *runtimeapi.CreateContainerRequest:
		t.learnName(m.GetSandboxConfig().GetMetadata())
	}
}

func (t *Tracer) learnName(m *runtimeapi.PodSandboxMetadata) {
	if m.GetUid() == "" {
		return
	}
	if _, known := t.names[m.Uid]; !known && len(t.names) >= namesMax {
		clear(t.names)
	}
	t.names[m.Uid] = name{m.Namespace, m.Name}
}
