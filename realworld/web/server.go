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

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"
)

// Bounds on what one client, or many, can hold of a server.
const (
	connectionsMax    = 256
	headerBytesMax    = 64 << 10
	readHeaderTimeout = 10 * time.Second // and for the TLS handshake
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	shutdownTimeout   = 2 * time.Second
)

// Bounds of the secure port, where a thousand clients may follow logs, where a command to execute
// is part of the URL (the kubelet and the API server have the same bound), and where it may take
// a while to find out who asks.
const (
	secureConnectionsMax = 2048
	secureHeaderBytesMax = 1 << 20
	secureTimeout        = time.Minute // but for what lasts: see lasting
	// A client that has gone without a word is noticed even while nothing is sent to it.
	silenceMax  = 30 * time.Second
	signTimeout = 15 * time.Second
	stuckMax    = time.Minute
)

// Server is a listening HTTP server. Close it when done.
type Server struct {
	Addr   net.Addr // where it listens, with the port that was chosen for port zero
	http   *http.Server
	cancel context.CancelFunc // of the requests
	ended  chan error
}

// Listen begins to serve a handler at an address and port. name is for errors.
func Listen(name, address string, port int, handler http.Handler) (*Server, error) {
	listener, err := listen(name, address, port)
	if err != nil {
		return nil, err
	}
	s := newServer(listener, &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    headerBytesMax,
	})
	go func() { s.ended <- s.http.Serve(netutil.LimitListener(listener, connectionsMax)) }()
	return s, nil
}

// ListenTLS begins to serve a handler at an address and port, over HTTP/1.1 and HTTP/2.
func ListenTLS(address string, port int, handler http.Handler, config *tls.Config) (*Server,
	error) {
	return listenTLS(address, port, handler, config, readHeaderTimeout)
}

func listenTLS(address string, port int, handler http.Handler, config *tls.Config,
	header time.Duration) (*Server, error) {
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
		HTTP2: &http.HTTP2Config{SendPingTimeout: silenceMax, PingTimeout: signTimeout,
			WriteByteTimeout: stuckMax},
	})
	limited := netutil.LimitListener(listener, secureConnectionsMax)
	go func() { s.ended <- s.http.ServeTLS(limited, "", "") }()
	return s, nil
}

func listen(name, address string, port int) (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on the %s port: %w", name, err)
	}
	return listener, nil
}

func newServer(listener net.Listener, s *http.Server) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	s.IdleTimeout = idleTimeout
	s.ErrorLog = log.New(complaints{}, "", 0)
	return &Server{Addr: listener.Addr(), http: s, cancel: cancel, ended: make(chan error, 1)}
}

// complaints are about clients: whoever can reach the port could fill the log with them.
type complaints struct{}

// Write logs a line.
func (complaints) Write(line []byte) (int, error) {
	klog.V(2).InfoS("a client of the HTTP API fails", "problem",
		strings.TrimSpace(string(line)))
	return len(line), nil
}

// Close gives up the requests that wait for the core, lets those that are being answered end,
// for a moment, and stops serving.
func (s *Server) Close() error {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // the error that matters is the first
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", s.Addr, err)
	}
	return nil
}
