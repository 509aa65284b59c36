package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitMax is how long a test waits for what must come.
const waitMax = 30 * time.Second

// fake is a server that plays the API server, and a port that asks it.
type fake struct {
	t      *testing.T
	url    string
	ca     []byte
	port   *Port
	clock  clock.Clock
	events chan world.Event

	mu     sync.Mutex
	handle http.HandlerFunc
	seen   []*http.Request
	last   world.OpID
}

// newFake starts both. What change does to the options of the port is up to it.
func newFake(t *testing.T, handle http.HandlerFunc, change func(*Options)) *fake {
	t.Helper()
	f := &fake{t: t, clock: clock.New(), events: make(chan world.Event, 64), handle: handle}
	server := httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	server.EnableHTTP2 = true
	server.StartTLS()
	// The port goes first, or the server waits for its watches.
	t.Cleanup(server.Close)
	f.url = server.URL
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f.connect(f.url, f.ca, change)
	return f
}

// connect makes the port, for a server somewhere.
func (f *fake) connect(url string, ca []byte, change func(*Options)) {
	f.t.Helper()
	who, err := identity.Load(identity.Options{
		Kubeconfig: kubeconfig(f.t, url, ca), NodeName: "node-1", UserAgent: "seedlet/test",
		Warn:    func(problem string) { f.t.Error(problem) },
		Silence: 100 * time.Millisecond, SignTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	opts := Options{
		Identity: who, NodeName: "node-1", HeartbeatTimeout: 10 * time.Second, Clock: f.clock,
		RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
		Deliver: func(ev world.Event) { f.events <- ev },
	}
	if change != nil {
		change(&opts)
	}
	port, err := New(opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.port = port
	f.t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { port.Close(); who.Close(); close(closed) }()
		for {
			select {
			case <-f.events: // a watch may be about to tell
			case <-closed:
				return
			}
		}
	})
}

// kubeconfig writes a file that names a server.
func kubeconfig(t *testing.T, server string, ca []byte) string {
	t.Helper()
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": server, "certificate-authority-data": ca}}},
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"token": "secret"}}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{
			"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r)
	handle := f.handle
	f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		f.t.Errorf("%s %s without a token", r.Method, r.URL)
	}
	handle(w, r)
}

// answers changes what the server answers.
func (f *fake) answers(handle http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = handle
}

// from lists where the requests to paths that end in a name have come from.
func (f *fake) from(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var from []string
	for _, r := range f.seen {
		if r.URL.Path == path {
			from = append(from, r.RemoteAddr)
		}
	}
	return from
}

// begin has the port carry out an operation.
func (f *fake) begin(body any, timeout time.Duration) world.OpID {
	f.last++
	f.port.Do(world.Effect{Op: f.last, Body: body, Deadline: f.clock.Now().Add(timeout)})
	return f.last
}

// call carries out an operation.
func (f *fake) call(body any, timeout time.Duration) (any, *world.Error) {
	f.t.Helper()
	op := f.begin(body, timeout)
	ev := f.next()
	if ev.Op != op {
		f.t.Fatalf("told %+v, not the answer to operation %d", ev, op)
	}
	return ev.Body, ev.Err
}

// next is what the port tells next.
func (f *fake) next() world.Event {
	f.t.Helper()
	select {
	case ev := <-f.events:
		return ev
	case <-time.After(waitMax):
		f.t.Fatal("the port tells nothing")
		panic("unreachable")
	}
}

// reply answers with a JSON object.
func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // who does not get it any more has gone
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, code int, reason string, more map[string]any) {
	reply(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "because " + reason,
		"reason": reason, "code": code, "details": more,
	})
}

// object is an object of the API in JSON, as a server has it.
func object(kind, namespace, name, version string) map[string]any {
	return map[string]any{
		"kind": kind, "apiVersion": "v1",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "resourceVersion": version, "uid": "uid-" + name,
			"managedFields": []any{map[string]any{"manager": "kubectl"}},
		},
	}
}
