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

// servers are the suite's, on the loopback. What speaks HTTP and gRPC does so on one port, and
// what is silent or hangs up speaks neither.
type servers struct {
	*porttest.World
	t  *testing.T
	at map[parity.Server]string // addresses
}

func (s *servers) At(server parity.Server) (string, int32) {
	address, is := s.at[server]
	if !is {
		s.t.Fatalf("no server %q", server)
	}
	return at(address)
}

func newServers(t *testing.T) *servers {
	w := porttest.New()
	port := network.New(network.Options{Clock: w.Clock, Deliver: w.Deliver})
	w.Port = port
	s := &servers{World: w, t: t, at: map[parity.Server]string{}}
	serving, down := grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING
	s.both(parity.Well, healthServer("store", serving), ok)
	s.both(parity.Unwell, healthServer("store", down), unwell)
	s.both(parity.Unknown, healthServer("other", serving), ok)
	s.both(parity.Unoffered, grpc.NewServer(), ok)
	s.web(parity.Moved, moved)
	s.web(parity.Elsewhere, elsewhere)
	s.web(parity.Endless, endless)
	s.web(parity.CutShort, cutShort)
	secret := httptest.NewTLSServer(http.HandlerFunc(ok))
	t.Cleanup(secret.Close)
	s.at[parity.Secret] = secret.Listener.Addr().String()
	s.raw(parity.Silent, func(net.Conn) {})
	s.raw(parity.HangsUp, func(conn net.Conn) { _ = conn.Close() })
	gone := listen(t)
	s.at[parity.NoServer] = gone.Addr().String()
	_ = gone.Close()
	t.Cleanup(port.Close) // before the servers, which wait for those who are still there
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
	is grpc_health_v1.HealthCheckResponse_ServingStatus) *grpc.Server {
	states, server := health.NewServer(), grpc.NewServer()
	states.SetServingStatus(service, is)
	grpc_health_v1.RegisterHealthServer(server, states)
	return server
}

// web serves HTTP.
func (s *servers) web(name parity.Server, handle http.HandlerFunc) {
	server := httptest.NewServer(handle)
	s.t.Cleanup(server.Close)
	s.at[name] = server.Listener.Addr().String()
}

// both serves HTTP, and gRPC over what of it is HTTP/2.
func (s *servers) both(name parity.Server, health *grpc.Server, handle http.HandlerFunc) {
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
	s.at[name] = server.Listener.Addr().String()
}

// raw does something with every connection, and closes all of them at the end.
func (s *servers) raw(name parity.Server, do func(net.Conn)) {
	l := listen(s.t)
	s.at[name] = l.Addr().String()
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

func TestParity(t *testing.T) { parity.Reach(t, newServers(t)) }
