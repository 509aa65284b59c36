package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// backOff is an event of a container.
func backOff(message string) world.Effect {
	return world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web",
			UID: "u1", FieldPath: "spec.containers{web}"},
		Type: v1.EventTypeWarning, Reason: "BackOff", Message: message,
	}}
}

// sent is a request about an Event object.
type sent struct {
	method, path string
	event        v1.Event
}

// recording is a server that takes Event objects as they are.
func recording(t *testing.T, change func(*Options)) (*fake, chan sent) {
	requests := make(chan sent, 64)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		s := sent{method: r.Method, path: r.URL.Path}
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
		reply(w, 200, &s.event)
	}, change)
	return f, requests
}

func next(t *testing.T, requests chan sent) sent {
	t.Helper()
	select {
	case s := <-requests:
		return s
	case <-time.After(waitMax):
		t.Fatal("no Event is sent")
		panic("unreachable")
	}
}

// What is told twice is one object, counted.
func TestEventsAreFolded(t *testing.T) {
	f, requests := recording(t, nil)
	f.port.Do(backOff("back-off"))
	made := next(t, requests)
	if made.method != "POST" || made.path != "/api/v1/namespaces/ns/events" {
		t.Errorf("%s %s", made.method, made.path)
	}
	e := made.event
	if e.Reason != "BackOff" || e.Type != "Warning" || e.Message != "back-off" || e.Count != 1 ||
		e.Source.Component != "kubelet" || e.Source.Host != "node-1" ||
		e.InvolvedObject.UID != "u1" || e.InvolvedObject.FieldPath != "spec.containers{web}" {
		t.Errorf("made %+v", e)
	}
	f.port.Do(backOff("back-off"))
	if again := next(t, requests); again.method != "PATCH" || again.event.Count != 2 {
		t.Errorf("%s, count %d", again.method, again.event.Count)
	}
}

// An event of the node is where events of what is in no namespace are.
func TestNodeEvents(t *testing.T) {
	f, requests := recording(t, nil)
	f.port.Do(world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Node", Name: "node-1", UID: "node-1"},
		Type:      v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."}})
	if made := next(t, requests); made.path != "/api/v1/namespaces/default/events" ||
		made.event.InvolvedObject.UID != "node-1" {
		t.Errorf("%s: %+v", made.path, made.event)
	}
}

// Of one pod there are so many at once and no more: a container that crashes for ever does not
// fill the cluster.
func TestEventsOfOnePodAreLimited(t *testing.T) {
	f, requests := recording(t, nil)
	const burst = 25
	for range 2 * burst {
		f.port.Do(backOff("back-off"))
	}
	f.port.Do(world.Effect{Body: &world.RecordEvent{
		Regarding: v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "other"},
		Type:      v1.EventTypeNormal, Reason: "Pulled", Message: "there"}})
	count := 0
	for next(t, requests).event.Reason != "Pulled" {
		count++
	}
	if count != burst {
		t.Errorf("%d were sent, not %d", count, burst)
	}
}

// Events have a limit of their own, and hold up nothing but themselves; the port can be closed
// with some that wait.
func TestEventsWaitForTheirLimit(t *testing.T) {
	f, requests := recording(t, func(o *Options) { o.EventQPS, o.EventBurst = 0.001, 1 })
	f.port.Do(backOff("one"))
	f.port.Do(backOff("two"))
	next(t, requests)
	f.answers(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, object("Pod", "ns", "web", "1"))
	})
	get := &world.GetObject{Resource: world.ResourcePods, Namespace: "ns", Name: "web"}
	if _, err := f.call(get, waitMax); err != nil {
		t.Errorf("another operation is held up: %v", err)
	}
	if n := len(f.from("/api/v1/namespaces/ns/events")); n != 1 {
		t.Errorf("%d events are sent", n)
	}
}
