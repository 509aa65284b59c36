package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"

	"seedlet.dev/realworld/certfile"
)

// reloadingTransport is a transport that uses the authorities that are in the kubeconfig's CA file
// now. Open connections stay open when the file changes; new ones are verified with the new
// content.
type reloadingTransport struct {
	roots *certfile.Reloader[*x509.CertPool] // nil if the authorities are not in a file
	build func(roots *x509.CertPool) *http.Transport

	mu          sync.Mutex
	loadedRoots *x509.CertPool
	transport   *http.Transport
}

// newReloadingTransport returns a transport with the authorities of a file; empty for none.
func (i *Identity) newReloadingTransport(file string, config *tls.Config,
	transport func(*tls.Config) *http.Transport) (*reloadingTransport, error) {
	r := &reloadingTransport{loadedRoots: config.RootCAs, transport: transport(config)}
	if file == "" || config.InsecureSkipVerify {
		return r, nil
	}
	r.build = func(roots *x509.CertPool) *http.Transport {
		now := config.Clone()
		now.RootCAs = roots
		return transport(now)
	}
	var err error
	if r.roots, err = certfile.OpenAuthorities(file, i.opts.Warn); err != nil {
		return nil, fmt.Errorf("certificate-authority: %w", err)
	}
	return r, nil
}

// RoundTrip implements http.RoundTripper.
func (r *reloadingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.current().RoundTrip(request)
}

func (r *reloadingTransport) current() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roots == nil {
		return r.transport
	}
	if roots := r.roots.Current(); !roots.Equal(r.loadedRoots) {
		r.transport.CloseIdleConnections()
		r.loadedRoots, r.transport = roots, r.build(roots)
	}
	return r.transport
}

// CloseIdleConnections implements the interface of http.Client.
func (r *reloadingTransport) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transport.CloseIdleConnections()
}
