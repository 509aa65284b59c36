package containerapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
)

// backendMax is how long the runtime's streaming server has to accept a connection and to answer
// with the first byte.
const backendMax = 30 * time.Second

// proxy hands a connection on to the runtime's streaming server.
func (a *API) proxy(r *http.Request, location *url.URL) http.Handler {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: backendMax}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newBackend(r.Context(), conn), nil
	}
	transport := &http.Transport{DialContext: dial}
	return proxy.NewUpgradeAwareHandler(location, transport, false, true, responder{})
}

type responder struct{}

// Error answers a client whose connection cannot be handed on.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// backend is a connection to the runtime's streaming server. It is closed when the request is
// given up, and when no first answer comes.
type backend struct {
	net.Conn
	release  func() bool
	answered sync.Once
}

func newBackend(ctx context.Context, conn net.Conn) *backend {
	_ = conn.SetReadDeadline(time.Now().Add(backendMax)) // TCP has deadlines
	b := &backend{Conn: conn}
	b.release = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return b
}

func (b *backend) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if n > 0 {
		b.answered.Do(func() { _ = b.Conn.SetReadDeadline(time.Time{}) })
	}
	return n, err
}

func (b *backend) Close() error {
	b.release()
	return b.Conn.Close()
}

// patient is a response writer whose connection, once it has been taken over, is closed if nothing
// has moved in either direction for a time.
type patient struct {
	http.ResponseWriter
	patience time.Duration
}

func newPatient(w http.ResponseWriter, patience time.Duration) *patient {
	return &patient{w, patience}
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Hijack implements http.Hijacker.
func (p *patient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	quiet := &quietConn{Conn: conn, patience: p.patience}
	quiet.timer = time.AfterFunc(p.patience, func() { _ = conn.Close() })
	return quiet, buffered, nil
}

// quietConn is closed by its timer when it has been quiet for too long.
type quietConn struct {
	net.Conn
	patience time.Duration
	timer    *time.Timer
}

func (c *quietConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.timer.Reset(c.patience)
	}
	return n, err
}

func (c *quietConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.timer.Reset(c.patience)
	}
	return n, err
}

func (c *quietConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
