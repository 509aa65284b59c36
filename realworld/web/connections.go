package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"seedlet.dev/world"
)

// Bounds on the connections of the secure port. Those that follow logs and those of streams have
// bounds of their own (package containerapi), with room for both here, all of them through one API
// server.
const (
	secureConnectionsMax         = 6144
	secureStrangersMax           = 2048
	secureStrangersPerAddressMax = 1024
)

// connections is a listener that bounds the open connections. A connection is a stranger's until a
// request on it is authorized. Strangers have bounds in total and for each remote address. When a
// bound is reached, the oldest connection of a stranger is closed for the new one: the strangers of
// one address must not keep the clients of another out. The authorized connections of an address
// have no bound of their own: all users of the API server have its address. If all connections are
// authorized, the oldest one without a request is closed, of the address that has most of all. Only
// if each has a request, the new connection is refused.
type connections struct {
	net.Listener
	bounds connectionBounds

	mu        sync.Mutex
	open      []*connection // by age
	strangers int           // of those
	counts    map[netip.Addr]*connectionCounts
	// Strangers that were closed to make room, by the bound that was reached.
	closedOfAddress, closed uint64
	closedIdle              uint64 // authorized ones
	refused                 uint64 // new ones
}

// connectionBounds are bounds on the open connections: on all of them, on those of strangers, and
// on those of strangers of one address.
type connectionBounds struct{ total, strangers, perAddress int }

// connectionCounts are the numbers of open connections of one address.
type connectionCounts struct{ all, strangers int }

// connection is an open connection.
type connection struct {
	net.Conn
	owner      *connections
	address    netip.Addr
	authorized bool // with owner.mu
	requests   int  // authorized ones that are being served, with owner.mu
}

func boundConnections(listener net.Listener, bounds connectionBounds) *connections {
	return &connections{Listener: listener, bounds: bounds,
		counts: map[netip.Addr]*connectionCounts{}}
}

// Accept returns the next connection that is not refused.
func (l *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		remote, _ := netip.ParseAddrPort(accepted.RemoteAddr().String())
		conn := &connection{Conn: accepted, owner: l, address: remote.Addr().Unmap()}
		other, ok := l.admit(conn)
		if other != nil {
			_ = other.Conn.Close() // it is only to be gone
		}
		if ok {
			return conn, nil
		}
		_ = accepted.Close() // it is only to be gone
	}
}

// admit adds a new connection, and reports whether it has room. It returns the connection that the
// caller has to close for it, or nil.
func (l *connections) admit(conn *connection) (*connection, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts[conn.address]
	if counts == nil {
		counts = &connectionCounts{}
	}
	var other *connection
	switch {
	case counts.strangers >= l.bounds.perAddress:
		other = l.oldestStranger(conn.address)
		l.closedOfAddress++
	case l.strangers >= l.bounds.strangers || len(l.open) >= l.bounds.total:
		if other = l.oldestStranger(l.mostStrangers()); other != nil {
			l.closed++
			break
		}
		if other = l.oldestIdle(); other == nil {
			l.refused++
			return nil, false
		}
		l.closedIdle++
	}
	if other != nil {
		l.remove(other)
	}
	l.counts[conn.address] = counts
	l.open = append(l.open, conn)
	counts.all++
	counts.strangers++
	l.strangers++
	return other, true
}

// oldestIdle returns the oldest authorized connection without a request of the address that has
// most connections, of those that have such a one; nil without one.
func (l *connections) oldestIdle() *connection {
	var oldest *connection
	for _, c := range l.open {
		if c.authorized && c.requests == 0 &&
			(oldest == nil || l.counts[c.address].all > l.counts[oldest.address].all) {
			oldest = c
		}
	}
	return oldest
}

// mostStrangers returns the address with the most connections of strangers; of two, that with the
// oldest one.
func (l *connections) mostStrangers() netip.Addr {
	var most netip.Addr
	strangers := 0
	for _, c := range l.open {
		if n := l.counts[c.address].strangers; n > strangers {
			most, strangers = c.address, n
		}
	}
	return most
}

// oldestStranger returns the oldest connection of a stranger from an address; nil without one.
func (l *connections) oldestStranger(address netip.Addr) *connection {
	i := slices.IndexFunc(l.open, func(c *connection) bool {
		return c.address == address && !c.authorized
	})
	if i < 0 {
		return nil
	}
	return l.open[i]
}

// remove forgets a connection. It does nothing the second time.
func (l *connections) remove(conn *connection) {
	i := slices.Index(l.open, conn)
	if i < 0 {
		return
	}
	l.open = slices.Delete(l.open, i, i+1)
	counts := l.counts[conn.address]
	counts.all--
	if !conn.authorized {
		counts.strangers--
		l.strangers--
	}
	if counts.all == 0 {
		delete(l.counts, conn.address)
	}
}

// begin marks that a request on the connection is authorized, and is served until end.
func (c *connection) begin() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.requests++
	if c.authorized {
		return
	}
	c.authorized = true
	if slices.Contains(c.owner.open, c) { // else it is being closed
		c.owner.counts[c.address].strangers--
		c.owner.strangers--
	}
}

func (c *connection) end() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.requests--
}

// Close closes the connection and makes room for another one.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// connectionKey is the key of a request's context under which its *connection is.
type connectionKey struct{}

// withConnection returns the context of the requests on a connection of TLS.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// markAuthorized marks the connections of requests. It runs after the guard, so only authorized
// requests reach it.
func markAuthorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			conn.begin()
			defer conn.end()
		}
		next.ServeHTTP(w, r)
	})
}

// metrics returns the metrics of the connections.
func (l *connections) metrics() []world.Metric {
	l.mu.Lock()
	defer l.mu.Unlock()
	metrics := []world.Metric{
		{Name: "seedlet_http_connections_max", Value: float64(l.bounds.total),
			Help: "Bound on the open connections of the secure port."},
		{Name: "seedlet_http_connections_refused_total", Value: float64(l.refused), Counter: true,
			Help: "New connections that were refused because all others were serving a request."},
	}
	add := func(name, help, label, value string, n float64, counter bool) {
		metrics = append(metrics, world.Metric{Name: name, Help: help, Counter: counter, Value: n,
			Labels: []world.Label{{Name: label, Value: value}}})
	}
	for value, n := range map[string]int{"true": len(l.open) - l.strangers, "false": l.strangers} {
		add("seedlet_http_connections", "Open connections of the secure port; authorized is true "+
			"after the first authorized request.", "authorized", value, float64(n), false)
	}
	for value, n := range map[string]int{"address": l.bounds.perAddress,
		"total": l.bounds.strangers} {
		add("seedlet_http_strangers_max", "Bound on the open connections of the secure port without "+
			"an authorized request, of one address and in total.", "bound", value, float64(n), false)
	}
	for value, n := range map[string]uint64{"address": l.closedOfAddress, "total": l.closed,
		"authorized": l.closedIdle} {
		add("seedlet_http_connections_closed_total", "Connections that were closed to make room for "+
			"a new one, by the bound that was reached; authorized: idle ones, as no other was left.",
			"bound", value, float64(n), true)
	}
	return metrics
}
