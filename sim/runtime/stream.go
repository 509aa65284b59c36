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
// first who does. But that somebody has gone is only noticed by what could not be sent to him.

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
	held    []heldEvent // oldest first
	gone    int         // how many are still to be sent to one who has gone, and get lost
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

// BreakStreams ends all streams of events.
func (r *Runtime) BreakStreams() {
	for _, s := range slices.Clone(r.events.streams) {
		r.endStream(s, world.Errorf(world.KindUnavailable, s.call.Name, "the stream was reset"))
	}
}

// endStream ends one stream, if it has not ended.
func (r *Runtime) endStream(s *stream, err *world.Error) {
	if r.dropStream(s) {
		s.call.Fail(err)
	}
}

// dropStream forgets one who does not listen any more, and reports whether he was known.
func (r *Runtime) dropStream(s *stream) bool {
	i := slices.Index(r.events.streams, s)
	if i < 0 {
		return false
	}
	r.events.streams = slices.Delete(r.events.streams, i, i+1)
	r.events.gone = 1 + int(s.call.Draw()&1)
	return true
}

// forgetEvents is what a new process of the runtime has done.
func (r *Runtime) forgetEvents() { r.events.held, r.events.gone = nil, 0 }

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
	call.OnSever(func() { r.dropStream(s) })
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
	q := &r.events
	if r.opts.Old || r.wire.Down() {
		return
	}
	if len(q.streams) == 0 && q.gone > 0 {
		q.gone--
		return
	}
	q.gone = 0
	event := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: what,
		CreatedAt: r.now().Add(r.skew).UnixNano()}
	if s := r.sandboxes[sandboxID]; s != nil {
		event.PodSandboxStatus = s.inspected().Status
		for _, c := range r.inSandbox(s) {
			event.ContainersStatuses = append(event.ContainersStatuses, c.inspected().Status)
		}
	}
	if len(q.streams) == 0 {
		for len(q.held) > 0 && !r.now().Before(q.held[0].until) {
			q.held = q.held[1:]
		}
		q.held = append(q.held, heldEvent{event, r.now().Add(heldFor)})
	}
	for _, s := range q.streams {
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
	if !at.After(s.last) {
		at = s.last.Add(1) // what comes at one instant comes in any order
	}
	if fate.EffectDelay == 0 || fate.Twice { // else those after it overtake it
		s.last = at
		r.wire.Arrive(at, event)
	}
	if fate.EffectDelay > 0 {
		r.wire.Arrive(at.Add(fate.EffectDelay), event)
	}
}
