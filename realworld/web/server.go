package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds on what one client, or many, can hold of a server.
const (
	connectionsMax    = 256
	headerBytesMax    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	shutdownTimeout   = 2 * time.Second
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
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on the %s port: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		Addr: listener.Addr(),
		http: &http.Server{
			BaseContext:       func(net.Listener) context.Context { return ctx },
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    headerBytesMax,
		},
		cancel: cancel,
		ended:  make(chan error, 1),
	}
	go func() { s.ended <- s.http.Serve(netutil.LimitListener(listener, connectionsMax)) }()
	return s, nil
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
