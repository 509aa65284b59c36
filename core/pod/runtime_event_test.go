package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"seedlet.dev/core/pleg"
)

const (
	eventCreated = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	eventStarted = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	eventStopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	eventDeleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

func TestObserveEvent(t *testing.T) {
	for _, test := range []struct {
		name            string
		have            State
		id              string
		eventType       runtimeapi.ContainerEventType
		changed, relist bool
		want            State
	}{
		{"starts", Created, "web0", eventStarted, true, false, Running},
		{"stops", Running, "web0", eventStopped, true, false, Exited},
		{"stops before its start is known", Created, "web0", eventStopped, true, false,
			Exited},
		{"a late start", Exited, "web0", eventStarted, false, false, Exited},
		{"a late start in state Unknown", Unknown, "web0", eventStarted, false, false, Unknown},
		{"a repeated stop", Exited, "web0", eventStopped, false, false, Exited},
		{"a late creation", Running, "web0", eventCreated, false, false, Running},
		{"removed", Exited, "web0", eventDeleted, true, false, ""},
		{"an unknown container starts", Running, "new", eventStarted, false, true, Running},
		{"an unknown container is created", Running, "new", eventCreated, false, true, Running},
		{"an unknown container is removed", Running, "new", eventDeleted, false, false, Running},
		{"the sandbox starts", Running, "s", eventStarted, false, false, Running},
		{"the sandbox stops", Running, "s", eventStopped, true, false, Running},
		{"the sandbox is about to be removed", Running, "s", eventDeleted, false, true, Running},
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, test.have))
		ev := &pleg.Event{UID: "u", ID: test.id, Type: test.eventType}
		changed, relist := p.ObserveEvent(ev, t0)
		if changed != test.changed || relist != test.relist {
			t.Errorf("%s: changed %t, relist %t", test.name, changed, relist)
		}
		got := State("")
		if c := p.containerByID("web0"); c != nil {
			got = c.State
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A list that was in flight when a container was removed does not restore it.
func TestLateListDoesNotRestoreRemovedContainer(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited))
	p.ObserveEvent(&pleg.Event{ID: "web0", Type: eventDeleted}, t0.Add(1))
	p.ObserveEvent(&pleg.Event{ID: "web1", Type: eventDeleted}, t0.Add(1))
	for _, id := range []string{"web0", "web1"} {
		if p.ObserveContainer(&pleg.Container{ID: id, Name: "web"}, 1, t0, t0.Add(2)) {
			t.Errorf("%s was added again", id)
		}
	}
}

// A list that was requested before a removal adds nothing, so it does not show that the pod has
// nothing else: the agent has just started, or the outcome of a creation is unknown.
func TestListFromBeforeRemovalIsNotWhole(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Observed, p.StaleSince = false, t0
	p.ObserveEvent(&pleg.Event{ID: "old", Type: eventDeleted}, t0.Add(2))
	p.ObserveContainer(&pleg.Container{ID: "web0", Name: "web"}, 1, t0.Add(1), t0.Add(3))
	if p.ObserveEnd(1, t0.Add(1)); p.Observed || p.StaleSince.IsZero() {
		t.Errorf("the pod counts as observed: %t, stale since %v", p.Observed, p.StaleSince)
	}
	p.ObserveContainer(&pleg.Container{ID: "web0", Name: "web"}, 2, t0.Add(3), t0.Add(4))
	if p.ObserveEnd(2, t0.Add(3)); !p.Observed || !p.StaleSince.IsZero() || len(p.Containers) != 1 {
		t.Errorf("then observed %t, stale since %v, %d containers", p.Observed, p.StaleSince,
			len(p.Containers))
	}
}

// In any order and with any repetition, events move a container to the furthest state that they
// have.
func TestEventsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.SampledFrom([]runtimeapi.ContainerEventType{
			eventCreated, eventStarted, eventStopped}), 1, 8).Draw(t, "events")
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Created))
		furthest := Created
		for _, eventType := range events {
			p.ObserveEvent(&pleg.Event{ID: "web0", Type: eventType}, t0)
			to := map[runtimeapi.ContainerEventType]State{
				eventCreated: Created, eventStarted: Running, eventStopped: Exited}[eventType]
			if to.order() > furthest.order() {
				furthest = to
			}
		}
		if got := p.containerByID("web0").State; got != furthest {
			t.Fatalf("%s after %v, want %s", got, events, furthest)
		}
	})
}
