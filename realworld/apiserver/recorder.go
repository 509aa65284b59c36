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

// eventComponent is the source component of Event objects: their readers look for the kubelet's
// name.
const eventComponent = "kubelet"

// recorder creates Event objects from the events that the core records, as the kubelet does: the
// same event again is counted, similar events are aggregated into one object, and the events of one
// pod or node are rate limited. A write that the server does not respond to is retried several
// times and then dropped.
type recorder struct {
	broadcaster record.EventBroadcaster
	events      record.EventRecorder
	cancel      context.CancelFunc
}

func newRecorder(opts Options, c *client) *recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{broadcaster: record.NewBroadcaster(), cancel: cancel}
	r.events = r.broadcaster.NewRecorder(scheme.Scheme,
		v1.EventSource{Component: eventComponent, Host: opts.NodeName})
	client := typedv1.New(c.rest[v1.SchemeGroupVersion])
	r.broadcaster.StartRecordingToSink(&sink{ctx: ctx, limiter: c.limiter, events: client.Events("")})
	return r
}

// record records an event. It does not block: if the queue is full, the event is dropped.
func (r *recorder) record(e *world.RecordEvent) {
	log.Event(e)
	r.events.AnnotatedEventf(&e.Regarding, e.Annotations, e.Type, e.Reason, "%s", e.Message)
}

// close drops the events that have not been sent yet.
func (r *recorder) close() {
	r.cancel()
	r.broadcaster.Shutdown()
}

// sink sends Event objects within their rate limit, until its context ends.
type sink struct {
	ctx     context.Context
	limiter flowcontrol.RateLimiter
	events  typedv1.EventExpansion
}

func (s *sink) Create(e *v1.Event) (*v1.Event, error) {
	if err := s.limiter.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.events.CreateWithEventNamespaceWithContext(s.ctx, e)
}

func (s *sink) Update(e *v1.Event) (*v1.Event, error) {
	if err := s.limiter.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.events.UpdateWithEventNamespaceWithContext(s.ctx, e)
}

func (s *sink) Patch(e *v1.Event, data []byte) (*v1.Event, error) {
	if err := s.limiter.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.events.PatchWithEventNamespaceWithContext(s.ctx, e, data)
}
