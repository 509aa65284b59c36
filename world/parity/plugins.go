package parity

import (
	"slices"
	"testing"
	"time"

	"seedlet.dev/world"
)

// PluginsPort runs the suite of the plugins port.
func PluginsPort(t *testing.T, newWorld func(t *testing.T) Plugins) {
	for _, c := range []struct {
		name string
		run  func(*pluginClient)
	}{
		{"sockets are observed, sorted by path", socketsAreObserved},
		{"a replaced socket is another file", replacedSocket},
		{"an answer is returned as it is", answerIsReturned},
		{"a plugin is notified", pluginIsNotified},
		{"what is wrong with a plugin is the kind of the error", wrongPlugins},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(&pluginClient{t, newWorld(t)}) })
	}
}

// pluginClient sends the requests of one case.
type pluginClient struct {
	*testing.T
	w Plugins
}

// await waits until the sockets with these names are observed, and returns them.
func (c *pluginClient) await(names ...string) []world.PluginSocket {
	c.Helper()
	var want []string
	for _, name := range names {
		want = append(want, c.w.Path(name))
	}
	var got []string
	for end := c.w.Now().Add(Patience); c.w.Now().Before(end); c.w.Sleep(10 * time.Millisecond) {
		got = nil
		for _, s := range c.w.Observed() {
			got = append(got, s.Path)
		}
		if slices.Equal(got, want) {
			return c.w.Observed()
		}
	}
	c.Fatalf("the sockets are %q, want %q", got, want)
	return nil
}

// mustFail asks a plugin, which must fail with an error of the given kind.
func (c *pluginClient) mustFail(socket world.PluginSocket, timeout time.Duration,
	kind world.ErrorKind) {
	c.Helper()
	for _, request := range []any{&world.GetPluginInfo{Socket: socket},
		&world.NotifyPluginRegistration{Socket: socket, Registered: true}} {
		if _, isNotify := request.(*world.NotifyPluginRegistration); isNotify &&
			kind != world.KindNotFound && kind != world.KindUnavailable {
			return // the plugin answers wrongly only what it is
		}
		body, err := c.w.CallWithin(request, timeout)
		if !err.Has(kind) || err.Op != world.CallName(request) || err.Message == "" {
			c.Errorf("%s of %s: completed with %v, %v, want an error of kind %s",
				world.CallName(request), socket.Path, body, err, kind)
		}
	}
}

func socketsAreObserved(c *pluginClient) {
	c.w.Serve("z.sock", &world.PluginInfo{}, "")
	c.w.Serve("below/a.sock", &world.PluginInfo{}, "")
	c.w.Serve("a.sock", &world.PluginInfo{}, "")
	c.await("a.sock", "below/a.sock", "z.sock")
	c.w.Remove("below/a.sock")
	c.await("a.sock", "z.sock")
	c.w.Remove("a.sock")
	c.w.Remove("z.sock")
	c.await()
}

func replacedSocket(c *pluginClient) {
	c.w.Serve("a.sock", &world.PluginInfo{Name: "first"}, "")
	first := c.await("a.sock")[0]
	c.w.Sleep(20 * time.Millisecond) // a tick of the clock of files
	c.w.Serve("a.sock", &world.PluginInfo{Name: "second"}, "")
	second := first
	for end := c.w.Now().Add(Patience); c.w.Now().Before(end) && second == first; {
		c.w.Sleep(10 * time.Millisecond)
		if now := c.w.Observed(); len(now) == 1 {
			second = now[0]
		}
	}
	if second == first || second.Path != first.Path {
		c.Fatalf("the socket was %+v, and is %+v", first, second)
	}
	c.mustFail(first, Patience, world.KindNotFound)
	body, err := c.w.CallWithin(&world.GetPluginInfo{Socket: second}, Patience)
	if info, ok := body.(*world.PluginInfo); !ok || info.Name != "second" {
		c.Errorf("answered %+v, %v", body, err)
	}
	c.w.Remove("a.sock")
	c.mustFail(second, Patience, world.KindNotFound)
	if n := c.w.Notified("a.sock"); len(n) > 0 {
		c.Errorf("notified of %+v", n)
	}
}

func answerIsReturned(c *pluginClient) {
	want := &world.PluginInfo{Type: "CSIPlugin", Name: "a b\tc/../d", Endpoint: "/e",
		Versions: []string{"", "1.0.0", "nonsense"}}
	c.w.Serve("a.sock", want, "")
	body, err := c.w.CallWithin(&world.GetPluginInfo{Socket: c.await("a.sock")[0]}, Patience)
	got, ok := body.(*world.PluginInfo)
	if !ok || got.Type != want.Type || got.Name != want.Name || got.Endpoint != want.Endpoint ||
		!slices.Equal(got.Versions, want.Versions) {
		c.Errorf("answered %+v, %v, want %+v", body, err, want)
	}
}

func pluginIsNotified(c *pluginClient) {
	c.w.Serve("a.sock", &world.PluginInfo{}, "")
	socket := c.await("a.sock")[0]
	var want []world.NotifyPluginRegistration
	for _, m := range []world.NotifyPluginRegistration{
		{Socket: socket, Registered: true}, {Socket: socket, Error: "no"},
	} {
		body, err := c.w.CallWithin(&m, Patience)
		if _, isDone := body.(*world.Done); !isDone {
			c.Errorf("completed with %v, %v", body, err)
		}
		m.Socket = world.PluginSocket{}
		want = append(want, m)
	}
	if got := c.w.Notified("a.sock"); !slices.Equal(got, want) {
		c.Errorf("notified of %+v, want %+v", got, want)
	}
}

func wrongPlugins(c *pluginClient) {
	for _, test := range []struct {
		fault   PluginFault
		timeout time.Duration
		want    world.ErrorKind
	}{
		{PluginFails, Patience, world.KindInternal},
		{PluginTooLong, Patience, world.KindExhausted},
		{PluginDown, Patience, world.KindUnavailable},
		{PluginHangs, 200 * time.Millisecond, world.KindTimeout},
	} {
		name := string(test.fault[:4]) + ".sock"
		c.w.Serve(name, &world.PluginInfo{}, test.fault)
		c.mustFail(c.await(name)[0], test.timeout, test.want)
		c.w.Remove(name)
		c.await()
	}
}
