package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// backOff returns an effect that records an event of a container.
func backOff(message string) world.Effect {
	return world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web",
			UID: "u1", FieldPath: "spec.containers{web}"},
		Type: v1.EventTypeWarning, Reason: "BackOff", Message: message,
	}}
}

// eventRequest is a request that writes an Event object.
type eventRequest struct {
	method, path string
	event        v1.Event
}

// newEventServer returns a server that accepts Event objects as they are.
func newEventServer(t *testing.T, change func(*Options)) (*fake, chan eventRequest) {
	requests := make(chan eventRequest, 64)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		s := eventRequest{method: r.Method, path: r.URL.Path}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &s.event)
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		requests <- s
		if s.event.Name == "" { // a patch
			s.event.Name = "web.1"
		}
		s.event.TypeMeta.Kind, s.event.TypeMeta.APIVersion = "Event", "v1"
		respond(w, 200, &s.event)
	}, change)
	return f, requests
}

func nextRequest(t *testing.T, requests chan eventRequest) eventRequest {
	t.Helper()
	select {
	case s := <-requests:
		return s
	case <-time.After(waitMax):
		t.Fatal("no Event was sent")
		panic("unreachable")
	}
}

// Repeated events are one object with a count.
func TestRepeatedEventsAreCounted(t *testing.T) {
	f, requests := newEventServer(t, nil)
	f.port.Do(backOff("back-off"))
	made := nextRequest(t, requests)
	if made.method != "POST" || made.path != "/api/v1/namespaces/ns/events" {
		t.Errorf("%s %s", made.method, made.path)
	}
	e := made.event
	if e.Reason != "BackOff" || e.Type != "Warning" || e.Message != "back-off" || e.Count != 1 ||
		e.Source.Component != "kubelet" || e.Source.Host != "node-1" ||
		e.InvolvedObject.UID != "u1" || e.InvolvedObject.FieldPath != "spec.containers{web}" {
		t.Errorf("created %+v", e)
	}
	f.port.Do(backOff("back-off"))
	if again := nextRequest(t, requests); again.method != "PATCH" || again.event.Count != 2 {
		t.Errorf("%s, count %d", again.method, again.event.Count)
	}
}

// Events of the Node, which has no namespace, are in namespace default.
func TestNodeEvents(t *testing.T) {
	f, requests := newEventServer(t, nil)
	f.port.Do(world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Node", Name: "node-1", UID: "node-1"},
		Type:      v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."}})
	if made := nextRequest(t, requests); made.path != "/api/v1/namespaces/default/events" ||
		made.event.InvolvedObject.UID != "node-1" {
		t.Errorf("%s: %+v", made.path, made.event)
	}
}

// The events of one pod are rate limited: a container that crashes in a loop must not fill the API
// server's storage.
func TestEventsOfOnePodAreRateLimited(t *testing.T) {
	f, requests := newEventServer(t, nil)
	const burst = 25
	for range 2 * burst {
		f.port.Do(backOff("back-off"))
	}
	f.port.Do(world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "other"},
		Type:      v1.EventTypeNormal, Reason: "Pulled", Message: "there"}})
	count := 0
	for nextRequest(t, requests).event.Reason != "Pulled" {
		count++
	}
	if count != burst {
		t.Errorf("%d events were sent, want %d", count, burst)
	}
}

// Tenants can make the machine run out of memory again and again. Ten of these events become
// objects, further ones are counted in the last of them, and the writes are rate limited.
func TestEventsOfNodeAreRateLimited(t *testing.T) {
	f, requests := newEventServer(t, nil)
	const burst, aggregated = 25, 10
	for i := range 4 * burst {
		f.port.Do(world.Effect{Body: &world.RecordEvent{
			Regarding: v1.ObjectReference{Kind: "Node", Name: "node-1", UID: "node-1"},
			Type:      v1.EventTypeWarning, Reason: "SystemOOM",
			Message: fmt.Sprintf("System OOM encountered, victim process: x, pid: %d", i)}})
	}
	f.port.Do(backOff("there"))
	writes, creations := 0, 0
	for s := nextRequest(t, requests); s.event.Reason != "BackOff"; s = nextRequest(t, requests) {
		writes++
		if s.method == http.MethodPost {
			creations++
		}
	}
	if writes != burst || creations != aggregated {
		t.Errorf("%d events were written and %d created, want %d and %d", writes, creations, burst,
			aggregated)
	}
}

// Events have a rate limit of their own and delay no other operation. The port can be closed while
// events wait.
func TestEventsHaveTheirOwnLimit(t *testing.T) {
	f, requests := newEventServer(t, func(o *Options) { o.EventQPS, o.EventBurst = 0.001, 1 })
	f.port.Do(backOff("one"))
	f.port.Do(backOff("two"))
	nextRequest(t, requests)
	f.setHandler(func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, object("Pod", "ns", "web", "1"))
	})
	get := &world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"}
	if _, err := f.call(get, waitMax); err != nil {
		t.Errorf("another operation is delayed: %v", err)
	}
	if n := len(f.remoteAddrs("/api/v1/namespaces/ns/events")); n != 1 {
		t.Errorf("%d events were sent, want 1", n)
	}
}
