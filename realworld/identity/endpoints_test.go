package identity

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolveTo has all names resolve to IPv4 addresses, in this order, while a test runs.
func resolveTo(t *testing.T, addresses ...string) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer, err := answerTo(buffer[:n], addresses); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	})
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
		}}
	t.Cleanup(func() {
		net.DefaultResolver = was
		_ = server.Close()
		goroutines.Wait()
	})
}

// answerTo returns the answer to a DNS query: the addresses if it asks for IPv4, else none.
func answerTo(query []byte, addresses []string) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Additionals = true, nil
	for _, a := range addresses {
		if m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name,
					Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 1},
				Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}})
		}
	}
	return m.Pack()
}

// silentAddress occupies a port of an address and answers no attempt to connect: its queue of
// connections is full. It returns the port.
func silentAddress(t *testing.T, ip string) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	address := &syscall.SockaddrInet4{Addr: netip.MustParseAddr(ip).As4()}
	if err := errors.Join(syscall.Bind(fd, address), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(bound.(*syscall.SockaddrInet4).Port))
	for range 100 {
		conn, err := net.DialTimeout("tcp", at.String(), 500*time.Millisecond)
		var failed net.Error
		if errors.As(err, &failed) && failed.Timeout() {
			return strconv.Itoa(int(at.Port()))
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue of connections has no end")
	return ""
}

// proxy passes connections on to a server, until the machine that it stands for has died.
type proxy struct {
	listener net.Listener
	accepted atomic.Int64
	isDead   atomic.Bool // nothing is passed on, and open connections stay open
}

func newProxy(t *testing.T, address, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener}
	ctx, cancel := context.WithCancel(context.Background())
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = client.Close(), to.Close() })
			goroutines.Go(func() { p.pass(ctx, client, to) })
			goroutines.Go(func() { p.pass(ctx, to, client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		goroutines.Wait()
	})
	return p
}

func (p *proxy) pass(ctx context.Context, from, to net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if p.isDead.Load() {
			<-ctx.Done()
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func (p *proxy) die() {
	p.isDead.Store(true)
	_ = p.listener.Close()
}

// A server's host name with several addresses is a list of API servers: an address that does not
// answer costs a part of the time of one dial, so no request fails for it; and when the machine of
// the connection dies without a word, the next connection goes to another address.
func TestServerWithSeveralAddresses(t *testing.T) {
	resolveTo(t, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	port := silentAddress(t, "127.0.0.2")
	f := newFake(t)
	server := strings.TrimPrefix(f.url, "https://")
	second := newProxy(t, net.JoinHostPort("127.0.0.3", port), server)
	third := newProxy(t, net.JoinHostPort("127.0.0.4", port), server)
	f.url = "https://" + net.JoinHostPort("example.com", port) // a name of httptest's certificate

	l := startSession(t, Options{
		Kubeconfig: f.kubeconfig(filepath.Join(t.TempDir(), "kubeconfig"),
			map[string]any{"token": "secret"}),
		SendPingTimeout: 100 * time.Millisecond, PingTimeout: 100 * time.Millisecond,
	})
	if who, _, err := l.whoami(f.url); who != "secret" || err != nil {
		t.Fatalf("the first request: user %q, %v", who, err)
	}
	if second.accepted.Load() != 1 || third.accepted.Load() != 0 {
		t.Errorf("%d connections with the second address, %d with the third",
			second.accepted.Load(), third.accepted.Load())
	}
	second.die()
	l.waitFor(t, f.url, func(who, _ string) bool { return who == "secret" })
	if third.accepted.Load() == 0 {
		t.Error("no connection with the third address")
	}
}
