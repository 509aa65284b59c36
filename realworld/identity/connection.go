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
	// A connection over which nothing comes any more must be noticed well before the node's
	// lease runs out after 40 s; client-go's own times add up to more
	// (kubernetes/kubernetes#48638).
	silenceDefault     = 10 * time.Second
	signTimeoutDefault = 5 * time.Second
	dialTimeout        = 10 * time.Second
	handshakeTimeout   = 10 * time.Second
	keepAlive          = 30 * time.Second
	idleTimeout        = 90 * time.Second
	idleConnsMax       = 25 // for a host; with HTTP/2 there is one, or one for every 100 watches
	// strangerPause is how long a client that is refused as unknown keeps its connections: the
	// certificate in its files may be another by now, but the server goes by the connection.
	strangerPause = 30 * time.Second
)

// Connection is an HTTP client with TCP connections of its own. Over HTTP/2 there is mostly one.
type Connection struct {
	Client    *http.Client
	owner     *Identity
	dialer    *connrotation.Dialer
	transport *renewed
	stranger  atomic.Bool               // a request was refused, as of somebody unknown
	known     atomic.Pointer[time.Time] // until when connections are kept even so
}

// Connect makes a client for requests in the agent's name. It dials nothing yet.
func (i *Identity) Connect() (*Connection, error) {
	var cert func() (*tls.Certificate, error)
	if i.managed != nil {
		cert = i.certificateNow
	}
	return i.connect(i.config, cert)
}

// connect makes a client with the credentials of a config, and with a certificate from elsewhere
// if there is one.
func (i *Identity) connect(config *rest.Config,
	cert func() (*tls.Certificate, error)) (*Connection, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = i.opts.UserAgent
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	var authorities string // a file; what is in the kubeconfig itself counts more
	if len(tc.TLS.CAData) == 0 {
		authorities = tc.TLS.CAFile
	}
	if cert != nil {
		tc.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: cert}
		tc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &gate{rt, cert} })
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if tc.DialHolder != nil { // of a program that gives credentials, which may change
		dial = tc.DialHolder.Dial
	}
	c := &Connection{owner: i, dialer: connrotation.NewDialer(dial)}
	c.known.Store(&time.Time{})
	c.transport, err = i.newRenewed(authorities, tlsConfig, func(t *tls.Config) *http.Transport {
		return i.newTransport(tc, t, c.dialer.DialContext)
	})
	if err != nil {
		return nil, err
	}
	tc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &strangers{rt, c} })
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
	silence, signTimeout := i.opts.Silence, i.opts.SignTimeout
	if silence == 0 {
		silence = silenceDefault
	}
	if signTimeout == 0 {
		signTimeout = signTimeoutDefault
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
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: signTimeout},
	}
}

// gate keeps requests from dialling while there is no certificate to show.
type gate struct {
	http.RoundTripper
	cert func() (*tls.Certificate, error)
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := g.cert(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a round trip must
		}
		return nil, err
	}
	return g.RoundTripper.RoundTrip(r)
}

// strangers watches out for answers that say that the server does not know who asks.
type strangers struct {
	http.RoundTripper
	conn *Connection
}

// RoundTrip implements http.RoundTripper.
func (s *strangers) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	if s.conn.stranger.Load() && now.After(*s.conn.known.Load()) {
		s.conn.stranger.Store(false)
		until := now.Add(strangerPause)
		s.conn.known.Store(&until)
		s.conn.CloseAll() // not with the answer, whose body would be lost
	}
	answer, err := s.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		s.conn.stranger.Store(true)
	}
	return answer, err
}

// CloseAll closes what is open. What is in flight fails; what comes later dials again.
func (c *Connection) CloseAll() { c.dialer.CloseAll() }

// Close closes what is open, for good. Nothing must be asked any more.
func (c *Connection) Close() {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	c.transport.CloseIdleConnections()
	c.CloseAll()
}
