// Package network carries out the effects of the network port: the requests of probes and lifecycle
// hooks to containers, and the manifest URL (manifesturl.go). A request to a container is like the
// kubelet's, because applications and firewalls recognize the kubelet by it: the kubelet's
// User-Agent, no certificate verification, no proxy, a new connection for each request, and no
// redirects to other hosts.
//
// The contract: Do never blocks; every effect is completed by exactly one event, before or soon
// after its deadline. A request without a response is KindUnavailable, or KindTimeout if the
// deadline passes first; KindInvalid is a request that cannot be sent. Start reading at Port, then
// http.go, tcp.go, grpc.go and manifesturl.go.
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
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives the completions; called from many goroutines
	Roots   *x509.CertPool    // the authorities for the manifest URL; nil: those of the machine
}

// Port is a world.Port for the network. Close it when done.
type Port struct {
	transport  *http.Transport // to containers
	manifests  *http.Transport // to the manifest URL
	operations *inflight.Operations
}

// New returns a port.
func New(opts Options) *Port {
	return &Port{transport: newTransport(), manifests: newManifestTransport(opts.Roots),
		operations: inflight.New(opts.Clock, opts.Deliver)}
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, p.carryOut) }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := p.execute(ctx, request)
	if err != nil { // most errors have no kind of their own
		return nil, inflight.ToWorldError(ctx, world.CallName(request), err, world.KindUnavailable)
	}
	return body, nil
}

// execute carries out an effect. If it returns an error, its body is meaningless.
func (p *Port) execute(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *world.HTTPGet:
		return httpGet(ctx, p.transport, m)
	case *world.FetchManifest:
		return fetchManifest(ctx, p.manifests, m)
	case *world.TCPConnect:
		return &world.Done{}, tcpConnect(ctx, m)
	case *world.GRPCCheck:
		return grpcCheck(ctx, m)
	default:
		panic(fmt.Sprintf("network: cannot carry out %T", request))
	}
}

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() {
	p.operations.Close()
	p.transport.CloseIdleConnections()
	p.manifests.CloseIdleConnections()
}

// address joins host and port, with brackets for an IPv6 address.
func address(op, host string, port int32) (string, error) {
	if host == "" || port < 1 || port > 65535 {
		return "", world.Errorf(world.KindInvalid, op, "no address: host %q, port %d", host, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// lingerSeconds is how long the kernel keeps a closed connection. Probes open and close thousands
// of connections per hour; the usual minute would exhaust local ports and connection tracking
// (kubernetes/kubernetes#89898).
const lingerSeconds = 1

// dial opens a TCP connection.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1 * time.Second} // none: connections are short
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(lingerSeconds) // on failure the connection only lingers longer
	}
	return conn, nil
}
