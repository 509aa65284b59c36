package web_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/web"
)

// crowded is a secure port with room for few connections. Requests with the header "Let-In" are
// authorized.
type crowded struct {
	t      *testing.T
	server *web.Server
}

func newCrowded(t *testing.T, total, perAddress int) *crowded {
	t.Helper()
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Let-In") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	server, err := web.ListenTLSBounded(total, perAddress,
		newAgent().secure(func(s *web.Secure) { s.Guard = guard }),
		&tls.Config{Certificates: []tls.Certificate{*own(t)},
			NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &crowded{t, server}
}

// connect opens a connection from an address of the loopback interface, and waits until it counts.
func (c *crowded) connect(from string) net.Conn {
	c.t.Helper()
	before := c.accepted()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", c.server.Addr.String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	for late := time.Now().Add(porttest.Patience); c.accepted() == before; {
		if time.Now().After(late) {
			c.t.Fatal("the connection is not accepted")
		}
		time.Sleep(time.Millisecond)
	}
	return conn
}

// accepted returns how many connections were accepted so far and are open, were closed for another
// one, or refused. Tests close none themselves.
func (c *crowded) accepted() (n float64) {
	for _, m := range c.server.Metrics() {
		switch m.Name {
		case "seedlet_http_connections", "seedlet_http_connections_closed_total",
			"seedlet_http_connections_refused_total":
			n += m.Value
		}
	}
	return n
}

// client returns a client of one connection from an address.
func (c *crowded) client(from string, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: http2, MaxConnsPerHost: 1,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get sends an authorized request. If sameConn is set the client must not have reconnected.
func (c *crowded) get(client *http.Client) error {
	request, err := http.NewRequest("GET", "https://"+c.server.Addr.String()+"/healthz", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Let-In", "yes")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return err
}

// isClosed reports whether the server closes a connection within a time.
func isClosed(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within)) // TCP connections support deadlines
	_, err := conn.Read(make([]byte, 1))
	timeout, isNet := err.(net.Error)
	return err != nil && !(isNet && timeout.Timeout())
}

func (c *crowded) expectClosed(conns []net.Conn, closed int) {
	c.t.Helper()
	for i, conn := range conns {
		within := porttest.Patience
		if i >= closed {
			within = 10 * time.Millisecond
		}
		if got := isClosed(conn, within); got != (i < closed) {
			c.t.Errorf("connection %d of %d: closed %v", i, len(conns), got)
		}
	}
}

// The oldest connections of an address that no request was authorized on are closed for new ones;
// others of the address, and other addresses, are not affected.
func TestConnectionsOfOneAddress(t *testing.T) {
	const crowd, neighbor = "127.0.0.1", "127.0.0.2"
	c := newCrowded(t, 100, 4)
	other := c.connect(neighbor)
	good := []*http.Client{c.client(crowd, false), c.client(crowd, true)}
	for _, client := range good {
		if err := c.get(client); err != nil {
			t.Fatal(err)
		}
	}
	var silent []net.Conn
	for range 6 {
		silent = append(silent, c.connect(crowd))
	}
	c.expectClosed(silent, 2)
	c.expectClosed([]net.Conn{other}, 0)
	before := c.accepted()
	for _, client := range good {
		if err := c.get(client); err != nil {
			t.Error(err)
		}
	}
	if c.accepted() != before {
		t.Error("an authorized connection was closed")
	}
}

// An address may have any number of authorized connections: all users of the API server have its
// address.
func TestAuthorizedConnectionsOfOneAddress(t *testing.T) {
	c := newCrowded(t, 100, 2)
	var clients []*http.Client
	for range 2 { // the second time over the same connections
		for i := range 6 {
			if i == len(clients) {
				clients = append(clients, c.client("127.0.0.1", i%2 == 0))
			}
			if err := c.get(clients[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := c.accepted(); n != 6 {
		t.Errorf("%v connections for 6 clients", n)
	}
}

// When the bound on all is reached, the address with most strangers makes room.
func TestConnectionsInTotal(t *testing.T) {
	const crowd, neighbor = "127.0.0.1", "127.0.0.2"
	c := newCrowded(t, 6, 6)
	other := c.connect(neighbor) // the oldest of all
	var silent []net.Conn
	for range 5 {
		silent = append(silent, c.connect(crowd))
	}
	client := c.client("127.0.0.3", true)
	if err := c.get(client); err != nil {
		t.Error(err)
	}
	c.expectClosed(silent, 1)
	c.expectClosed([]net.Conn{other}, 0)
}

// If all connections are authorized, the oldest idle one makes room, of the address with most of
// them: a client of one address does not keep those of others out.
func TestIdleAuthorizedConnections(t *testing.T) {
	c := newCrowded(t, 4, 4)
	neighbor := c.client("127.0.0.2", true) // the oldest of all
	if err := c.get(neighbor); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.get(c.client("127.0.0.1", false)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.get(c.client("127.0.0.3", false)); err != nil {
		t.Errorf("one more client: %v", err)
	}
	before := c.accepted()
	if err := c.get(neighbor); err != nil || c.accepted() != before {
		t.Errorf("the connection of an address with a single one was closed: %v", err)
	}
}

// Clients that open as many connections of a port without authentication as there may be, and send
// nothing, do not keep others out.
func TestIdleConnectionsOfHealthPort(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server, err := web.ListenWithin(porttest.BeyondPatience, served)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range web.ConnectionsMax {
		conn, err := net.Dial("tcp", server.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	client := &http.Client{Timeout: porttest.Patience}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + server.Addr.String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}
