package network_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world/parity"
)

// servers are the servers of the parity suite, on the loopback. HTTP and gRPC share one port; the
// silent server and the one that closes its connections support neither.
type servers struct {
	*porttest.World
	t         *testing.T
	addresses map[parity.Server]string // addresses
}

func (s *servers) Address(server parity.Server) (string, int32) {
	address, ok := s.addresses[server]
	if !ok {
		s.t.Fatalf("no server %q", server)
	}
	return hostPort(address)
}

func newServers(t *testing.T) *servers {
	w := porttest.New()
	port := network.New(network.Options{Clock: w.Clock, Deliver: w.Deliver})
	w.Port = port
	s := &servers{World: w, t: t, addresses: map[parity.Server]string{}}
	serving, down := grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING
	s.serveBoth(parity.Healthy, healthServer("store", serving), ok)
	s.serveBoth(parity.Unhealthy, healthServer("store", down), unwell)
	s.serveBoth(parity.UnknownService, healthServer("other", serving), ok)
	s.serveBoth(parity.NoHealthService, grpc.NewServer(), ok)
	s.serveHTTP(parity.RedirectsWithinHost, moved)
	s.serveHTTP(parity.RedirectsToOtherHost, elsewhere)
	s.serveHTTP(parity.EndlessBody, endless)
	s.serveHTTP(parity.TruncatedBody, cutShort)
	secret := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	secret.Config.ErrorLog = porttest.ErrorLog(t)
	secret.StartTLS()
	t.Cleanup(secret.Close)
	s.addresses[parity.UntrustedTLS] = secret.Listener.Addr().String()
	s.serveRaw(parity.NeverResponds, func(net.Conn) {})
	s.serveRaw(parity.ClosesConnection, func(conn net.Conn) { _ = conn.Close() })
	gone := listen(t)
	s.addresses[parity.NoServer] = gone.Addr().String()
	_ = gone.Close()
	t.Cleanup(port.Close) // before the servers, which wait for open connections
	return s
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

func unwell(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
}

func moved(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		http.Redirect(w, r, "/there", http.StatusMovedPermanently)
		return
	}
	fmt.Fprint(w, "here")
}

func elsewhere(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		fmt.Fprint(w, strings.Repeat("x", 1000))
	}
}

func cutShort(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "20")
	fmt.Fprint(w, "half of it")
}

func healthServer(service string,
	ok grpc_health_v1.HealthCheckResponse_ServingStatus) *grpc.Server {
	states, server := health.NewServer(), grpc.NewServer()
	states.SetServingStatus(service, ok)
	grpc_health_v1.RegisterHealthServer(server, states)
	return server
}

// serveHTTP serves HTTP.
func (s *servers) serveHTTP(name parity.Server, handle http.HandlerFunc) {
	server := httptest.NewServer(handle)
	s.t.Cleanup(server.Close)
	s.addresses[name] = server.Listener.Addr().String()
}

// serveBoth serves HTTP/1, and gRPC over HTTP/2.
func (s *servers) serveBoth(name parity.Server, health *grpc.Server, handle http.HandlerFunc) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				health.ServeHTTP(w, r)
				return
			}
			handle(w, r)
		}))
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = protocols
	server.Start()
	s.t.Cleanup(server.Close)
	s.addresses[name] = server.Listener.Addr().String()
}

// serveRaw calls a function for every connection, and closes all of them at the end.
func (s *servers) serveRaw(name parity.Server, do func(net.Conn)) {
	l := listen(s.t)
	s.addresses[name] = l.Addr().String()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			do(conn)
		}
	}()
	s.t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
}

func TestParity(t *testing.T) { parity.NetworkPort(t, newServers(t)) }
