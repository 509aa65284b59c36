package containerapi

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
)

// backendTimeout bounds how long the runtime's streaming server may take to accept a connection,
// and then to send the first byte.
const backendTimeout = 30 * time.Second

// proxyTo returns a handler that proxies a connection to the runtime's streaming server. It removes
// the client's credentials from the request: the runtime's URL is the key to the stream. A token
// that authenticated the client is gone already, but not one that came with a certificate.
func proxyTo(location *url.URL, r *http.Request) http.Handler {
	r.Header.Del("Authorization")
	return proxy.NewUpgradeAwareHandler(location, backendTransport(r.Context()), false, true,
		errorResponder{})
}

// backendTransport connects with the runtime's streaming server. Its connections end with a
// context; no proxy of the environment is asked, since the runtime is on this node.
func backendTransport(ctx context.Context) *http.Transport {
	dial := func(dialCtx context.Context, network, address string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: backendTimeout}
		conn, err := dialer.DialContext(dialCtx, network, address)
		if err != nil {
			return nil, err
		}
		return newBackendConn(ctx, conn), nil
	}
	return &http.Transport{DialContext: dial}
}

type errorResponder struct{}

// Error responds to a client whose connection cannot be proxied.
func (errorResponder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// backendConn is a connection to the runtime's streaming server. It is closed when the request is
// canceled, and when the first byte takes too long.
type backendConn struct {
	net.Conn
	stopCloseOnCancel func() bool // undoes the context.AfterFunc that closes Conn
	firstByte         sync.Once
}

func newBackendConn(ctx context.Context, conn net.Conn) *backendConn {
	_ = conn.SetReadDeadline(time.Now().Add(backendTimeout)) // TCP connections support deadlines
	b := &backendConn{Conn: conn}
	b.stopCloseOnCancel = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return b
}

func (b *backendConn) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if n > 0 {
		b.firstByte.Do(func() { _ = b.Conn.SetReadDeadline(time.Time{}) })
	}
	return n, err
}

func (b *backendConn) Close() error {
	b.stopCloseOnCancel()
	return b.Conn.Close()
}

// serveStream serves a stream until no data has moved in either direction for the idle timeout, or
// its client is gone. newHandler gets the request whose context is done then: net/http does not
// notice it, since the connection of a stream is hijacked.
func (a *API) serveStream(w http.ResponseWriter, r *http.Request,
	newHandler func(*http.Request) http.Handler) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	newHandler(r).ServeHTTP(&idleTimeoutWriter{w, a.opts.IdleTimeout, cancel}, r)
}

// idleTimeoutWriter is a response writer whose hijacked connection is closed if no data has moved
// in either direction for the idle timeout. cancel is called when nothing more can be read from it.
type idleTimeoutWriter struct {
	http.ResponseWriter
	timeout time.Duration
	cancel  context.CancelFunc
}

// Unwrap implements the interface of http.ResponseController.
func (p *idleTimeoutWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Hijack implements http.Hijacker.
func (p *idleTimeoutWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	idleConn := &idleTimeoutConn{Conn: conn, timeout: p.timeout, cancel: p.cancel}
	idleConn.timer = time.AfterFunc(p.timeout, func() { _ = conn.Close() })
	return idleConn, buffered, nil
}

// idleTimeoutConn is closed by its timer if no data has moved for the timeout.
type idleTimeoutConn struct {
	net.Conn
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelFunc
}

func (c *idleTimeoutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.timer.Reset(c.timeout)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
	return n, err
}

func (c *idleTimeoutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.timer.Reset(c.timeout)
	}
	return n, err
}

func (c *idleTimeoutConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
