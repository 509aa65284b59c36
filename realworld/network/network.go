// Package network carries out the effects of the network port: what probes and lifecycle hooks
// ask of containers, and the manifest URL (page.go). It asks containers as the kubelet does,
// because applications and their firewalls know it by its manners: its User-Agent, that it takes
// any certificate, uses no proxy, opens a connection for each question, and follows redirects
// within the host only.
//
// The contract: Do never blocks; every effect is answered exactly once, before or soon after its
// deadline. Whatever keeps the other side from answering is KindUnavailable, or KindTimeout when
// the deadline passes first; KindInvalid is a question that cannot be asked. Start reading at
// Port, then http.go, tcp.go, grpc.go and page.go.
package network

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/flight"
	"seedlet.dev/world"
)

// Options are what a port is made of.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // takes the answers; called from many goroutines
	Roots   *x509.CertPool    // whom the manifest URL is trusted by; nil: whom the machine trusts
}

// Port is a world.Port for the network. Close it when done.
type Port struct {
	transport *http.Transport // to containers
	pages     *http.Transport // to the manifest URL
	flights   *flight.Flights
}

// New makes a port.
func New(opts Options) *Port {
	return &Port{transport: newTransport(), pages: newPages(opts.Roots),
		flights: flight.New(opts.Clock, opts.Deliver)}
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.flights.Begin(eff, p.carryOut) }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := p.ask(ctx, request)
	if err != nil { // most have no kind of their own
		return nil, flight.Mapped(ctx, world.Call(request), err, world.KindUnavailable)
	}
	return body, nil
}

// ask does what an effect asks for. On an error the returned body means nothing.
func (p *Port) ask(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *world.HTTPGet:
		return httpGet(ctx, p.transport, m)
	case *world.FetchManifest:
		return fetchManifest(ctx, p.pages, m)
	case *world.TCPConnect:
		return &world.Done{}, tcpConnect(ctx, m)
	case *world.GRPCCheck:
		return grpcCheck(ctx, m)
	default:
		panic(fmt.Sprintf("network: cannot carry out %T", request))
	}
}

// Close gives up what is going on and waits until it has ended. Do must not be called any more.
func (p *Port) Close() {
	p.flights.Close()
	p.transport.CloseIdleConnections()
	p.pages.CloseIdleConnections()
}

// address joins host and port, with the brackets that an IPv6 address needs.
func address(op, host string, port int32) (string, error) {
	if host == "" || port < 1 || port > 65535 {
		return "", world.Errorf(world.KindInvalid, op, "no address: host %q, port %d", host, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// lingerSeconds is how long the kernel keeps a closed connection. Probes open and close thousands
// an hour; for the usual minute they would use up local ports and connection tracking
// (kubernetes/kubernetes#89898).
const lingerSeconds = 1

// dial opens a TCP connection.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1 * time.Second} // none: it is closed at once
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(lingerSeconds) // without it, it only takes longer
	}
	return conn, nil
}
