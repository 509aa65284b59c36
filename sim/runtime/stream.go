package runtime

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The stream of container events, as containerd 2.x has it: each event carries the id of a
// container, or of a sandbox in its place, and the statuses of the sandbox and of all that is in
// it at that moment. A sandbox is told to be deleted while it is still there. A container that
// could not be started is not told of. While nobody listens events are kept for a while, for the
// first who does.

// The types of events, by their shorter names.
const (
	eventCreated = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	eventStarted = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	eventStopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	eventDeleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// heldFor is how long events are kept while nobody listens.
const heldFor = 5 * time.Minute

// CallEvent is the name under which the fates of events are decided.
const CallEvent = "ContainerEvent"

// events is the runtime's queue of events and those who listen to it.
type events struct {
	streams []*stream
	held    []heldEvent
	used    bool // somebody has listened: before that nothing is kept, which saves time
	skew    time.Duration
}

type heldEvent struct {
	event *runtimeapi.ContainerEventResponse
	until time.Time
}

// stream is one who listens.
type stream struct {
	call *wire.Call
	last time.Time // when the newest event arrives: they come in order
}

// SetEventClock has events dated by a clock that is wrong by so much.
func (r *Runtime) SetEventClock(skew time.Duration) { r.events.skew = skew }

// BreakStreams ends all streams of events.
func (r *Runtime) BreakStreams() {
	for _, s := range slices.Clone(r.events.streams) {
		r.endStream(s, world.Errorf(world.KindUnavailable, s.call.Name, "the stream was reset"))
	}
}

// endStream ends one stream, if it has not ended.
func (r *Runtime) endStream(s *stream, err *world.Error) {
	if i := slices.Index(r.events.streams, s); i >= 0 {
		r.events.streams = slices.Delete(r.events.streams, i, i+1)
		s.call.Fail(err)
	}
}

// openStream begins a stream. It is answered when it ends.
func (r *Runtime) openStream(call *wire.Call) {
	if r.opts.Old {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "unknown method GetContainerEvents"))
		return
	}
	if call.Severed() {
		return
	}
	s := &stream{call: call}
	call.OnSever(func() {
		r.events.streams = slices.DeleteFunc(r.events.streams,
			func(o *stream) bool { return o == s })
	})
	r.events.used = true
	r.events.streams = append(r.events.streams, s)
	held := r.events.held
	r.events.held = nil
	for _, h := range held {
		if r.now().Before(h.until) {
			r.sendEvent(s, h.event)
		}
	}
	if err := call.Fate.After; err != nil {
		r.after(call.Between(time.Millisecond, time.Minute), func() { r.endStream(s, err) })
	}
}

// emit tells all who listen of something that has just happened.
func (r *Runtime) emit(id, sandboxID string, what runtimeapi.ContainerEventType) {
	if !r.events.used || r.wire.Down() {
		return
	}
	event := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: what,
		CreatedAt: r.now().Add(r.events.skew).UnixNano()}
	if s := r.sandboxes[sandboxID]; s != nil {
		event.PodSandboxStatus = s.inspected().Status
		for _, c := range r.inSandbox(s) {
			event.ContainersStatuses = append(event.ContainersStatuses, c.inspected().Status)
		}
	}
	if len(r.events.streams) == 0 {
		r.events.held = slices.DeleteFunc(r.events.held,
			func(h heldEvent) bool { return !r.now().Before(h.until) })
		r.events.held = append(r.events.held, heldEvent{event, r.now().Add(heldFor)})
	}
	for _, s := range r.events.streams {
		r.sendEvent(s, event)
	}
}

// sendEvent brings an event to one who listens: in order, unless its fate is to be late or to
// come twice. A stream whose call is lost is one that has silently died.
func (r *Runtime) sendEvent(s *stream, event *runtimeapi.ContainerEventResponse) {
	fate := r.wire.Draw(CallEvent)
	if fate.Lost || s.call.Fate.Lost {
		return
	}
	at := r.now().Add(fate.Receive)
	if at.Before(s.last) {
		at = s.last
	}
	if fate.EffectDelay == 0 || fate.Twice { // else those after it overtake it
		s.last = at
		r.wire.Arrive(at, event)
	}
	if fate.EffectDelay > 0 {
		r.wire.Arrive(at.Add(fate.EffectDelay), event)
	}
}
