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
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitMax bounds how long a test waits for an event.
const waitMax = porttest.Patience

// fake is a fake API server, and a port that is connected to it.
type fake struct {
	t      *testing.T
	url    string
	ca     []byte
	port   *Port
	clock  clock.Clock
	events chan world.Event

	mu       sync.Mutex
	handle   http.HandlerFunc
	requests []*http.Request
	lastOp   world.OpID
}

// newFake starts both. change may modify the port's options.
func newFake(t *testing.T, handle http.HandlerFunc, change func(*Options)) *fake {
	t.Helper()
	f := &fake{t: t, clock: clock.New(), events: make(chan world.Event, 64), handle: handle}
	server := httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	// Cleanups run in reverse order: the port closes first, or the server would wait for its
	// watches.
	t.Cleanup(server.Close)
	f.url = server.URL
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f.connect(f.url, f.ca, change)
	return f
}

// connect creates the port, for the server at the URL.
func (f *fake) connect(url string, ca []byte, change func(*Options)) {
	f.t.Helper()
	who, err := identity.Load(identity.Options{
		Kubeconfig: kubeconfig(f.t, url, ca), NodeName: "node-1", UserAgent: "seedlet/test",
		Warn:            func(problem string) { f.t.Error(problem) },
		SendPingTimeout: 100 * time.Millisecond, PingTimeout: 100 * time.Millisecond,
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
			case <-f.events: // a watch may be delivering an event
			case <-closed:
				return
			}
		}
	})
}

// kubeconfig writes a kubeconfig for a server.
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
	f.requests = append(f.requests, r)
	handle := f.handle
	f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		f.t.Errorf("%s %s without a token", r.Method, r.URL)
	}
	handle(w, r)
}

// setHandler replaces the handler of the server.
func (f *fake) setHandler(handle http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = handle
}

// remoteAddrs returns the client addresses of the requests to a path.
func (f *fake) remoteAddrs(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addrs []string
	for _, r := range f.requests {
		if r.URL.Path == path {
			addrs = append(addrs, r.RemoteAddr)
		}
	}
	return addrs
}

// start starts an operation.
func (f *fake) start(body any, timeout time.Duration) world.OpID {
	f.lastOp++
	f.port.Do(world.Effect{Op: f.lastOp, Body: body, Deadline: f.clock.Now().Add(timeout)})
	return f.lastOp
}

// call executes an operation and returns its result.
func (f *fake) call(body any, timeout time.Duration) (any, *world.Error) {
	f.t.Helper()
	op := f.start(body, timeout)
	ev := f.nextEvent()
	if ev.Op != op {
		f.t.Fatalf("event %+v, want the completion of operation %d", ev, op)
	}
	return ev.Body, ev.Err
}

// nextEvent returns the next event of the port.
func (f *fake) nextEvent() world.Event {
	f.t.Helper()
	select {
	case ev := <-f.events:
		return ev
	case <-time.After(waitMax):
		f.t.Fatal("no event")
		panic("unreachable")
	}
}

// respond writes a JSON object.
func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

// respondError writes a Status.
func respondError(w http.ResponseWriter, code int, reason string, details map[string]any) {
	respond(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "because " + reason,
		"reason": reason, "code": code, "details": details,
	})
}

// object returns an object of the API in JSON, as a server stores it.
func object(kind, namespace, name, version string) map[string]any {
	return map[string]any{
		"kind": kind, "apiVersion": "v1",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "resourceVersion": version, "uid": "uid-" + name,
			"managedFields": []any{map[string]any{"manager": "kubectl"}},
		},
	}
}
