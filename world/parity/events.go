package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Events runs the suite of the stream of container events. The image of the containers must be
// present.
//
// While no stream is open containerd 2 buffers events for five minutes and sends them to the next
// stream, with the statuses of their time. It loses the first event after a stream is closed,
// because it notices the close only by that event. So events from before the start of a stream may
// arrive late, in part, or not at all. Only the events during the stream are complete.
func Events(t *testing.T, w EventRuntime) {
	runCases(t, w, 300, []criCase{
		{"events report the life cycle of a pod in order", func(p *pod) { eventsOfAPodLifecycle(p, w) }},
		{"removing a sandbox sends an event for each object", func(p *pod) { eventsOfRemoval(p, w) }},
		{"a failed start sends no event", func(p *pod) { failedStartHasNoEvent(p, w) }},
		{"earlier events may be sent late, with the statuses of their time",
			func(p *pod) { bufferedEvents(p, w) }},
	})
}

// NoEvents runs the suite of a runtime without the stream, as containerd 1.6.
func NoEvents(t *testing.T, w Runtime) {
	runCases(t, w, 300, []criCase{
		{"the runtime does not support the stream", func(p *pod) {
			p.mustFail(&runtimeapi.GetEventsRequest{}, world.KindUnimplemented)
		}},
	})
}

// streamOpenDelay is enough time for the runtime to open a stream. The CRI does not report when a
// stream is open.
const streamOpenDelay = 500 * time.Millisecond

// shortestStream is how long a stream is first open. Nothing but its deadline ends a stream.
const shortestStream = 8 * time.Second

// recordEvents calls prepare, opens a stream, calls act, and returns the events of act's objects
// when the stream has ended at its deadline. act returns the names of its objects by ID. If act has
// taken more than half of the time, its last events may be missing: it is all done again, in a
// stream twice as long. The functions get the number of the attempt.
func (p *pod) recordEvents(w EventRuntime, prepare func(attempt uint32),
	act func(attempt uint32) map[string]string) eventRecord {
	p.Helper()
	for attempt, open := uint32(0), shortestStream; ; attempt, open = attempt+1, 2*open {
		prepare(attempt)
		var took time.Duration
		stream := p.recordStream(w, open, func() map[string]string {
			began := p.w.Now()
			names := act(attempt)
			took = p.w.Now().Sub(began)
			return names
		})
		if took <= open/2 || open > Patience {
			return stream
		}
	}
}

// recordStream opens a stream, calls act, and returns the events of act's objects when the stream
// has ended at its deadline.
func (p *pod) recordStream(w EventRuntime, duration time.Duration,
	act func() map[string]string) eventRecord {
	p.Helper()
	before := len(w.Events())
	opened := p.w.Now()
	wait := w.Stream(duration)
	p.w.Sleep(streamOpenDelay)
	names := act()
	body, err := wait()
	p.check(body == nil && err.Has(world.KindTimeout), "the stream ended with %v, %v", body, err)
	took := p.w.Now().Sub(opened)
	p.check(took >= duration && took < duration+Patience, "the stream was open for %v", took)
	stream := eventRecord{opened: opened, names: names}
	for _, e := range w.Events()[before:] {
		if names[e.ContainerId] != "" {
			stream.events = append(stream.events, e)
		}
	}
	return stream
}

// eventRecord holds the events of some objects in one stream.
type eventRecord struct {
	opened time.Time
	names  map[string]string // names of the objects by ID
	events []*runtimeapi.ContainerEventResponse
}

// duringStream returns the events that happened while the stream was open.
func (h eventRecord) duringStream() eventRecord {
	h.events = slices.DeleteFunc(slices.Clone(h.events),
		func(e *runtimeapi.ContainerEventResponse) bool { return e.CreatedAt < h.opened.UnixNano() })
	return h
}

// lines returns the events as text: the object, the type, and the state of the pod at that time.
func (h eventRecord) lines() []string {
	kinds := map[runtimeapi.ContainerEventType]string{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: "created",
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: "started",
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: "stopped",
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: "deleted",
	}
	var lines []string
	for _, e := range h.events {
		lines = append(lines, fmt.Sprintf("%s %s: %s", h.names[e.ContainerId],
			kinds[e.ContainerEventType], podStateText(e)))
	}
	return lines
}

func (p *pod) expectEvents(h eventRecord, want ...string) {
	p.Helper()
	if got := h.lines(); !slices.Equal(got, want) {
		p.Errorf("got %q, want %q", got, want)
	}
}

// Each event has the statuses of the pod's sandbox and of all its containers, in no order, as of
// the time of the event.
func eventsOfAPodLifecycle(p *pod, w EventRuntime) {
	h := p.recordEvents(w, p.endEarlierStream, func(attempt uint32) map[string]string {
		id := p.createSandbox(attempt)
		container := p.startNewContainer(id, HandlesTerm7, attempt)
		p.stop(container, beyondPatience)
		p.remove(container)
		p.stopSandbox(id)
		p.removeSandbox(id)
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.expectEvents(h, "sandbox created: ready", "sandbox started: ready",
		"container created: ready, created", "container started: ready, running",
		"container stopped: ready, exited with 7", "container deleted: ready",
		"sandbox stopped: not ready", "sandbox deleted: not ready")
	last := h.opened.UnixNano()
	for _, e := range h.events {
		p.check(e.CreatedAt >= last && e.CreatedAt <= p.w.Now().UnixNano(),
			"an event of %d after one of %d", e.CreatedAt, last)
		last = e.CreatedAt
		p.check(e.GetPodSandboxStatus().GetMetadata().GetUid() == p.uid, "%v", e.PodSandboxStatus)
	}
}

// endEarlierStream creates and removes a sandbox, whose first event containerd may lose.
func (p *pod) endEarlierStream(uint32) { p.removeSandbox(p.createSandbox(unusedAttempt)) }

// unusedAttempt is an attempt of a sandbox that no case uses.
const unusedAttempt = 99

// podStateText returns the state of a pod with one container, as an event reports it.
func podStateText(e *runtimeapi.ContainerEventResponse) string {
	text := "not ready"
	if e.GetPodSandboxStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		text = "ready"
	}
	for _, c := range e.ContainersStatuses {
		switch c.State {
		case created:
			text += ", created"
		case isRunning:
			text += ", running"
		case exited:
			text += fmt.Sprintf(", exited with %d", c.ExitCode)
		}
	}
	return text
}

func eventsOfRemoval(p *pod, w EventRuntime) {
	id, container := "", ""
	h := p.recordEvents(w, func(attempt uint32) {
		id = p.createSandbox(attempt)
		container = p.startNewContainer(id, IgnoresTerm, attempt)
	}, func(uint32) map[string]string {
		p.removeSandbox(id)
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.expectEvents(h.duringStream(), "container stopped: ready, exited with 137",
		"sandbox stopped: not ready, exited with 137", "container deleted: not ready",
		"sandbox deleted: not ready")
}

// The container is exited without a run, which only its status shows.
func failedStartHasNoEvent(p *pod, w EventRuntime) {
	id, container := "", ""
	h := p.recordEvents(w, func(attempt uint32) {
		id = p.createSandbox(attempt)
		container = p.createContainer(id, Runs, attempt)
		p.stopSandbox(id)
	}, func(uint32) map[string]string {
		_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
		p.check(err != nil, "the container was started")
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.check(p.status(container).State == exited, "state %v", p.status(container).State)
	p.expectEvents(h.duringStream())
}

func bufferedEvents(p *pod, w EventRuntime) {
	id := p.createSandbox(0)
	container := p.startNewContainer(id, HandlesTerm7, 0)
	p.stop(container, beyondPatience)
	h := p.recordStream(w, 2*time.Second, func() map[string]string {
		return map[string]string{id: "sandbox", container: "container"}
	})
	past := []string{"sandbox created: ready", "sandbox started: ready",
		"container created: ready, created", "container started: ready, running",
		"container stopped: ready, exited with 7"}
	for _, line := range h.lines() {
		at := slices.Index(past, line)
		if at < 0 {
			p.Fatalf("got %q, not in the order of %q", h.lines(), past)
		}
		past = past[at+1:]
	}
}
