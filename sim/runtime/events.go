package runtime

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The stream of container events, as in containerd 2.x. Each event carries the ID of a container or
// of a sandbox, and the statuses of the sandbox and of all its containers at that moment. The
// deletion of a sandbox is reported before the sandbox is removed. A failed start has no event.
// While no stream is open events are buffered for the next one. The runtime notices that a stream
// is closed only when it fails to send an event to it.

// Short names of the event types.
const (
	eventCreated = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	eventStarted = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	eventStopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	eventDeleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// eventRetention is how long events are buffered while no stream is open.
const eventRetention = 5 * time.Minute

// CallEvent is the name by which a FaultSource decides the outcomes of events.
const CallEvent = "ContainerEvent"

// eventQueue holds the open streams and the buffered events.
type eventQueue struct {
	streams   []*stream
	buffered  []bufferedEvent // oldest first
	lostSends int             // events that will be lost in sending to a closed stream
}

type bufferedEvent struct {
	event   *runtimeapi.ContainerEventResponse
	expires time.Time
}

// stream is one open stream of events.
type stream struct {
	call        *wire.Call
	lastArrival time.Time // of the newest event, as events arrive in order
}

// BreakStreams ends all streams of events.
func (r *Runtime) BreakStreams() {
	for _, s := range slices.Clone(r.events.streams) {
		r.endStream(s, world.Errorf(world.KindUnavailable, s.call.Name, "the stream was reset"))
	}
}

// endStream ends a stream, unless it has ended.
func (r *Runtime) endStream(s *stream, err *world.Error) {
	if r.removeStream(s) {
		s.call.Fail(err)
	}
}

// removeStream removes a closed stream and reports whether it was open.
func (r *Runtime) removeStream(s *stream) bool {
	i := slices.Index(r.events.streams, s)
	if i < 0 {
		return false
	}
	r.events.streams = slices.Delete(r.events.streams, i, i+1)
	r.events.lostSends = 1 + int(s.call.Draw()&1)
	return true
}

// clearEvents drops the buffered events, as a restart of the runtime's process does.
func (r *Runtime) clearEvents() { r.events.buffered, r.events.lostSends = nil, 0 }

// openStream opens a stream. The call completes when the stream ends.
func (r *Runtime) openStream(call *wire.Call) {
	if r.opts.Containerd16 {
		call.Fail(world.Errorf(world.KindUnimplemented, call.Name,
			"unknown method GetContainerEvents"))
		return
	}
	if call.IsCallerGone() {
		return
	}
	s := &stream{call: call}
	call.OnCallerGone(func() { r.removeStream(s) })
	r.events.streams = append(r.events.streams, s)
	buffered := r.events.buffered
	r.events.buffered = nil
	for _, h := range buffered {
		if r.now().Before(h.expires) {
			r.sendEvent(s, h.event)
		}
	}
	if err := call.Outcome.ErrorAfter; err != nil {
		r.after(call.DurationBetween(time.Millisecond, time.Minute), func() { r.endStream(s, err) })
	}
}

// emitEvent sends an event about a container or a sandbox to all open streams, or buffers it.
func (r *Runtime) emitEvent(id, sandboxID string, kind runtimeapi.ContainerEventType) {
	queue := &r.events
	if r.opts.Containerd16 || r.wire.IsDown() {
		return
	}
	if len(queue.streams) == 0 && queue.lostSends > 0 {
		queue.lostSends--
		return
	}
	queue.lostSends = 0
	event := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind,
		CreatedAt: r.now().Add(r.skew).UnixNano()}
	if s := r.sandboxes[sandboxID]; s != nil {
		event.PodSandboxStatus = s.statusResponse().Status
		for _, c := range r.containersIn(s) {
			event.ContainersStatuses = append(event.ContainersStatuses, c.statusResponse().Status)
		}
	}
	if len(queue.streams) == 0 {
		for len(queue.buffered) > 0 && !r.now().Before(queue.buffered[0].expires) {
			queue.buffered = queue.buffered[1:]
		}
		queue.buffered = append(queue.buffered, bufferedEvent{event, r.now().Add(eventRetention)})
	}
	for _, s := range queue.streams {
		r.sendEvent(s, event)
	}
}

// sendEvent sends an event to a stream. Events arrive in order unless the injected outcome delays
// or duplicates one. A stream whose call has a lost response is silently dead.
func (r *Runtime) sendEvent(s *stream, event *runtimeapi.ContainerEventResponse) {
	outcome := r.wire.NextOutcome(CallEvent)
	if outcome.ResponseLost || s.call.Outcome.ResponseLost {
		return
	}
	arrival := r.now().Add(outcome.RequestLatency)
	if !arrival.After(s.lastArrival) {
		arrival = s.lastArrival.Add(1) // events of one instant would arrive in any order
	}
	if outcome.EffectDelay == 0 || outcome.Duplicated { // a delayed event does not delay later ones
		s.lastArrival = arrival
		r.wire.DeliverAt(arrival, event)
	}
	if outcome.EffectDelay > 0 {
		r.wire.DeliverAt(arrival.Add(outcome.EffectDelay), event)
	}
}
