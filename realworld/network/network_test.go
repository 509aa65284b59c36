package network_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a port with its completions.
type harness struct {
	t           *testing.T
	port        *network.Port
	clock       clock.Clock
	completions chan world.Event
	lastOp      world.OpID
}

func newHarness(t *testing.T) *harness {
	h := &harness{t: t, clock: clock.New(), completions: make(chan world.Event, 64)}
	h.port = network.New(network.Options{
		Clock: h.clock, Deliver: func(ev world.Event) { h.completions <- ev },
	})
	t.Cleanup(h.port.Close)
	return h
}

func (h *harness) start(body any, timeout time.Duration) {
	h.lastOp++
	h.port.Do(world.Effect{Op: h.lastOp, Body: body, Deadline: h.clock.Now().Add(timeout)})
}

func (h *harness) call(body any, timeout time.Duration) (any, *world.Error) {
	h.t.Helper()
	h.start(body, timeout)
	select {
	case ev := <-h.completions:
		if ev.Op != h.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			h.t.Fatalf("%s completed by %+v", world.CallName(body), ev)
		}
		if ev.Err != nil && (ev.Err.Op != world.CallName(body) || ev.Err.Message == "") {
			h.t.Errorf("%s: error %v names no operation", world.CallName(body), ev.Err)
		}
		return ev.Body, ev.Err
	case <-time.After(porttest.Patience):
		h.t.Fatalf("%s is not completed", world.CallName(body))
		return nil, nil
	}
}

// hostPort splits an address.
func hostPort(address string) (host string, port int32) {
	a := netip.MustParseAddrPort(address)
	return a.Addr().String(), int32(a.Port())
}

// listen listens on the loopback, and closes at the end of the test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// unusedAddress returns an address without a listener.
func unusedAddress(t *testing.T) (host string, port int32) {
	t.Helper()
	l := listen(t)
	_ = l.Close()
	return hostPort(l.Addr().String())
}

func TestTCPConnect(t *testing.T) {
	h := newHarness(t)
	l := listen(t)
	host, port := hostPort(l.Addr().String())
	body, err := h.call(&world.TCPConnect{Host: host, Port: port}, porttest.Patience)
	if _, done := body.(*world.Done); !done {
		t.Errorf("completed by %v, %v, want Done", body, err)
	}
	conn, acceptErr := l.Accept()
	if acceptErr != nil {
		t.Fatal(acceptErr)
	}
	defer func() { _ = conn.Close() }()
	if n, readErr := conn.Read(make([]byte, 1)); n != 0 || readErr == nil {
		t.Errorf("read %d bytes, %v, want a closed connection", n, readErr)
	}
}

func TestConnectionRefused(t *testing.T) {
	h := newHarness(t)
	host, port := unusedAddress(t)
	for _, body := range []any{
		&world.TCPConnect{Host: host, Port: port},
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	} {
		result, err := h.call(body, porttest.BeyondPatience)
		if !err.Has(world.KindUnavailable) {
			t.Errorf("%s: %v, %v, want Unavailable", world.CallName(body), result, err)
		}
	}
}

// The host accepts connections and never responds.
func TestDeadlines(t *testing.T) {
	h := newHarness(t)
	host, port := hostPort(listen(t).Addr().String())
	for _, body := range []any{
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.HTTPGet{Scheme: "https", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	} {
		result, err := h.call(body, 300*time.Millisecond)
		if !err.Has(world.KindTimeout) {
			t.Errorf("%s: %v, %v, want Timeout", world.CallName(body), result, err)
		}
	}
	if _, err := h.call(&world.TCPConnect{Host: host, Port: port}, -1); !err.Has(
		world.KindTimeout) {
		t.Errorf("past its deadline: %v, want Timeout", err)
	}
}

func TestInvalidRequests(t *testing.T) {
	h := newHarness(t)
	for _, body := range []any{
		&world.TCPConnect{Host: "", Port: 80},
		&world.TCPConnect{Host: "127.0.0.1", Port: 0},
		&world.TCPConnect{Host: "127.0.0.1", Port: 65536},
		&world.GRPCCheck{Host: "127.0.0.1", Port: -1},
		&world.HTTPGet{Scheme: "ftp", Host: "127.0.0.1", Port: 80},
		&world.HTTPGet{Scheme: "http", Host: "not a host", Port: 80},
		&world.HTTPGet{Scheme: "http", Host: "127.0.0.1", Port: 80,
			Headers: []world.HTTPHeader{{Name: "two words", Value: "x"}}},
		&world.HTTPGet{Scheme: "http", Host: "127.0.0.1", Port: 80,
			Headers: []world.HTTPHeader{{Name: "X", Value: "a\r\nInjected: b"}}},
		&world.HTTPGet{Scheme: "http", Host: "127.0.0.1", Port: 80,
			Headers: []world.HTTPHeader{{Name: "Host", Value: "a b"}}},
	} {
		if result, err := h.call(body, porttest.Patience); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v, %v, want Invalid", body, result, err)
		}
	}
}

func TestCloseCompletesCallsInFlight(t *testing.T) {
	h := newHarness(t)
	host, port := hostPort(listen(t).Addr().String())
	bodies := []any{
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	}
	for _, body := range bodies {
		h.start(body, time.Minute)
	}
	h.port.Close()
	for range bodies {
		if ev := <-h.completions; !ev.Err.Has(world.KindUnavailable) {
			t.Errorf("completed by %+v, want Unavailable", ev)
		}
	}
}
