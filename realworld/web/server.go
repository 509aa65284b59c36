package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"seedlet.dev/world"
)

// Bounds on what clients can occupy of the health and read-only servers.
const (
	connectionsMax    = 256
	headerBytesMax    = 64 << 10
	readHeaderTimeout = 10 * time.Second // and for the TLS handshake
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	shutdownTimeout   = 2 * time.Second
)

// Bounds of the secure port, besides those of connections.go. The command of an exec is part of the
// URL: there is room for 256 KiB of it, twice the kernel's bound on one argument, and for the rest
// of the header. Any client can send a header, so it has less room than in the kubelet (1 MiB).
// Authentication may need a review by the API server, so timeouts are longer.
const (
	secureHeaderBytesMax = 320 << 10
	// HTTP/2 keeps what a client sends before the request is authorized. Streams to containers do
	// not use HTTP/2, so other requests have small bodies.
	receivedBytesPerStreamMax     = 64 << 10
	receivedBytesPerConnectionMax = 128 << 10
	secureTimeout                 = time.Minute // except for longRunningPaths
	// HTTP/2 pings detect a client that has vanished while nothing is sent to it.
	pingAfter     = 30 * time.Second
	pingTimeout   = 15 * time.Second
	writeStallMax = time.Minute
)

// Server is a listening HTTP server. Close it when done.
type Server struct {
	Addr   net.Addr // the address with the actual port, if port zero was asked for
	http   *http.Server
	cancel context.CancelFunc // of the requests
	ended  chan error

	connections *connections // of the secure port; otherwise nil
}

// Listen starts to serve a handler at an address and port. Errors contain name. When the bound on
// connections is reached, the oldest one is closed for a new one: clients are not authenticated,
// and one that opens connections and sends nothing must not keep the others out.
func Listen(name, address string, port int, handler http.Handler) (*Server, error) {
	return listenPlain(name, address, port, handler, readHeaderTimeout)
}

func listenPlain(name, address string, port int, handler http.Handler,
	header time.Duration) (*Server, error) {
	listener, err := listen(name, address, port)
	if err != nil {
		return nil, err
	}
	s := newServer(listener, &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: header,
		ReadTimeout:       max(readTimeout, header),
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    headerBytesMax,
	})
	bounded := boundConnections(listener,
		connectionBounds{connectionsMax, connectionsMax, connectionsMax})
	go func() { s.ended <- s.http.Serve(bounded) }()
	return s, nil
}

// ListenTLS starts to serve a handler at an address and port, over HTTP/1.1 and HTTP/2.
func ListenTLS(address string, port int, handler http.Handler, config *tls.Config) (*Server,
	error) {
	return listenTLS(address, port, handler, config, readHeaderTimeout,
		connectionBounds{secureConnectionsMax, secureStrangersMax,
			secureStrangersPerAddressMax})
}

func listenTLS(address string, port int, handler http.Handler, config *tls.Config,
	header time.Duration, bounds connectionBounds) (*Server, error) {
	listener, err := listen("secure", address, port)
	if err != nil {
		return nil, err
	}
	s := newServer(listener, &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: header,
		ReadTimeout:       secureTimeout,
		WriteTimeout:      secureTimeout,
		MaxHeaderBytes:    secureHeaderBytesMax,
		ConnContext:       withConnection,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			WriteByteTimeout:              writeStallMax,
			MaxReceiveBufferPerStream:     receivedBytesPerStreamMax,
			MaxReceiveBufferPerConnection: receivedBytesPerConnectionMax},
	})
	s.connections = boundConnections(listener, bounds)
	go func() { s.ended <- s.http.ServeTLS(s.connections, "", "") }()
	return s, nil
}

// Metrics returns the metrics of the connections of the secure port. Other servers have none.
func (s *Server) Metrics() []world.Metric {
	if s.connections == nil {
		return nil
	}
	return s.connections.metrics()
}

func listen(name, address string, port int) (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on the %s port: %w", name, err)
	}
	return listener, nil
}

func newServer(listener net.Listener, server *http.Server) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.IdleTimeout = idleTimeout
	server.ErrorLog = log.New(clientErrorLog{}, "", 0)
	return &Server{Addr: listener.Addr(), http: server, cancel: cancel, ended: make(chan error, 1)}
}

// clientErrorLog logs errors that clients cause, at level 2 only: otherwise any client that reaches
// the port could fill the log.
type clientErrorLog struct{}

// Write implements io.Writer.
func (clientErrorLog) Write(line []byte) (int, error) {
	klog.V(2).InfoS("request of a client failed", "err",
		strings.TrimSpace(string(line)))
	return len(line), nil
}

// Close cancels the requests that wait for the core, gives the others shutdownTimeout to end, and
// stops serving.
func (s *Server) Close() error {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // the error that matters is that of Serve
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", s.Addr, err)
	}
	return nil
}
