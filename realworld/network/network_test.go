package network_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/network"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a port and what it has said.
type bench struct {
	t       *testing.T
	port    *network.Port
	clock   clock.Clock
	answers chan world.Event
	lastOp  world.OpID
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, clock: clock.New(), answers: make(chan world.Event, 64)}
	b.port = network.New(network.Options{
		Clock: b.clock, Deliver: func(ev world.Event) { b.answers <- ev },
	})
	t.Cleanup(b.port.Close)
	return b
}

func (b *bench) begin(body any, timeout time.Duration) {
	b.lastOp++
	b.port.Do(world.Effect{Op: b.lastOp, Body: body, Deadline: b.clock.Now().Add(timeout)})
}

func (b *bench) do(body any, timeout time.Duration) (any, *world.Error) {
	b.t.Helper()
	b.begin(body, timeout)
	select {
	case ev := <-b.answers:
		if ev.Op != b.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			b.t.Fatalf("%s answered by %+v", world.Call(body), ev)
		}
		if ev.Err != nil && (ev.Err.Op != world.Call(body) || ev.Err.Message == "") {
			b.t.Errorf("%s failed with %v, which does not say what of", world.Call(body), ev.Err)
		}
		return ev.Body, ev.Err
	case <-time.After(timeout + 5*time.Second):
		b.t.Fatalf("%s is not answered", world.Call(body))
		return nil, nil
	}
}

// at splits an address.
func at(address string) (host string, port int32) {
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

// nobody is where nobody listens.
func nobody(t *testing.T) (host string, port int32) {
	t.Helper()
	l := listen(t)
	_ = l.Close()
	return at(l.Addr().String())
}

func TestTCPConnect(t *testing.T) {
	b := newBench(t)
	l := listen(t)
	host, port := at(l.Addr().String())
	body, err := b.do(&world.TCPConnect{Host: host, Port: port}, 5*time.Second)
	if _, done := body.(*world.Done); !done {
		t.Errorf("answered by %v, %v, want Done", body, err)
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

func TestNobodyThere(t *testing.T) {
	b := newBench(t)
	host, port := nobody(t)
	for _, body := range []any{
		&world.TCPConnect{Host: host, Port: port},
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	} {
		began := time.Now()
		answer, err := b.do(body, 20*time.Second)
		if took := time.Since(began); !err.Has(world.KindUnavailable) || took > 5*time.Second {
			t.Errorf("%s: %v, %v after %v, want Unavailable at once", world.Call(body), answer, err,
				took)
		}
	}
}

// A host that takes connections and says nothing.
func TestDeadlines(t *testing.T) {
	b := newBench(t)
	host, port := at(listen(t).Addr().String())
	for _, body := range []any{
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.HTTPGet{Scheme: "https", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	} {
		began := time.Now()
		answer, err := b.do(body, 300*time.Millisecond)
		if took := time.Since(began); !err.Has(world.KindTimeout) || took > 3*time.Second {
			t.Errorf("%s: %v, %v after %v, want Timeout after 300ms", world.Call(body), answer, err,
				took)
		}
	}
	if _, err := b.do(&world.TCPConnect{Host: host, Port: port}, -1); !err.Has(
		world.KindTimeout) {
		t.Errorf("past its deadline: %v, want Timeout", err)
	}
}

func TestWhatCannotBeAsked(t *testing.T) {
	b := newBench(t)
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
		if answer, err := b.do(body, 5*time.Second); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v, %v, want Invalid", body, answer, err)
		}
	}
}

func TestCloseAnswersWhatIsGoingOn(t *testing.T) {
	b := newBench(t)
	host, port := at(listen(t).Addr().String())
	bodies := []any{
		&world.HTTPGet{Scheme: "http", Host: host, Port: port},
		&world.GRPCCheck{Host: host, Port: port},
	}
	for _, body := range bodies {
		b.begin(body, time.Minute)
	}
	b.port.Close()
	for range bodies {
		if ev := <-b.answers; !ev.Err.Has(world.KindUnavailable) {
			t.Errorf("answered by %+v, want Unavailable", ev)
		}
	}
}
