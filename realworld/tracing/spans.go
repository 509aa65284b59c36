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

// operation is an operation of a pod that is in flight.
type operation struct {
	span trace.Span
	pod  string
	sync *podSync // the sync that it is part of
}

// podSync is a sync of a pod: a period in which at least one operation of the pod is in flight.
type podSync struct {
	ctx   context.Context
	span  trace.Span
	ops   int // in flight
	named bool
}

// podName is the full name of a pod.
type podName struct{ namespace, name string }

// namesMax bounds the names of pods that are kept. When there are more, all are dropped and learnt
// again from the next list of sandboxes.
const namesMax = 4096

// probeCalls are the operations of probes. They recur for as long as a container runs, so a probe
// alone does not start a sync.
var probeCalls = []string{"ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck"}

// Observe records the event of a step and the effects that it handed out. The loop calls it before
// it hands the effects to the ports.
func (t *Tracer) Observe(ev world.Event, effects []world.Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learnNames(ev.Body)
	ended := t.ops[ev.Op]
	for i := range effects {
		if eff := &effects[i]; eff.Op != 0 && eff.Pod != "" {
			t.startOperation(eff)
		}
	}
	if ended != nil { // after the effects: operations that follow at once belong to the same sync
		delete(t.ops, ev.Op)
		t.endOperation(ended, ev)
	}
}

// startOperation starts the span of an operation, and of the pod's sync if there is none.
func (t *Tracer) startOperation(eff *world.Effect) {
	call, sync := world.CallName(eff.Body), t.syncs[eff.Pod]
	if slices.Contains(probeCalls, call) && sync == nil {
		return
	}
	if sync == nil {
		sync = &podSync{}
		sync.ctx, sync.span = t.tracer.Start(context.Background(), "syncPod",
			trace.WithAttributes(attribute.String("k8s.pod.uid", eff.Pod)))
		t.syncs[eff.Pod] = sync
	}
	t.learnNameFromRequest(eff)
	t.nameSync(eff.Pod, sync)
	_, span := t.tracer.Start(sync.ctx, call, trace.WithAttributes(attributesOf(eff)...))
	sync.ops++
	t.ops[eff.Op] = &operation{span: span, pod: eff.Pod, sync: sync}
}

// endOperation ends the span of a completed operation, and of the sync if it was the last one.
func (t *Tracer) endOperation(op *operation, ev world.Event) {
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

// nameSync sets the name of the pod on the span of a sync, as soon as the name is known.
func (t *Tracer) nameSync(uid string, sync *podSync) {
	n, known := t.names[uid]
	if sync.named || !known {
		return
	}
	sync.named = true
	sync.span.SetAttributes(attribute.String("k8s.pod", n.namespace+"/"+n.name),
		attribute.String("k8s.pod.name", n.name), attribute.String("k8s.namespace.name", n.namespace))
}

// attributesOf returns the span attributes of an operation: the pod, container and sandbox.
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

// learnNames records the names of pods from a list of sandboxes.
func (t *Tracer) learnNames(body any) {
	list, is := body.(*runtimeapi.ListPodSandboxResponse)
	if !is {
		return
	}
	for _, s := range list.Items {
		t.learnName(s.GetMetadata())
	}
}

// learnNameFromRequest records the name of a pod from a request to the runtime.
func (t *Tracer) learnNameFromRequest(eff *world.Effect) {
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
	t.names[m.Uid] = podName{m.Namespace, m.Name}
}
