package plugins

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a registry with the requests that it has in flight, by the socket.
type node struct {
	registry Registry
	table    op.Table
	effects  op.Effects
	now      time.Time
	files    []world.PluginSocket
	inFlight map[string]world.Effect
	wake     time.Time
	logs     []string
	prepare  Prepare
}

func newNode() *node { return &node{now: t0, inFlight: map[string]world.Effect{}} }

// step handles something, plans, and keeps the requests.
func (n *node) step(handle func(*op.Effects)) {
	n.effects.Reset(&n.table, n.now)
	handle(&n.effects)
	n.wake = n.registry.Plan(n.prepare, &n.effects)
	for _, e := range n.effects.List() {
		switch body := e.Body.(type) {
		case *world.GetPluginInfo:
			n.inFlight[body.Socket.Path] = e
		case *world.NotifyPluginRegistration:
			n.inFlight[body.Socket.Path] = e
		case *world.Log:
			n.logs = append(n.logs, strings.TrimSpace(fmt.Sprintln(append([]any{body.Message},
				body.Fields...)...)))
		}
	}
}

// observe has the port report the sockets, each "path=file".
func (n *node) observe(sockets ...string) {
	n.files = nil
	for _, s := range sockets {
		path, file, _ := strings.Cut(s, "=")
		n.files = append(n.files, world.PluginSocket{Path: path, File: file})
	}
	n.step(func(e *op.Effects) {
		n.registry.HandleObserved(&world.PluginSocketsObserved{Sockets: n.files}, e)
	})
}

// wait plans again after a time.
func (n *node) wait(d time.Duration) {
	n.now = n.now.Add(d)
	n.step(func(*op.Effects) {})
}

// asked returns the request in flight to a socket: "info", "registered" or the refusal.
func (n *node) asked(path string) string {
	switch body := n.inFlight[path].Body.(type) {
	case *world.GetPluginInfo:
		return "info"
	case *world.NotifyPluginRegistration:
		if body.Registered != (body.Error == "") {
			panic(fmt.Sprintf("%+v", body))
		}
		if body.Registered {
			return "registered"
		}
		return body.Error
	}
	return ""
}

// complete completes the request in flight to a socket.
func (n *node) complete(path string, body any, err *world.Error) {
	e := n.inFlight[path]
	delete(n.inFlight, path)
	record, ok := n.table.Complete(e.Op)
	if !ok {
		return
	}
	n.step(func(effects *op.Effects) {
		n.registry.HandleCompletion(e.Op, record,
			world.Event{Time: n.now, Op: e.Op, Body: body, Err: err}, effects)
	})
}

func driver(name string, versions ...string) *world.PluginInfo {
	return &world.PluginInfo{Type: "CSIPlugin", Name: name, Endpoint: "/csi/" + name,
		Versions: versions}
}

// register has the plugin of a socket answer, and accept what it is notified of.
func (n *node) register(path string, info *world.PluginInfo) (notified string) {
	n.complete(path, info, nil)
	notified = n.asked(path)
	n.complete(path, &world.Done{}, nil)
	return notified
}

func (n *node) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, p := range n.registry.Plugins {
		got = append(got, fmt.Sprintf("%s/%s %s %s", p.Type, p.Name, p.Version, p.Endpoint))
	}
	if !slices.Equal(got, want) {
		t.Errorf("registered are %q, want %q", got, want)
	}
	data, err := json.Marshal(&n.registry)
	var restored Registry
	if err != nil || json.Unmarshal(data, &restored) != nil ||
		!reflect.DeepEqual(restored, n.registry) {
		t.Errorf("restored as %+v, want %+v: %v", restored, n.registry, err)
	}
}

func TestRegistration(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1")
	if a, b := n.asked("/r/a"), n.asked("/r/b"); a != "info" || b != "info" {
		t.Fatalf("asked %q and %q", a, b)
	}
	info := driver("a.test", "0.3.0", "1.0.0", "v1.5.0", "2.0.0", "nonsense")
	if got := n.register("/r/a", info); got != "registered" {
		t.Errorf("notified of %q", got)
	}
	n.expect(t, "CSIPlugin/a.test 1.5.0 /csi/a.test")
	if n.asked("/r/a") != "" || !n.wake.IsZero() {
		t.Errorf("asked again: %q, planned at %v", n.asked("/r/a"), n.wake)
	}
	info = driver("b.test", "1.0.0")
	info.Endpoint = ""
	n.register("/r/b", info)
	n.expect(t, "CSIPlugin/a.test 1.5.0 /csi/a.test", "CSIPlugin/b.test 1.0.0 /r/b")
	n.observe("/r/a=1", "/r/b=1")
	n.wait(time.Hour)
	if len(n.inFlight) > 0 {
		t.Errorf("asked without a change: %v", n.inFlight)
	}
	n.observe("/r/b=1")
	n.expect(t, "CSIPlugin/b.test 1.0.0 /r/b")
	observed, registered := n.registry.Registered()
	if want := []string{"/r/b"}; !slices.Equal(observed, want) || !slices.Equal(registered, want) {
		t.Errorf("observed are %q, registered %q", observed, registered)
	}
	n.observe()
	n.expect(t)
	if want := []string{
		"Registered a plugin type CSIPlugin name a.test endpoint /csi/a.test version 1.5.0",
		"Registered a plugin type CSIPlugin name b.test endpoint /r/b version 1.0.0",
		"Deregistered a plugin type CSIPlugin name a.test",
		"Deregistered a plugin type CSIPlugin name b.test",
	}; !slices.Equal(n.logs, want) {
		t.Errorf("logs %q, want %q", n.logs, want)
	}
}

// An error is logged once in a row, and cut.
func TestErrors(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1")
	for range 3 {
		n.complete("/r/a", nil, world.Errorf(world.KindInternal, "GetPluginInfo", "%s",
			strings.Repeat("x", 1<<20)))
		n.now = n.wake
		n.wait(0)
	}
	if s := n.registry.Sockets["/r/a"]; len(n.logs) != 1 || len(s.LastError) > 1<<16 {
		t.Errorf("%d lines, %d bytes are kept", len(n.logs), len(s.LastError))
	}
	n.complete("/r/a", &world.Done{}, nil)
	if s := n.registry.Sockets["/r/a"]; s.LastError != "answered with another message" {
		t.Errorf("another message: %+v", s)
	}
}

// Sockets beyond the bound are logged once.
func TestOmittedSockets(t *testing.T) {
	n := newNode()
	for omitted := range 3 {
		n.step(func(e *op.Effects) {
			n.registry.HandleObserved(&world.PluginSocketsObserved{Omitted: omitted}, e)
		})
	}
	if len(n.logs) != 1 {
		t.Errorf("logs %q", n.logs)
	}
}

// A socket that is another file is registered again, with what the plugin answers then. The answer
// of the plugin before is ignored.
func TestReplacedSocket(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1")
	n.register("/r/a", driver("a.test", "1.0.0"))
	n.now = n.now.Add(time.Minute)
	n.observe("/r/a=2")
	n.expect(t)
	n.now = n.now.Add(time.Millisecond)
	n.observe("/r/a=3")
	if n.complete("/r/a", driver("a.test", "1.0.0"), nil); n.asked("/r/a") != "" {
		t.Error("the answer of the plugin before counts")
	}
	if n.wait(backoffInitial - 2*time.Millisecond); n.asked("/r/a") != "" {
		t.Error("asked again at once")
	}
	n.wait(time.Millisecond)
	if got := n.register("/r/a", driver("a.test", "1.1.0")); got != "registered" {
		t.Errorf("notified of %q", got)
	}
	n.expect(t, "CSIPlugin/a.test 1.1.0 /csi/a.test")
	n.observe("/r/a=4")
	n.wait(backoffInitial)
	n.observe()
	if n.complete("/r/a", driver("a.test", "1.0.0"), nil); len(n.inFlight) > 0 {
		t.Error("the answer of a plugin that is gone counts")
	}
}

func TestBackoff(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1")
	for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second,
		4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second,
		122 * time.Second, 122 * time.Second} {
		switch i % 3 {
		case 0:
			n.complete("/r/a", nil, world.Errorf(world.KindUnavailable, "GetPluginInfo", "refused"))
		case 1: // the notification fails
			n.complete("/r/a", driver("a.test", "1.0.0"), nil)
			n.complete("/r/a", nil, world.Errorf(world.KindTimeout, "NotifyPluginRegistration", "late"))
		case 2: // the plugin is refused
			n.register("/r/a", &world.PluginInfo{Type: "Toaster"})
		}
		n.expect(t)
		if got := n.wake.Sub(n.now); got != want {
			t.Errorf("failure %d: asked again after %v, want %v", i+1, got, want)
		}
		n.wait(want)
		if n.asked("/r/a") != "info" {
			t.Fatalf("failure %d: asked %q", i+1, n.asked("/r/a"))
		}
	}
	n.register("/r/a", driver("a.test", "1.0.0"))
	n.expect(t, "CSIPlugin/a.test 1.0.0 /csi/a.test")
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for _, test := range []struct {
		info *world.PluginInfo
		want string
	}{
		{&world.PluginInfo{}, "no handler registered for plugin type:  at socket /r/a"},
		{&world.PluginInfo{Type: "Toaster"}, "no handler registered for plugin type: Toaster at"},
		{&world.PluginInfo{Type: long, Name: long}, "no handler registered for plugin type: xxx"},
		{&world.PluginInfo{Type: "DRAPlugin"}, "type DRAPlugin are not supported by seedlet yet"},
		{&world.PluginInfo{Type: "DevicePlugin"}, "type DevicePlugin are not supported by seedlet"},
		{driver("a.test"), "supported versions has 0 entries"},
		{driver("a.test", slices.Repeat([]string{"1.0"}, 65)...), "supported versions has 65 entries"},
		{driver("a.test", "2.0.0"), "none of the versions is supported"},
		{driver("a.test", "0.9.0"), "none of the versions is supported"},
		{driver("a.test", "one", long), "none of the versions is supported"},
		{driver("a.test", "1."+strings.Repeat("1.", 100)+"1"), "the version has more than 64 charact"},
		{driver("", "1.0.0"), `the name "" is invalid`},
		{driver(strings.Repeat("x", 64), "1.0.0"), "the name has 64 characters, and may have 63"},
		{driver("../../etc", "1.0.0"), "is invalid"},
		{driver(long, "1.0.0"), "the name has 70000 characters, and may have 63"},
		{&world.PluginInfo{Type: "CSIPlugin", Name: "a", Endpoint: long, Versions: []string{"1.0"}},
			"the endpoint is no path of at most 4096 bytes"},
	} {
		n := newNode()
		n.observe("/r/a=1")
		got := n.register("/r/a", test.info)
		if !strings.HasPrefix(got, "RegisterPlugin error -- ") || len(got) > 1024 ||
			!strings.Contains(got, test.want) {
			t.Errorf("refused with %.100q of %d bytes, want %q", got, len(got), test.want)
		}
		n.expect(t)
	}
}

// Of two drivers with one name the first is registered, unless the second has a higher version.
func TestTwoOfOneName(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1")
	n.complete("/r/a", driver("x.test", "1.1.0"), nil) // and is being notified
	if got := n.register("/r/b", driver("x.test", "1.1.0")); !strings.Contains(got,
		"another driver of this name is registered with version 1.1.0, at socket /r/a") {
		t.Errorf("the second is notified of %q", got)
	}
	n.complete("/r/a", &world.Done{}, nil)
	n.expect(t, "CSIPlugin/x.test 1.1.0 /csi/x.test")

	n.wait(backoffInitial)
	info := driver("x.test", "1.2.0")
	info.Endpoint = "/csi/second"
	if got := n.register("/r/b", info); got != "registered" {
		t.Errorf("the second, of a higher version, is notified of %q", got)
	}
	n.expect(t, "CSIPlugin/x.test 1.2.0 /csi/second")
	n.observe("/r/b=1") // the end of the first takes nothing from the second
	n.expect(t, "CSIPlugin/x.test 1.2.0 /csi/second")
	if len(n.inFlight) > 0 {
		t.Errorf("asked without a reason: %v", n.inFlight)
	}
}

// The first takes over again when the second, which had replaced it, goes.
func TestEndOfHigherVersion(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1")
	n.register("/r/a", driver("x.test", "1.1.0"))
	n.register("/r/b", driver("x.test", "1.2.0"))
	n.observe("/r/a=1")
	n.expect(t, "CSIPlugin/x.test 1.1.0 /csi/x.test")
}

// refuse has a registered plugin be refused.
func (n *node) refuse(path string) {
	n.now = n.now.Add(time.Millisecond)
	n.inFlight = map[string]world.Effect{}
	s := n.registry.Sockets[path]
	s.Registered, s.Answer = false, &Answer{Refusal: "no"}
	n.wait(0)
}

// A driver whose name is held by another one is asked as soon as that one is refused.
func TestRefusedHolder(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1")
	n.register("/r/a", driver("x.test", "1.0.0"))
	n.register("/r/b", driver("x.test", "1.0.0"))
	if n.refuse("/r/a"); n.asked("/r/b") != "info" {
		t.Errorf("asked %q", n.asked("/r/b"))
	}
}

// It is not asked if another one holds the name by then.
func TestRefusedHolderOfReplacedName(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1", "/r/c=1")
	n.register("/r/a", driver("x.test", "1.0.0"))
	n.register("/r/b", driver("x.test", "1.0.0"))
	n.register("/r/c", driver("x.test", "1.2.0"))
	if n.refuse("/r/a"); n.asked("/r/b") != "" {
		t.Errorf("asked %q although /r/c has the name", n.asked("/r/b"))
	}
}

// One that is refused while it is prepared, as another one of its name has a higher version, is
// asked as soon as that one has gone, however often it was refused.
func TestSupersededWhilePrepared(t *testing.T) {
	n := newNode()
	n.prepare = func(c Candidate) (bool, string) {
		if c.Version == "1.0.0" && n.registry.Sockets["/r/b"] != nil {
			return false, "another one has a higher version"
		}
		return true, ""
	}
	n.observe("/r/a=1", "/r/b=1")
	n.registry.Sockets["/r/a"].Failures = 8
	n.complete("/r/b", driver("x.test", "1.2.0"), nil)
	n.registry.Sockets["/r/a"].Answer = &Answer{Plugin: Plugin{Type: world.PluginTypeCSI,
		Name: "x.test", Version: "1.0.0"}}
	n.registry.Sockets["/r/a"].Op = 0
	if n.wait(0); !strings.Contains(n.asked("/r/a"), "a higher version") {
		t.Fatalf("notified of %q", n.asked("/r/a"))
	}
	n.complete("/r/a", &world.Done{}, nil)
	delete(n.inFlight, "/r/a")
	if n.observe("/r/a=1"); n.asked("/r/a") != "info" {
		t.Errorf("asked %q although its name is free", n.asked("/r/a"))
	}
}

// The longest name that the API server takes.
func TestLongName(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1")
	name := strings.Repeat("x", 63)
	n.register("/r/a", driver(name, "1.0.0"))
	n.expect(t, "CSIPlugin/"+name+" 1.0.0 /csi/"+name)
}

// A driver that was refused for its name is asked as soon as the name is free.
func TestFreedName(t *testing.T) {
	n := newNode()
	n.observe("/r/a=1", "/r/b=1")
	n.register("/r/a", driver("x.test", "1.0.0"))
	for range 8 {
		n.register("/r/b", driver("x.test", "1.0.0"))
		n.now = n.wake
		n.wait(0)
	}
	n.register("/r/b", driver("x.test", "1.0.0"))
	n.observe("/r/b=1")
	if got := n.register("/r/b", driver("x.test", "1.0.0")); got != "registered" {
		t.Errorf("notified of %q", got)
	}
	n.expect(t, "CSIPlugin/x.test 1.0.0 /csi/x.test")
}
