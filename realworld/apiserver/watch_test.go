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

// script is a server for one watch: what it does next is said by the test.
type script struct {
	t     *testing.T
	steps chan http.HandlerFunc
	asked chan *http.Request
}

func newScript(t *testing.T) *script {
	return &script{
		t: t, steps: make(chan http.HandlerFunc, 16),
		asked: make(chan *http.Request, 64),
	}
}

// serve takes the next step. Without one the request hangs.
func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	s.asked <- r
	select {
	case step := <-s.steps:
		step(w, r)
	case <-r.Context().Done():
	}
}

func (s *script) next(step http.HandlerFunc) { s.steps <- step }

// request is the next request that has come, or comes.
func (s *script) request() *http.Request {
	s.t.Helper()
	select {
	case r := <-s.asked:
		return r
	case <-time.After(waitMax):
		s.t.Fatal("nothing is asked")
		panic("unreachable")
	}
}

// refuses is a step that answers with an error.
func refuses(code int, reason string, more map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, reason, more) }
}

// lists is a step that answers with a list of pods.
func lists(version string, pods ...map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": pods,
			"metadata": map[string]any{"resourceVersion": version}})
	}
}

// change is one event of a stream.
type change struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

// streams is a step that sends changes, and then ends the stream or leaves it open.
func streams(open bool, changes ...change) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, c := range changes {
			_ = json.NewEncoder(w).Encode(c) // who does not get it any more has gone
		}
		w.(http.Flusher).Flush()
		if open {
			<-r.Context().Done()
		}
	}
}

// bookmark is where a stream is, and maybe that all objects have been told.
func bookmark(version string, complete bool) change {
	pod := object("Pod", "", "", version)
	if complete {
		pod["metadata"].(map[string]any)["annotations"] =
			map[string]any{"k8s.io/initial-events-end": "true"}
	}
	return change{"BOOKMARK", pod}
}

func pod(name, version string) map[string]any { return object("Pod", "ns", name, version) }

// told is what a port tells of a watch, in short.
func told(t *testing.T, ev world.Event) string {
	t.Helper()
	say := func(o world.Object) string {
		_, meta := o.Get()
		if meta.GetManagedFields() != nil {
			t.Errorf("%s is told with managedFields", meta.GetName())
		}
		return meta.GetName() + "@" + meta.GetResourceVersion()
	}
	switch m := ev.Body.(type) {
	case *world.ObjectsListed:
		text := "listed"
		for _, o := range m.Objects {
			text += " " + say(o)
		}
		return text
	case *world.ObjectChanged:
		return "changed " + say(m.Object)
	case *world.ObjectGone:
		return "gone " + say(m.Object)
	case *world.WatchFailing:
		return "failing " + string(m.Err.Kind)
	}
	t.Fatalf("told %+v", ev)
	return ""
}

func (f *fake) expect(wants ...string) {
	f.t.Helper()
	for _, want := range wants {
		if got := told(f.t, f.next()); got != want {
			f.t.Fatalf("told %q, want %q", got, want)
		}
	}
}

func watching(t *testing.T) (*fake, *script) {
	t.Helper()
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{
		Watch: 1, Watched: world.Watched{Resource: world.ResourcePods}}})
	return f, s
}

// query checks one request of a watch.
func (s *script) query(wants map[string]string) {
	s.t.Helper()
	r := s.request()
	for key, want := range wants {
		if got := r.URL.Query().Get(key); got != want {
			s.t.Errorf("%s of %s is %q, want %q", key, r.URL, got, want)
		}
	}
}

// A server with streaming lists: one stream has it all.
func TestWatchStreamed(t *testing.T) {
	f, s := watching(t)
	s.next(streams(false,
		change{"ADDED", pod("b", "4")}, change{"ADDED", pod("a", "3")}, bookmark("5", true),
		change{"MODIFIED", pod("a", "6")}, change{"ADDED", pod("c", "7")},
		change{"DELETED", pod("b", "8")}, bookmark("20", false)))
	s.next(streams(true, change{"MODIFIED", pod("c", "21")}))
	f.expect("listed a@3 b@4", "changed a@6", "changed c@7", "gone b@8", "changed c@21")
	s.query(map[string]string{"watch": "true", "sendInitialEvents": "true", "resourceVersion": "",
		"resourceVersionMatch": "NotOlderThan", "fieldSelector": "spec.nodeName=node-1"})
	s.query(map[string]string{"watch": "true", "sendInitialEvents": "", "resourceVersion": "20",
		"allowWatchBookmarks": "true", "fieldSelector": "spec.nodeName=node-1"})
}

// A server without: a list that is never from a cache of unknown age, and then a stream.
func TestWatchListed(t *testing.T) {
	f, s := watching(t)
	s.next(refuses(422, "Invalid", nil))
	s.next(lists("5", pod("b", "4"), pod("a", "3")))
	s.next(streams(true, change{"DELETED", pod("a", "6")}))
	f.expect("listed a@3 b@4", "gone a@6")
	s.query(map[string]string{"sendInitialEvents": "true"})
	s.query(map[string]string{"watch": "", "resourceVersion": "",
		"fieldSelector": "spec.nodeName=node-1"})
	s.query(map[string]string{"watch": "true", "resourceVersion": "5"})
}

// A version that the server has forgotten, in the stream or before it: a list, and no failure.
func TestWatchExpired(t *testing.T) {
	f, s := watching(t)
	gone := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": "Expired", "code": 410}
	s.next(streams(false, change{"ADDED", pod("a", "3")}, bookmark("5", true),
		change{"ERROR", gone}))
	s.next(refuses(410, "Expired", nil)) // from version 5
	s.next(streams(false, change{"ADDED", pod("b", "9")}, bookmark("9", true)))
	s.next(refuses(410, "Expired", nil)) // from version 9, but without a list
	s.next(streams(true, bookmark("12", true)))
	f.expect("listed a@3", "listed b@9", "listed")
	for _, version := range []string{"", "5", "", "9"} {
		s.query(map[string]string{"resourceVersion": version})
	}
}

// A failure is told when it begins and when its reason changes. A list ends it.
func TestWatchFailing(t *testing.T) {
	f, s := watching(t)
	for range 3 { // each time a stream, and then a list, is tried
		s.next(refuses(403, "Forbidden", nil))
		s.next(refuses(403, "Forbidden", nil))
	}
	s.next(refuses(503, "ServiceUnavailable", nil))
	s.next(refuses(503, "ServiceUnavailable", nil))
	// This one ends, and cannot be opened again.
	s.next(streams(false, bookmark("5", true), bookmark("6", false)))
	s.next(refuses(403, "Forbidden", nil))
	s.next(streams(true, change{"ADDED", pod("a", "6")}, bookmark("6", true)))
	f.expect("failing Refused", "failing Unavailable", "listed", "failing Refused", "listed a@6")
}

// A resource that the server does not have is told not to be there, until it has it.
func TestWatchUnserved(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{Watch: 4,
		Watched: world.Watched{Resource: world.ResourceTrustBundles}}})
	for range 2 { // a stream, and then a list
		s.next(http.NotFound)
	}
	const version = "certificates.k8s.io/v1beta1"
	s.next(streams(true, change{"BOOKMARK", func() map[string]any {
		mark := bookmark("5", true).Object
		mark["kind"], mark["apiVersion"] = "ClusterTrustBundle", version
		return mark
	}()}))
	f.expect("failing NotFound", "listed")
	if r := s.request(); r.URL.Path != "/apis/"+version+"/clustertrustbundles" {
		t.Errorf("asked %s", r.URL)
	}
}

// An answer from something else is no list of nothing.
func TestWatchForeign(t *testing.T) {
	f, s := watching(t)
	s.next(refuses(422, "Invalid", nil))
	s.next(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, map[string]any{}) })
	s.next(refuses(422, "Invalid", nil))
	s.next(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"kind": "SecretList", "apiVersion": "v1"})
	})
	s.next(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>log in here</html>")
	})
	s.next(lists("5", pod("a", "3")))
	f.expect("failing Internal", "listed a@3")
}

// A server that is overloaded says when to come again.
func TestWatchThrottled(t *testing.T) {
	f, s := watching(t)
	began := time.Now()
	s.next(refuses(429, "TooManyRequests", map[string]any{"retryAfterSeconds": 1}))
	s.next(refuses(429, "TooManyRequests", nil))
	s.next(streams(true, bookmark("5", true)))
	f.expect("failing Throttled", "listed")
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("came again after %v", waited)
	}
}

// A watch of one object asks for no others, which a node may not see.
func TestWatchOne(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	f.port.Do(world.Effect{Body: &world.WatchObjects{Watch: 4, Watched: world.Watched{
		Resource: world.ResourceSecrets, Namespace: "ns", Name: "key"}}})
	s.next(streams(true, change{"ADDED", object("Secret", "ns", "key", "3")},
		change{"BOOKMARK", func() map[string]any {
			mark := bookmark("5", true).Object
			mark["kind"] = "Secret"
			return mark
		}()}))
	f.expect("listed key@3")
	r := s.request()
	if r.URL.Path != "/api/v1/namespaces/ns/secrets" ||
		r.URL.Query().Get("fieldSelector") != "metadata.name=key" {
		t.Errorf("asked %s", r.URL)
	}
}

// Nothing is told of a watch that has ended, and the server sees it end.
func TestUnwatch(t *testing.T) {
	f, s := watching(t)
	ended := make(chan struct{})
	s.next(func(w http.ResponseWriter, r *http.Request) {
		streams(true, bookmark("5", true))(w, r)
		close(ended)
	})
	f.expect("listed")
	f.port.Do(world.Effect{Body: &world.UnwatchObjects{Watch: 1}})
	f.port.Do(world.Effect{Body: &world.UnwatchObjects{Watch: 1}}) // of no effect
	select {
	case <-ended:
	case <-time.After(waitMax):
		t.Error("the watch goes on")
	}
}

// A reader that takes its time loses nothing.
func TestWatchSlowReader(t *testing.T) {
	f, s := watching(t)
	const many = 500 // more than all buffers between
	changes := []change{bookmark("1", true)}
	for range many {
		changes = append(changes, change{"MODIFIED", pod("a", "2")})
	}
	s.next(streams(true, changes...))
	f.expect("listed")
	s.request()
	for range many {
		f.expect("changed a@2")
	}
}

// freezer is a connection in the middle that can stop carrying anything, and says nothing of it.
type freezer struct {
	net.Listener
	mu     sync.Mutex
	frozen bool
	conns  []net.Conn
}

func newFreezer(t *testing.T, to string) *freezer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &freezer{Listener: l}
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
			z.frozen = false // what is dialled anew works
			z.conns = append(z.conns, in, out)
			z.mu.Unlock()
			work.Go(func() { z.carry(in, out) })
			work.Go(func() { z.carry(out, in) })
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

// carry carries data one way, until it is frozen: from then on it takes it and drops it, for
// connections that were there.
func (z *freezer) carry(from, to net.Conn) {
	buffer, dropping := make([]byte, 4096), false
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		z.mu.Lock()
		dropping = dropping || z.frozen
		z.mu.Unlock()
		if dropping {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A connection that dies in silence is noticed, and the watch goes on over another.
func TestWatchSilentConnection(t *testing.T) {
	s := newScript(t)
	f := newFake(t, s.serve, nil)
	z := newFreezer(t, f.url[len("https://"):])
	through := &fake{t: t, clock: f.clock, events: make(chan world.Event, 64)}
	through.connect("https://"+z.Addr().String(), f.ca, nil)
	through.port.Do(world.Effect{Body: &world.WatchObjects{
		Watch: 1, Watched: world.Watched{Resource: world.ResourcePods}}})
	s.next(streams(true, change{"ADDED", pod("a", "3")}, bookmark("5", true)))
	s.next(streams(true, change{"ADDED", pod("b", "6")}, bookmark("7", true)))
	through.expect("listed a@3")
	z.mu.Lock()
	z.frozen = true
	z.mu.Unlock()
	through.expect("listed b@6")
}
