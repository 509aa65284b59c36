package parity

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/world"
)

// Reach runs the suite of the network port.
func Reach(t *testing.T, w Network) {
	for _, c := range []struct {
		name string
		run  func(*client)
	}{
		{"the status of a page comes back", pageStatus},
		{"certificates are not verified", pageOverTLS},
		{"redirects are followed within the host", redirects},
		{"a page is read as far as it is told", endlessPage},
		{"a connection is made or refused", connects},
		{"health comes back", healthStatus},
		{"health that is not told has a kind", healthErrors},
		{"nobody there is Unavailable, at once", nobodyThere},
		{"who says nothing is a Timeout at the deadline", hangs},
		{"who hangs up is Unavailable, at once", hangsUp},
		{"what cannot be asked is Invalid", cannotBeAsked},
		{"questions do not wait for each other", askedSideBySide},
		{"the page of a URL comes whole", fetches},
		{"a page that does not come whole has a kind", fetchErrors},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(&client{t, w}) })
	}
}

// client asks, and fails the test on what should not be.
type client struct {
	*testing.T
	w Network
}

// soon is enough for what is answered at once.
const soon = 5 * time.Second

func (c *client) get(s Server) *world.HTTPGet {
	host, port := c.w.At(s)
	return &world.HTTPGet{Scheme: "http", Host: host, Port: port, Path: "/"}
}

func (c *client) connect(s Server) *world.TCPConnect {
	host, port := c.w.At(s)
	return &world.TCPConnect{Host: host, Port: port}
}

func (c *client) health(s Server) *world.GRPCCheck {
	host, port := c.w.At(s)
	return &world.GRPCCheck{Host: host, Port: port, Service: "store"}
}

// page asks for a page that has to come.
func (c *client) page(ask *world.HTTPGet) *world.HTTPGot {
	c.Helper()
	body, err := c.w.CallWithin(ask, soon)
	got, is := body.(*world.HTTPGot)
	if !is {
		c.Fatalf("answered by %v, %v, want a page", body, err)
	}
	return got
}

// fails asks what has to fail with an error of the given kind, and returns how long it took.
func (c *client) fails(ask any, timeout time.Duration, kind world.ErrorKind) time.Duration {
	c.Helper()
	began := c.w.Now()
	body, err := c.w.CallWithin(ask, timeout)
	if !err.Has(kind) {
		c.Errorf("%s: answered by %v, %v, want an error of kind %s", world.Call(ask), body, err,
			kind)
	}
	return c.w.Now().Sub(began)
}

func pageStatus(c *client) {
	if got := c.page(c.get(Well)); got.Status != 200 || len(got.Body) == 0 || got.Elsewhere {
		c.Errorf("of one that is well: %+v", got)
	}
	if got := c.page(c.get(Unwell)); got.Status != 500 || got.Elsewhere {
		c.Errorf("of one that is not well: %+v", got)
	}
}

func pageOverTLS(c *client) {
	ask := c.get(Secret)
	ask.Scheme = "https"
	if got := c.page(ask); got.Status != 200 {
		c.Errorf("%+v", got)
	}
}

func redirects(c *client) {
	if got := c.page(c.get(Moved)); got.Status != 200 || got.Elsewhere {
		c.Errorf("within the host: %+v", got)
	}
	got := c.page(c.get(Elsewhere))
	if got.Status < 300 || got.Status > 399 || !got.Elsewhere {
		c.Errorf("to another host: %+v", got)
	}
}

func endlessPage(c *client) {
	if got := c.page(c.get(Endless)); got.Status != 200 || len(got.Body) != world.HTTPBodyMax {
		c.Errorf("status %d, %d bytes", got.Status, len(got.Body))
	}
}

func connects(c *client) {
	body, err := c.w.CallWithin(c.connect(Well), soon)
	if _, is := body.(*world.Done); !is {
		c.Errorf("answered by %v, %v", body, err)
	}
	c.fails(c.connect(NoServer), soon, world.KindUnavailable)
}

func healthStatus(c *client) {
	for server, want := range map[Server]string{ //ordered: each alone
		Well: "SERVING", Unwell: "NOT_SERVING",
	} {
		body, err := c.w.CallWithin(c.health(server), soon)
		if got, is := body.(*world.GRPCChecked); !is || got.Status != want {
			c.Errorf("%s: answered by %v, %v, want %s", server, body, err, want)
		}
	}
}

func healthErrors(c *client) {
	c.fails(c.health(Unknown), soon, world.KindNotFound)
	c.fails(c.health(Unoffered), soon, world.KindInvalid)
}

func nobodyThere(c *client) {
	for _, ask := range []any{c.get(NoServer), c.connect(NoServer), c.health(NoServer)} {
		if took := c.fails(ask, time.Minute, world.KindUnavailable); took > soon {
			c.Errorf("%s took %v", world.Call(ask), took)
		}
	}
}

func hangs(c *client) {
	const timeout = 500 * time.Millisecond
	for _, ask := range []any{c.get(Silent), c.health(Silent)} {
		took := c.fails(ask, timeout, world.KindTimeout)
		if took < timeout-50*time.Millisecond || took > timeout+soon {
			c.Errorf("%s took %v", world.Call(ask), took)
		}
	}
}

func hangsUp(c *client) {
	if took := c.fails(c.get(HangsUp), time.Minute, world.KindUnavailable); took > soon {
		c.Errorf("it took %v", took)
	}
}

func cannotBeAsked(c *client) {
	gopher, nowhere := c.get(Well), c.get(Well)
	gopher.Scheme, nowhere.Host = "gopher", ""
	portless, most := c.connect(Well), c.health(Well)
	portless.Port, most.Port = 0, 65536
	for _, ask := range []any{gopher, nowhere, portless, most} {
		c.fails(ask, soon, world.KindInvalid)
	}
}

func askedSideBySide(c *client) {
	c.w.Begin(c.get(Silent))
	began := c.w.Now()
	c.page(c.get(Well))
	if took := c.w.Now().Sub(began); took > soon {
		c.Errorf("it waited %v for the other", took)
	}
}

// fetch asks for the page of a URL, which is a thousand bytes at most.
func (c *client) fetch(scheme string, s Server) *world.FetchManifest {
	host, port := c.w.At(s)
	return &world.FetchManifest{URL: fmt.Sprintf("%s://%s:%d/", scheme, host, port),
		Headers: []world.HTTPHeader{{Name: "X-Token", Value: "secret"}}, BytesMax: 1000}
}

func fetches(c *client) {
	for server, want := range map[Server]string{Well: "ok", Moved: "here"} { //ordered: each alone
		body, err := c.w.CallWithin(c.fetch("http", server), soon)
		if got, is := body.(*world.ManifestFetched); !is || string(got.Data) != want {
			c.Errorf("%s: answered by %v, %v, want %q", server, body, err, want)
		}
	}
}

func fetchErrors(c *client) {
	for _, server := range []Server{Unwell, NoServer, HangsUp, CutShort} {
		c.fails(c.fetch("http", server), soon, world.KindUnavailable)
	}
	c.fails(c.fetch("https", Secret), soon, world.KindUnavailable)
	c.fails(c.fetch("http", Endless), soon, world.KindExhausted)
	c.fails(c.fetch("http", Silent), 500*time.Millisecond, world.KindTimeout)
	c.fails(c.fetch("gopher", Well), soon, world.KindInvalid)
	c.fails(&world.FetchManifest{URL: "http://%zz/", BytesMax: 1}, soon, world.KindInvalid)
}
