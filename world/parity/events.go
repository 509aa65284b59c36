package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Events runs the suite of the stream of container events. The image of all containers must be
// there.
//
// containerd 2 keeps events that nobody listens to for five minutes and tells them to the next
// one who does, as they were then; and it loses the first event after a listener has gone,
// because it notices by that one. So what has happened before the stream may be told late, in
// part, or not at all: only what happens while the stream is open is told in full.
func Events(t *testing.T, w Streaming) {
	runCases(t, w, 300, []criCase{
		{"events tell the life of a pod in order", func(p *pod) { eventsOfALife(p, w) }},
		{"what is removed whole is told one by one", func(p *pod) { eventsOfRemoval(p, w) }},
		{"a start that fails is not told", func(p *pod) { eventsOfAFailedStart(p, w) }},
		{"the past may be told late, as it was", func(p *pod) { eventsOfThePast(p, w) }},
	})
}

// NoEvents runs the suite of a runtime that has no stream, as containerd 1.6.
func NoEvents(t *testing.T, w Runtime) {
	runCases(t, w, 300, []criCase{
		{"the stream is not offered", func(p *pod) {
			p.fails(&runtimeapi.GetEventsRequest{}, world.KindInvalid)
		}},
	})
}

// streamOpens is enough time for a stream to be open at the runtime; nothing tells when it is.
const streamOpens = 500 * time.Millisecond

// listen opens a stream, lets things happen, and returns what was heard of them once the stream
// has ended at its deadline. What happens returns the names of its objects, by id.
func (p *pod) listen(w Streaming, open time.Duration, happen func() map[string]string) heard {
	p.Helper()
	before := len(w.Heard())
	began := p.w.Now()
	wait := w.Stream(open)
	p.w.Sleep(streamOpens)
	names := happen()
	body, err := wait()
	p.check(body == nil && err.Has(world.KindTimeout), "the stream ended with %v, %v", body, err)
	took := p.w.Now().Sub(began)
	p.check(took >= open && took < open+5*time.Second, "it was open for %v", took)
	h := heard{began: began, names: names}
	for _, e := range w.Heard()[before:] {
		if names[e.ContainerId] != "" {
			h.events = append(h.events, e)
		}
	}
	return h
}

// heard is what a stream has told of some objects.
type heard struct {
	began  time.Time
	names  map[string]string // of the objects, by id
	events []*runtimeapi.ContainerEventResponse
}

// live is what happened while the stream was open.
func (h heard) live() heard {
	h.events = slices.DeleteFunc(slices.Clone(h.events),
		func(e *runtimeapi.ContainerEventResponse) bool { return e.CreatedAt < h.began.UnixNano() })
	return h
}

// lines are the events in words: whose and what, and the pod as it was then.
func (h heard) lines() []string {
	kinds := map[runtimeapi.ContainerEventType]string{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: "created",
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: "started",
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: "stopped",
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: "deleted",
	}
	var lines []string
	for _, e := range h.events {
		lines = append(lines, fmt.Sprintf("%s %s: %s", h.names[e.ContainerId],
			kinds[e.ContainerEventType], state(e)))
	}
	return lines
}

func (p *pod) tells(h heard, want ...string) {
	p.Helper()
	if got := h.lines(); !slices.Equal(got, want) {
		p.Errorf("told %q, want %q", got, want)
	}
}

// Each event has the statuses of the whole pod as it was then: of its sandbox, and of all its
// containers in no order.
func eventsOfALife(p *pod, w Streaming) {
	h := p.listen(w, 15*time.Second, func() map[string]string {
		id := p.sandbox(0)
		container := p.started(id, HandlesTerm7, 0)
		p.stop(container, 30)
		p.remove(container)
		p.stopSandbox(id)
		p.removeSandbox(id)
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.tells(h, "sandbox created: ready", "sandbox started: ready",
		"container created: ready, created", "container started: ready, running",
		"container stopped: ready, exited with 7", "container deleted: ready",
		"sandbox stopped: not ready", "sandbox deleted: not ready")
	last := h.began.UnixNano()
	for _, e := range h.events {
		p.check(e.CreatedAt >= last && e.CreatedAt <= p.w.Now().UnixNano(),
			"an event of %d after one of %d", e.CreatedAt, last)
		last = e.CreatedAt
		p.check(e.GetPodSandboxStatus().GetMetadata().GetUid() == p.uid, "%v", e.PodSandboxStatus)
	}
}

// state is what an event says of a pod with one container.
func state(e *runtimeapi.ContainerEventResponse) string {
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

func eventsOfRemoval(p *pod, w Streaming) {
	id := p.sandbox(0)
	container := p.started(id, IgnoresTerm, 0)
	h := p.listen(w, 5*time.Second, func() map[string]string {
		p.removeSandbox(id)
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.tells(h.live(), "container stopped: ready, exited with 137",
		"sandbox stopped: not ready, exited with 137", "container deleted: not ready",
		"sandbox deleted: not ready")
}

// The container has exited without having been started, and only a look at it shows that.
func eventsOfAFailedStart(p *pod, w Streaming) {
	id := p.sandbox(0)
	container := p.created(id, Runs, 0)
	p.stopSandbox(id)
	h := p.listen(w, 5*time.Second, func() map[string]string {
		_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
		p.check(err != nil, "it was started")
		return map[string]string{id: "sandbox", container: "container"}
	})
	p.check(p.status(container).State == exited, "state %v", p.status(container).State)
	p.tells(h.live())
}

func eventsOfThePast(p *pod, w Streaming) {
	id := p.sandbox(0)
	container := p.started(id, HandlesTerm7, 0)
	p.stop(container, 30)
	h := p.listen(w, 2*time.Second, func() map[string]string {
		return map[string]string{id: "sandbox", container: "container"}
	})
	past := []string{"sandbox created: ready", "sandbox started: ready",
		"container created: ready, created", "container started: ready, running",
		"container stopped: ready, exited with 7"}
	for _, line := range h.lines() {
		at := slices.Index(past, line)
		if at < 0 {
			p.Fatalf("told %q of the past, not in the order of %q", h.lines(), past)
		}
		past = past[at+1:]
	}
}
