package apiserver

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"seedlet.dev/world"
)

// script is a server for one watch: the test queues its responses.
type script struct {
	t        *testing.T
	steps    chan http.HandlerFunc
	requests chan *http.Request
}

func newScript(t *testing.T) *script {
	return &script{
		t: t, steps: make(chan http.HandlerFunc, 16),
		requests: make(chan *http.Request, 64),
	}
}

// serve responds with the next step. Without one the request hangs.
func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	s.requests <- r
	select {
	case step := <-s.steps:
		step(w, r)
	case <-r.Context().Done():
	}
}

func (s *script) addStep(step http.HandlerFunc) { s.steps <- step }

// nextRequest returns the next request, and waits for it if necessary.
func (s *script) nextRequest() *http.Request {
	s.t.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(waitMax):
		s.t.Fatal("no request")
		panic("unreachable")
	}
}

// errorResponse is a step that responds with an error.
func errorResponse(code int, reason string, details map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { respondError(w, code, reason, details) }
}

// listResponse is a step that responds with a list of pods.
func listResponse(version string, pods ...map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": pods,
			"metadata": map[string]any{"resourceVersion": version}})
	}
}

// change is one event of a watch stream.
type change struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

// streamResponse is a step that sends changes, and then ends the stream or leaves it open.
func streamResponse(open bool, changes ...change) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, c := range changes {
			_ = json.NewEncoder(w).Encode(c) // the client may have disconnected
		}
		w.(http.Flusher).Flush()
		if open {
			<-r.Context().Done()
		}
	}
}

// bookmark returns a bookmark; if complete, one that ends the initial events.
func bookmark(version string, complete bool) change {
	pod := object("Pod", "", "", version)
	if complete {
		pod["metadata"].(map[string]any)["annotations"] =
			map[string]any{"k8s.io/initial-events-end": "true"}
	}
	return change{"BOOKMARK", pod}
}

func pod(name, version string) map[string]any { return object("Pod", "ns", name, version) }

// summarize returns an event of a watch as a short text.
func summarize(t *testing.T, ev world.Event) string {
	t.Helper()
	name := func(o world.Object) string {
		_, meta := o.Meta()
		if meta.GetManagedFields() != nil {
			t.Errorf("%s is delivered with managedFields", meta.GetName())
		}
		return meta.GetName() + "@" + meta.GetResourceVersion()
	}
	switch m := ev.Body.(type) {
	case *world.ObjectsListed:
		text := "listed"
		for _, o := range m.Objects {
			text += " " + name(o)
		}
		return text
	case *world.ObjectChanged:
		return "changed " + name(m.Object)
	case *world.ObjectGone:
		return "gone " + name(m.Object)
	case *world.WatchFailing:
		return "failing " + string(m.Err.Kind)
	}
	t.Fatalf("unexpected event %+v", ev)
	return ""
}

func (f *fake) expect(wants ...string) {
	f.t.Helper()
	for _, want := range wants {
		if got := summarize(f.t, f.nextEvent()); got != want {
			f.t.Fatalf("event %q, want %q", got, want)
		}
	}
}

func newWatch(t *testing.T) (*fake, *script) {
	t.Helper()
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{
		Watch: 1, WatchTarget: world.WatchTarget{Resource: world.ResourcePods}}})
	return f, s
}

// expectQuery checks the query of the next request.
func (s *script) expectQuery(wants map[string]string) {
	s.t.Helper()
	r := s.nextRequest()
	for key, want := range wants {
		if got := r.URL.Query().Get(key); got != want {
			s.t.Errorf("%s of %s is %q, want %q", key, r.URL, got, want)
		}
	}
}

// With streaming lists one stream is enough.
func TestWatchStreamed(t *testing.T) {
	f, s := newWatch(t)
	s.addStep(streamResponse(false,
		change{"ADDED", pod("b", "4")}, change{"ADDED", pod("a", "3")}, bookmark("5", true),
		change{"MODIFIED", pod("a", "6")}, change{"ADDED", pod("c", "7")},
		change{"DELETED", pod("b", "8")}, bookmark("20", false)))
	s.addStep(streamResponse(true, change{"MODIFIED", pod("c", "21")}))
	f.expect("listed a@3 b@4", "changed a@6", "changed c@7", "gone b@8", "changed c@21")
	s.expectQuery(map[string]string{"watch": "true", "sendInitialEvents": "true",
		"resourceVersion": "", "resourceVersionMatch": "NotOlderThan",
		"fieldSelector": "spec.nodeName=node-1"})
	s.expectQuery(map[string]string{"watch": "true", "sendInitialEvents": "", "resourceVersion": "20",
		"allowWatchBookmarks": "true", "fieldSelector": "spec.nodeName=node-1"})
}

// Without streaming lists: a list that is never from a possibly outdated cache, then a stream.
func TestWatchListed(t *testing.T) {
	f, s := newWatch(t)
	s.addStep(errorResponse(422, "Invalid", nil))
	s.addStep(listResponse("5", pod("b", "4"), pod("a", "3")))
	s.addStep(streamResponse(true, change{"DELETED", pod("a", "6")}))
	f.expect("listed a@3 b@4", "gone a@6")
	s.expectQuery(map[string]string{"sendInitialEvents": "true"})
	s.expectQuery(map[string]string{"watch": "", "resourceVersion": "",
		"fieldSelector": "spec.nodeName=node-1"})
	s.expectQuery(map[string]string{"watch": "true", "resourceVersion": "5"})
}

// A resource version that is expired, in the stream or when opening it, leads to a list and is not
// reported as a failure.
func TestWatchExpired(t *testing.T) {
	f, s := newWatch(t)
	gone := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": "Expired", "code": 410}
	s.addStep(streamResponse(false, change{"ADDED", pod("a", "3")}, bookmark("5", true),
		change{"ERROR", gone}))
	s.addStep(errorResponse(410, "Expired", nil)) // at version 5
	s.addStep(streamResponse(false, change{"ADDED", pod("b", "9")}, bookmark("9", true)))
	s.addStep(errorResponse(410, "Expired", nil)) // at version 9, without a list
	s.addStep(streamResponse(true, bookmark("12", true)))
	f.expect("listed a@3", "listed b@9", "listed")
	for _, version := range []string{"", "5", "", "9"} {
		s.expectQuery(map[string]string{"resourceVersion": version})
	}
}

// A failure is reported when it begins and when its kind changes. A list ends it.
func TestWatchFailing(t *testing.T) {
	f, s := newWatch(t)
	for range 3 { // each attempt is a stream and then a list
		s.addStep(errorResponse(403, "Forbidden", nil))
		s.addStep(errorResponse(403, "Forbidden", nil))
	}
	s.addStep(errorResponse(503, "ServiceUnavailable", nil))
	s.addStep(errorResponse(503, "ServiceUnavailable", nil))
	// This stream ends, and cannot be opened again.
	s.addStep(streamResponse(false, bookmark("5", true), bookmark("6", false)))
	s.addStep(errorResponse(403, "Forbidden", nil))
	s.addStep(streamResponse(true, change{"ADDED", pod("a", "6")}, bookmark("6", true)))
	f.expect("failing Refused", "failing Unavailable", "listed", "failing Refused", "listed a@6")
}

// A resource that the server does not serve is reported as not found, until the server serves it.
func TestWatchUnservedResource(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{Watch: 4,
		WatchTarget: world.WatchTarget{Resource: world.ResourceTrustBundles}}})
	for range 2 { // a stream, and then a list
		s.addStep(http.NotFound)
	}
	const version = "certificates.k8s.io/v1beta1"
	s.addStep(streamResponse(true, change{"BOOKMARK", func() map[string]any {
		mark := bookmark("5", true).Object
		mark["kind"], mark["apiVersion"] = "ClusterTrustBundle", version
		return mark
	}()}))
	f.expect("failing NotFound", "listed")
	if r := s.nextRequest(); r.URL.Path != "/apis/"+version+"/clustertrustbundles" {
		t.Errorf("request %s", r.URL)
	}
}

// A response of something other than the API server is not decoded as an empty list.
func TestWatchInvalidResponse(t *testing.T) {
	f, s := newWatch(t)
	s.addStep(errorResponse(422, "Invalid", nil))
	s.addStep(func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, map[string]any{}) })
	s.addStep(errorResponse(422, "Invalid", nil))
	s.addStep(func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, map[string]any{"kind": "SecretList", "apiVersion": "v1"})
	})
	s.addStep(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>log in here</html>")
	})
	s.addStep(listResponse("5", pod("a", "3")))
	f.expect("failing Internal", "listed a@3")
}

// The Retry-After of an overloaded server is obeyed.
func TestWatchThrottled(t *testing.T) {
	f, s := newWatch(t)
	began := time.Now()
	s.addStep(errorResponse(429, "TooManyRequests", map[string]any{"retryAfterSeconds": 1}))
	s.addStep(errorResponse(429, "TooManyRequests", nil))
	s.addStep(streamResponse(true, bookmark("5", true)))
	f.expect("failing Throttled", "listed")
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("retried after %v", waited)
	}
}

// A watch of one object has a field selector, because a node may read no other objects.
func TestWatchOneObject(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{Watch: 4, WatchTarget: world.WatchTarget{
		Resource: world.ResourceSecrets, Namespace: "ns", Name: "key"}}})
	s.addStep(streamResponse(true, change{"ADDED", object("Secret", "ns", "key", "3")},
		change{"BOOKMARK", func() map[string]any {
			mark := bookmark("5", true).Object
			mark["kind"] = "Secret"
			return mark
		}()}))
	f.expect("listed key@3")
	r := s.nextRequest()
	if r.URL.Path != "/api/v1/namespaces/ns/secrets" ||
		r.URL.Query().Get("fieldSelector") != "metadata.name=key" {
		t.Errorf("request %s", r.URL)
	}
}

// After UnwatchObjects nothing is delivered, and the server's stream ends.
func TestUnwatch(t *testing.T) {
	f, s := newWatch(t)
	ended := make(chan struct{})
	s.addStep(func(w http.ResponseWriter, r *http.Request) {
		streamResponse(true, bookmark("5", true))(w, r)
		close(ended)
	})
	f.expect("listed")
	f.port.Do(world.Effect{Body: &world.UnwatchObjects{Watch: 1}})
	f.port.Do(world.Effect{Body: &world.UnwatchObjects{Watch: 1}}) // no effect
	select {
	case <-ended:
	case <-time.After(waitMax):
		t.Error("the stream has not ended")
	}
}

// A slow reader loses no event.
func TestWatchSlowReader(t *testing.T) {
	f, s := newWatch(t)
	const many = 500 // more than all buffers in between hold
	changes := []change{bookmark("1", true)}
	for range many {
		changes = append(changes, change{"MODIFIED", pod("a", "2")})
	}
	s.addStep(streamResponse(true, changes...))
	f.expect("listed")
	s.nextRequest()
	for range many {
		f.expect("changed a@2")
	}
}

// stallingProxy is a TCP proxy that can stop forwarding without closing its connections.
type stallingProxy struct {
	net.Listener
	mu      sync.Mutex
	stalled bool
	conns   []net.Conn
}

func newStallingProxy(t *testing.T, to string) *stallingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &stallingProxy{Listener: l}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			z.mu.Lock()
			z.stalled = false // new connections work
			z.conns = append(z.conns, in, out)
			z.mu.Unlock()
			work.Go(func() { z.forward(in, out) })
			work.Go(func() { z.forward(out, in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		z.mu.Lock()
		for _, c := range z.conns {
			c.Close()
		}
		z.mu.Unlock()
		work.Wait()
	})
	return z
}

// forward copies data in one direction. After a stall it reads and drops the data of existing
// connections.
func (z *stallingProxy) forward(from, to net.Conn) {
	buffer, dropping := make([]byte, 4096), false
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		z.mu.Lock()
		dropping = dropping || z.stalled
		z.mu.Unlock()
		if dropping {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A connection that dies silently is detected, and the watch continues over a new one.
func TestWatchSilentConnection(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	z := newStallingProxy(t, f.url[len("https://"):])
	through := &fake{t: t, clock: f.clock, events: make(chan world.Event, 64)}
	through.connect("https://"+z.Addr().String(), f.ca, nil)
	through.port.Do(world.Effect{Body: &world.WatchObjects{
		Watch: 1, WatchTarget: world.WatchTarget{Resource: world.ResourcePods}}})
	s.addStep(streamResponse(true, change{"ADDED", pod("a", "3")}, bookmark("5", true)))
	s.addStep(streamResponse(true, change{"ADDED", pod("b", "6")}, bookmark("7", true)))
	through.expect("listed a@3")
	z.mu.Lock()
	z.stalled = true
	z.mu.Unlock()
	through.expect("listed b@6")
}
