package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/pluginconn"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a port on a directory of sockets.
type harness struct {
	t    *testing.T
	dir  string
	port *Port
	ops  world.OpID

	access      sync.Mutex
	completions map[world.OpID]world.Event
	sockets     []world.PluginSocket // as reported last
	reports     int
	warnings    []string
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir, completions: map[world.OpID]world.Event{}}
	h.port = New(Options{Clock: clock.New(), Dir: dir, Deliver: h.deliver,
		Warn: func(problem string) {
			h.access.Lock()
			defer h.access.Unlock()
			h.warnings = append(h.warnings, problem)
		}})
	t.Cleanup(h.port.Close)
	return h
}

func (h *harness) deliver(ev world.Event) {
	h.access.Lock()
	defer h.access.Unlock()
	if observed, ok := ev.Body.(*world.PluginSocketsObserved); ok {
		h.sockets = observed.Sockets
		h.reports++
		return
	}
	h.completions[ev.Op] = ev
}

// observed returns the sockets that were reported last.
func (h *harness) observed() []world.PluginSocket {
	h.access.Lock()
	defer h.access.Unlock()
	return h.sockets
}

// expect waits until the sockets with these names are reported.
func (h *harness) expect(names ...string) []world.PluginSocket {
	h.t.Helper()
	porttest.Eventually(h.t, fmt.Sprintf("the sockets are %q", names), func() bool {
		var got []string
		for _, s := range h.observed() {
			name, _ := filepath.Rel(h.dir, s.Path)
			got = append(got, name)
		}
		return slices.Equal(got, names)
	})
	return h.observed()
}

// call carries out a request.
func (h *harness) call(body any, timeout time.Duration) (any, *world.Error) {
	h.t.Helper()
	h.ops++
	op := h.ops
	h.port.Do(world.Effect{Op: op, Body: body, Deadline: clock.New().Now().Add(timeout)})
	var ev world.Event
	porttest.Eventually(h.t, world.CallName(body)+" is completed", func() bool {
		h.access.Lock()
		defer h.access.Unlock()
		var completed bool
		ev, completed = h.completions[op]
		return completed
	})
	return ev.Body, ev.Err
}

// plugin is a plugin that registers.
type plugin struct {
	registration.UnimplementedRegistrationServer
	info     *registration.PluginInfo
	err      error
	hangs    bool
	access   sync.Mutex
	statuses []*registration.RegistrationStatus
}

// GetInfo implements the API.
func (p *plugin) GetInfo(ctx context.Context, _ *registration.InfoRequest) (
	*registration.PluginInfo, error) {
	if p.hangs {
		<-ctx.Done()
		return nil, ctx.Err() // which may arrive before the client's own deadline
	}
	return p.info, p.err
}

// NotifyRegistrationStatus implements the API.
func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	p.access.Lock()
	defer p.access.Unlock()
	p.statuses = append(p.statuses, s)
	return &registration.RegistrationStatusResponse{}, p.err
}

// serve has a plugin serve a socket in the directory. The returned function ends it, which removes
// the socket.
func (h *harness) serve(name string, p registration.RegistrationServer) (end func()) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	listener, err := net.Listen("unix", path)
	if err != nil {
		h.t.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // until the end
	end = sync.OnceFunc(func() {
		server.Stop()
		served.Wait()
	})
	h.t.Cleanup(end)
	return end
}

func TestRegistration(t *testing.T) {
	h := newHarness(t)
	p := &plugin{info: &registration.PluginInfo{Type: "CSIPlugin", Name: "a.test",
		Endpoint: "/csi/a.sock", SupportedVersions: []string{"1.0.0", "1.1.0"}}}
	h.serve("a-reg.sock", p)
	socket := h.expect("a-reg.sock")[0]
	body, err := h.call(&world.GetPluginInfo{Socket: socket}, porttest.Patience)
	info, ok := body.(*world.PluginInfo)
	if !ok || info.Type != "CSIPlugin" || info.Name != "a.test" || info.Endpoint != "/csi/a.sock" ||
		!slices.Equal(info.Versions, []string{"1.0.0", "1.1.0"}) {
		t.Errorf("answered %+v, %v", body, err)
	}
	for _, m := range []*world.NotifyPluginRegistration{
		{Socket: socket, Registered: true}, {Socket: socket, Error: "no"},
	} {
		if _, err := h.call(m, porttest.Patience); err != nil {
			t.Error(err)
		}
	}
	p.access.Lock()
	defer p.access.Unlock()
	if s := p.statuses; len(s) != 2 || !s[0].PluginRegistered || s[0].Error != "" ||
		s[1].PluginRegistered || s[1].Error != "no" {
		t.Errorf("notified of %v", s)
	}
}

func TestErrors(t *testing.T) {
	h := newHarness(t)
	p := &plugin{info: &registration.PluginInfo{}}
	end := h.serve("a.sock", p)
	socket := h.expect("a.sock")[0]
	expect := func(what string, timeout time.Duration, want world.ErrorKind) {
		t.Helper()
		body, err := h.call(&world.GetPluginInfo{Socket: socket}, timeout)
		if !err.Has(want) || err.Op != "GetPluginInfo" || err.Message == "" {
			t.Errorf("%s: %+v, %v, want %s", what, body, err, want)
		}
	}
	p.err = errors.New("broken")
	expect("an error", porttest.Patience, world.KindInternal)
	p.err = status.Error(codes.Internal, strings.Repeat("x", 2*pluginconn.HeadersMax))
	expect("a long error", porttest.Patience, world.KindInternal)
	p.err = nil
	p.info = &registration.PluginInfo{Name: strings.Repeat("x", world.PluginInfoBytesMax)}
	expect("a long answer", porttest.Patience, world.KindExhausted)
	p.hangs = true
	expect("no answer", 100*time.Millisecond, world.KindTimeout)
	end()
	expect("no socket", porttest.Patience, world.KindNotFound)
	listener, err := net.Listen("unix", socket.Path)
	if err != nil {
		t.Fatal(err)
	}
	expect("another file", porttest.Patience, world.KindNotFound)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	socket.File, _ = fileOf(socket.Path)
	expect("a plugin that has crashed", porttest.Patience, world.KindUnavailable)
}

// A server that accepts and says nothing, or something else than HTTP/2.
func TestNoGRPC(t *testing.T) {
	h := newHarness(t)
	for name, text := range map[string]string{
		"silent.sock": "", "http1.sock": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		path := filepath.Join(h.dir, name)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		work.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(text)) // the client may have gone
				defer conn.Close()
			}
		})
		file, _ := fileOf(path)
		_, failed := h.call(&world.GetPluginInfo{Socket: world.PluginSocket{Path: path, File: file}},
			300*time.Millisecond)
		if failed == nil {
			t.Errorf("%s has answered", name)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		work.Wait()
	}
}

func TestWatch(t *testing.T) {
	h := newHarness(t)
	endA := h.serve("a.sock", &plugin{})
	first := h.expect("a.sock")
	if err := os.WriteFile(filepath.Join(h.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dir/below", ".hidden", "other"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	h.serve(".hidden.sock", &plugin{})
	h.serve("no\xfftext.sock", &plugin{})
	h.serve(".hidden/a.sock", &plugin{})
	endB := h.serve("dir/below/b.sock", &plugin{})
	h.expect("a.sock", "dir/below/b.sock")
	for link, target := range map[string]string{"link.sock": "a.sock", "linked": "dir"} {
		if err := os.Symlink(target, filepath.Join(h.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	h.expect("a.sock", "dir/below/b.sock", "link.sock")
	if err := os.Chmod(filepath.Join(h.dir, "a.sock"), 0o600); err != nil {
		t.Fatal(err)
	}
	endB()
	second := h.expect("a.sock", "link.sock")
	if first[0] != second[0] || second[0].File != second[1].File {
		t.Errorf("a changed mode makes another file: %+v, then %+v", first, second)
	}
	endA()
	time.Sleep(20 * time.Millisecond) // a tick of the clock of files
	h.serve("a.sock", &plugin{})
	porttest.Eventually(t, "the socket is another file", func() bool {
		now := h.observed()
		return len(now) == 2 && now[0].Path == first[0].Path && now[0].File != first[0].File
	})
	if err := os.RemoveAll(h.dir); err != nil {
		t.Fatal(err)
	}
	h.expect()
	h.access.Lock()
	defer h.access.Unlock()
	if len(h.warnings) > 0 {
		t.Errorf("warnings: %q", h.warnings)
	}
}

// The number of sockets and the depth of directories are bounded.
func TestBounds(t *testing.T) {
	h := newHarness(t)
	deep := h.dir
	for range world.PluginDepthMax + 1 {
		deep = filepath.Join(deep, "d")
		if err := os.Mkdir(deep, 0o750); err != nil {
			t.Fatal(err)
		}
		makeSocket(t, filepath.Join(deep, "z"))
	}
	watched := 0
	s := scan{watch: func(string) { watched++ }}
	if err := s.look(h.dir, 0); err != nil || len(s.sockets) != world.PluginDepthMax || s.cut {
		t.Errorf("%d sockets at a depth of up to %d: %v", len(s.sockets), world.PluginDepthMax, err)
	}
	for i := range dirsMax + 3 {
		if err := os.Mkdir(filepath.Join(h.dir, fmt.Sprint("e", i)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	watched = 0
	s = scan{watch: func(string) { watched++ }}
	if err := s.look(h.dir, 0); err != nil || watched != dirsMax || !s.cut {
		t.Errorf("%d directories are watched, want %d: %v", watched, dirsMax, err)
	}
	for i := range world.PluginSocketsMax {
		makeSocket(t, filepath.Join(h.dir, fmt.Sprintf("%03d", i)))
	}
	porttest.Eventually(t, "as many sockets as are observed", func() bool {
		return len(h.observed()) == world.PluginSocketsMax
	})
	for i, s := range h.observed() {
		if want := filepath.Join(h.dir, fmt.Sprintf("%03d", i)); s.Path != want {
			t.Errorf("socket %d is %s, want %s", i, s.Path, want)
		}
	}
}

// A directory that cannot be read keeps its sockets. It is none of those that are gone.
func TestUnreadableDirectory(t *testing.T) {
	before := []world.PluginSocket{{Path: "/r/a/x"}, {Path: "/r/ab/x"}, {Path: "/r/a/b/x"}}
	s := scan{before: before}
	s.keep("/r/a")
	if want := []world.PluginSocket{before[0], before[2]}; !slices.Equal(s.sockets, want) {
		t.Errorf("kept %v, want %v", s.sockets, want)
	}
}

// makeSocket makes a socket that no process listens on.
func makeSocket(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Fatalf("%s: %v, %v", path, info, err)
	}
}
