package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

const (
	// A dead connection must be detected well before the node's lease expires after 40 s.
	// client-go's own timeouts add up to more (kubernetes/kubernetes#48638).
	sendPingTimeoutDefault = 10 * time.Second
	pingTimeoutDefault     = 5 * time.Second
	dialTimeout            = 10 * time.Second
	handshakeTimeout       = 10 * time.Second
	keepAlive              = 30 * time.Second
	idleTimeout            = 90 * time.Second
	idleConnsMax           = 25 // per host; HTTP/2 needs one, or one for every 100 watches
	// unauthorizedCloseInterval is the minimum time between closing the connections of a client
	// that gets 401: its certificate file may have changed, but the server identifies a client by
	// its connection.
	unauthorizedCloseInterval = 30 * time.Second
)

// Connection is an HTTP client with TCP connections of its own; with HTTP/2 mostly a single one.
type Connection struct {
	Client       *http.Client
	owner        *Identity
	dialer       *connrotation.Dialer
	transport    *reloadingTransport
	unauthorized atomic.Bool               // a response was a 401
	keepUntil    atomic.Pointer[time.Time] // no close before this time
}

// Connect returns a client for requests with the agent's identity. It does not dial yet.
func (i *Identity) Connect() (*Connection, error) {
	var cert func() (*tls.Certificate, error)
	switch {
	case i.managed != nil:
		cert = i.currentCertificate
	case i.files != nil:
		cert = i.files.certificate
	}
	return i.connect(i.config, cert)
}

// connect returns a client with the credentials of a config, and with a certificate from cert
// unless that is nil.
func (i *Identity) connect(config *rest.Config,
	cert func() (*tls.Certificate, error)) (*Connection, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = i.opts.UserAgent
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	var authorities string // empty if the kubeconfig embeds the authority, which has priority
	if len(tc.TLS.CAData) == 0 {
		authorities = tc.TLS.CAFile
	}
	if cert != nil {
		tc.TLS.CertFile, tc.TLS.KeyFile = "", "" // client-go would prefer them to the function
		tc.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: cert}
		tc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &certificateGate{rt, cert} })
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if tc.DialHolder != nil { // of a credential plugin, whose credentials may change
		dial = tc.DialHolder.Dial
	}
	c := &Connection{owner: i, dialer: connrotation.NewDialer(dial)}
	c.keepUntil.Store(&time.Time{})
	c.transport, err = i.newReloadingTransport(authorities, tlsConfig,
		func(t *tls.Config) *http.Transport {
			return i.newTransport(tc, t, c.dialer.DialContext)
		})
	if err != nil {
		return nil, err
	}
	tc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &unauthorizedCloser{rt, c} })
	if i.files != nil {
		tc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &changeCloser{rt, i} })
	}
	if i.opts.Trace != nil {
		tc.Wrap(i.opts.Trace)
	}
	wrapped, err := transport.HTTPWrappersForConfig(tc, c.transport)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	c.Client = &http.Client{Transport: wrapped}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns[c] = true
	return c, nil
}

func (i *Identity) newTransport(tc *transport.Config, tlsConfig *tls.Config,
	dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	proxy := http.ProxyFromEnvironment
	if tc.Proxy != nil {
		proxy = tc.Proxy
	}
	sendPingTimeout, pingTimeout := i.opts.SendPingTimeout, i.opts.PingTimeout
	if sendPingTimeout == 0 {
		sendPingTimeout = sendPingTimeoutDefault
	}
	if pingTimeout == 0 {
		pingTimeout = pingTimeoutDefault
	}
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: idleConnsMax,
		DisableCompression:  tc.DisableCompression,
		ForceAttemptHTTP2:   true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: sendPingTimeout, PingTimeout: pingTimeout},
	}
}

// certificateGate fails requests while there is no valid certificate, before a connection is
// dialed.
type certificateGate struct {
	http.RoundTripper
	cert func() (*tls.Certificate, error)
}

// RoundTrip implements http.RoundTripper.
func (g *certificateGate) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := g.cert(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // required of a RoundTripper
		}
		return nil, err
	}
	return g.RoundTripper.RoundTrip(r)
}

// unauthorizedCloser closes the connections after a 401, so that the next requests dial new ones.
type unauthorizedCloser struct {
	http.RoundTripper
	conn *Connection
}

// RoundTrip implements http.RoundTripper.
func (s *unauthorizedCloser) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	if s.conn.unauthorized.Load() && now.After(*s.conn.keepUntil.Load()) {
		s.conn.unauthorized.Store(false)
		until := now.Add(unauthorizedCloseInterval)
		s.conn.keepUntil.Store(&until)
		s.conn.CloseAll() // not at the response, whose body would be lost
	}
	response, err := s.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		s.conn.unauthorized.Store(true)
	}
	return response, err
}

// CloseAll closes the open connections. Requests in flight fail; later requests dial again.
func (c *Connection) CloseAll() { c.dialer.CloseAll() }

// Close closes the open connections. No request may be sent after it.
func (c *Connection) Close() {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	c.transport.CloseIdleConnections()
	c.CloseAll()
}
