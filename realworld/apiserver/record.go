package apiserver

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"seedlet.dev/realworld/log"
	"seedlet.dev/world"
)

// component is who Event objects are said to come from: what reads them looks for that name.
const component = "kubelet"

// recorder makes Event objects of what the core tells, as the kubelet does: those that say the
// same are counted, of similar ones a single object is made, and of one pod or node there are only
// so many. It repeats what the server has not answered, some times, and then drops it.
type recorder struct {
	broadcaster record.EventBroadcaster
	events      record.EventRecorder
	cancel      context.CancelFunc
}

func newRecorder(opts Options, w *way) *recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{broadcaster: record.NewBroadcaster(), cancel: cancel}
	r.events = r.broadcaster.NewRecorder(scheme.Scheme,
		v1.EventSource{Component: component, Host: opts.NodeName})
	client := typedv1.New(w.clients[v1.SchemeGroupVersion])
	r.broadcaster.StartRecordingToSink(&sink{ctx: ctx, limit: w.limit, objects: client.Events("")})
	return r
}

// record takes what the core tells. It does not wait: what there is no room for is dropped.
func (r *recorder) record(e *world.RecordEvent) {
	log.Event(e)
	r.events.Event(&e.Regarding, e.Type, e.Reason, e.Message)
}

// close gives up what has not been sent yet.
func (r *recorder) close() {
	r.cancel()
	r.broadcaster.Shutdown()
}

// sink sends Event objects, no more than their limit permits, until its context ends.
type sink struct {
	ctx     context.Context
	limit   flowcontrol.RateLimiter
	objects typedv1.EventExpansion
}

func (s *sink) Create(e *v1.Event) (*v1.Event, error) {
	if err := s.limit.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.objects.CreateWithEventNamespaceWithContext(s.ctx, e)
}

func (s *sink) Update(e *v1.Event) (*v1.Event, error) {
	if err := s.limit.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.objects.UpdateWithEventNamespaceWithContext(s.ctx, e)
}

func (s *sink) Patch(e *v1.Event, data []byte) (*v1.Event, error) {
	if err := s.limit.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.objects.PatchWithEventNamespaceWithContext(s.ctx, e, data)
}
