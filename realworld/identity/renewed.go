package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"

	"seedlet.dev/realworld/certfile"
)

// renewed is a transport by the authorities that a kubeconfig's file holds now. What is open stays
// open when these change; what is dialled then is judged by the new ones.
type renewed struct {
	roots *certfile.Kept[*x509.CertPool] // nil: they are not in a file
	make  func(roots *x509.CertPool) *http.Transport

	mu   sync.Mutex
	by   *x509.CertPool
	made *http.Transport
}

// newRenewed makes a transport, and others with the authorities of a file, empty for none.
func (i *Identity) newRenewed(file string, config *tls.Config,
	transport func(*tls.Config) *http.Transport) (*renewed, error) {
	r := &renewed{by: config.RootCAs, made: transport(config)}
	if file == "" || config.InsecureSkipVerify {
		return r, nil
	}
	r.make = func(roots *x509.CertPool) *http.Transport {
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
func (r *renewed) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.now().RoundTrip(request)
}

func (r *renewed) now() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roots == nil {
		return r.made
	}
	if roots := r.roots.Now(); !roots.Equal(r.by) {
		r.made.CloseIdleConnections()
		r.by, r.made = roots, r.make(roots)
	}
	return r.made
}

// CloseIdleConnections closes what nothing is asked over.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made.CloseIdleConnections()
}
