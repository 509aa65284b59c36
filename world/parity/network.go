package parity

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/world"
)

// NetworkPort runs the suite of the network port.
func NetworkPort(t *testing.T, w Network) {
	for _, c := range []struct {
		name string
		run  func(*client)
	}{
		{"an HTTP status is returned", httpStatus},
		{"certificates are not verified", unverifiedTLS},
		{"redirects are followed within the host only", httpRedirects},
		{"an HTTP body is truncated at the limit", bodyIsBounded},
		{"a TCP connection succeeds or is refused", tcpConnects},
		{"a gRPC health status is returned", grpcHealthStatus},
		{"a missing gRPC health service or status has an error kind", grpcHealthErrors},
		{"a refused connection is Unavailable at once", connectionRefused},
		{"a server that does not respond is a Timeout at the deadline", responseTimeout},
		{"a closed connection is Unavailable at once", connectionClosed},
		{"an impossible request is Invalid", invalidRequests},
		{"requests are concurrent", concurrentRequests},
		{"a manifest URL returns its complete content", fetchesManifest},
		{"a manifest that cannot be fetched has an error kind", manifestErrors},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(&client{t, w}) })
	}
}

// client sends the requests of one case and fails the test on unexpected results.
type client struct {
	*testing.T
	w Network
}

// promptly is an upper bound for requests that do not wait for a timeout, which is late.
const (
	promptly = Patience
	late     = beyondPatience * time.Second
)

func (c *client) httpGet(s Server) *world.HTTPGet {
	host, port := c.w.Address(s)
	return &world.HTTPGet{Scheme: "http", Host: host, Port: port, Path: "/"}
}

func (c *client) tcpConnect(s Server) *world.TCPConnect {
	host, port := c.w.Address(s)
	return &world.TCPConnect{Host: host, Port: port}
}

func (c *client) grpcCheck(s Server) *world.GRPCCheck {
	host, port := c.w.Address(s)
	return &world.GRPCCheck{Host: host, Port: port, Service: "store"}
}

// getPage sends an HTTP request that must get a response.
func (c *client) getPage(request *world.HTTPGet) *world.HTTPGot {
	c.Helper()
	body, err := c.w.CallWithin(request, promptly)
	got, ok := body.(*world.HTTPGot)
	if !ok {
		c.Fatalf("completed with %v, %v, want a page", body, err)
	}
	return got
}

// mustFail sends a request that must fail with an error of the given kind, and returns its
// duration.
func (c *client) mustFail(request any, timeout time.Duration, kind world.ErrorKind) time.Duration {
	c.Helper()
	started := c.w.Now()
	body, err := c.w.CallWithin(request, timeout)
	if !err.Has(kind) {
		c.Errorf("%s: completed with %v, %v, want an error of kind %s", world.CallName(request), body,
			err,
			kind)
	}
	return c.w.Now().Sub(started)
}

func httpStatus(c *client) {
	if got := c.getPage(c.httpGet(Healthy)); got.Status != 200 || len(got.Body) == 0 ||
		got.RedirectedToOtherHost {
		c.Errorf("healthy server: %+v", got)
	}
	if got := c.getPage(c.httpGet(Unhealthy)); got.Status != 500 || got.RedirectedToOtherHost {
		c.Errorf("unhealthy server: %+v", got)
	}
}

func unverifiedTLS(c *client) {
	request := c.httpGet(UntrustedTLS)
	request.Scheme = "https"
	if got := c.getPage(request); got.Status != 200 {
		c.Errorf("%+v", got)
	}
}

func httpRedirects(c *client) {
	if got := c.getPage(c.httpGet(RedirectsWithinHost)); got.Status != 200 ||
		got.RedirectedToOtherHost {
		c.Errorf("redirect within the host: %+v", got)
	}
	got := c.getPage(c.httpGet(RedirectsToOtherHost))
	if got.Status < 300 || got.Status > 399 || !got.RedirectedToOtherHost {
		c.Errorf("redirect to another host: %+v", got)
	}
}

func bodyIsBounded(c *client) {
	if got := c.getPage(c.httpGet(EndlessBody)); got.Status != 200 ||
		len(got.Body) != world.HTTPBodyMax {
		c.Errorf("status %d, %d bytes", got.Status, len(got.Body))
	}
}

func tcpConnects(c *client) {
	body, err := c.w.CallWithin(c.tcpConnect(Healthy), promptly)
	if _, ok := body.(*world.Done); !ok {
		c.Errorf("completed with %v, %v", body, err)
	}
	c.mustFail(c.tcpConnect(NoServer), promptly, world.KindUnavailable)
}

func grpcHealthStatus(c *client) {
	for server, want := range map[Server]string{ //ordered: each alone
		Healthy: "SERVING", Unhealthy: "NOT_SERVING",
	} {
		body, err := c.w.CallWithin(c.grpcCheck(server), promptly)
		if got, ok := body.(*world.GRPCChecked); !ok || got.Status != want {
			c.Errorf("%s: completed with %v, %v, want %s", server, body, err, want)
		}
	}
}

func grpcHealthErrors(c *client) {
	c.mustFail(c.grpcCheck(UnknownService), promptly, world.KindNotFound)
	c.mustFail(c.grpcCheck(NoHealthService), promptly, world.KindInvalid)
}

func connectionRefused(c *client) {
	for _, request := range []any{c.httpGet(NoServer), c.tcpConnect(NoServer), c.grpcCheck(NoServer)} {
		if took := c.mustFail(request, late, world.KindUnavailable); took > promptly {
			c.Errorf("%s took %v", world.CallName(request), took)
		}
	}
}

func responseTimeout(c *client) {
	const timeout = 500 * time.Millisecond
	for _, request := range []any{c.httpGet(NeverResponds), c.grpcCheck(NeverResponds)} {
		took := c.mustFail(request, timeout, world.KindTimeout)
		if took < timeout-50*time.Millisecond || took > timeout+promptly {
			c.Errorf("%s took %v", world.CallName(request), took)
		}
	}
}

func connectionClosed(c *client) {
	if took := c.mustFail(c.httpGet(ClosesConnection), late,
		world.KindUnavailable); took > promptly {
		c.Errorf("the call took %v", took)
	}
}

func invalidRequests(c *client) {
	gopher, nowhere := c.httpGet(Healthy), c.httpGet(Healthy)
	gopher.Scheme, nowhere.Host = "gopher", ""
	portless, most := c.tcpConnect(Healthy), c.grpcCheck(Healthy)
	portless.Port, most.Port = 0, 65536
	for _, request := range []any{gopher, nowhere, portless, most} {
		c.mustFail(request, promptly, world.KindInvalid)
	}
}

func concurrentRequests(c *client) {
	c.w.Begin(c.httpGet(NeverResponds))
	started := c.w.Now()
	c.getPage(c.httpGet(Healthy))
	if took := c.w.Now().Sub(started); took > promptly {
		c.Errorf("the call waited %v for the other", took)
	}
}

// fetchManifest returns a request for the manifest URL, with a limit of 1,000 bytes.
func (c *client) fetchManifest(scheme string, s Server) *world.FetchManifest {
	host, port := c.w.Address(s)
	return &world.FetchManifest{URL: fmt.Sprintf("%s://%s:%d/", scheme, host, port),
		Headers: []world.HTTPHeader{{Name: "X-Token", Value: "secret"}}, BytesMax: 1000,
		Documents: world.Documents{BytesMax: 100, ValuesMax: 10}}
}

func fetchesManifest(c *client) {
	pages := map[Server]string{Healthy: `"ok"`, RedirectsWithinHost: `"here"`}
	for server, want := range pages { //ordered: each alone
		body, err := c.w.CallWithin(c.fetchManifest("http", server), promptly)
		if got, ok := body.(*world.ManifestFetched); !ok || string(got.Doc) != want {
			c.Errorf("%s: completed with %v, %v, want %q", server, body, err, want)
		}
	}
}

func manifestErrors(c *client) {
	for _, server := range []Server{Unhealthy, NoServer, ClosesConnection, TruncatedBody} {
		c.mustFail(c.fetchManifest("http", server), promptly, world.KindUnavailable)
	}
	c.mustFail(c.fetchManifest("https", UntrustedTLS), promptly, world.KindUnavailable)
	c.mustFail(c.fetchManifest("http", EndlessBody), promptly, world.KindExhausted)
	c.mustFail(c.fetchManifest("http", NeverResponds), 500*time.Millisecond, world.KindTimeout)
	c.mustFail(c.fetchManifest("gopher", Healthy), promptly, world.KindInvalid)
	c.mustFail(&world.FetchManifest{URL: "http://%zz/", BytesMax: 1}, promptly, world.KindInvalid)
}
