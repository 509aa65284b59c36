package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"seedlet.dev/realworld/certfile"
)

// ServingOptions configure the node's serving certificate.
type ServingOptions struct {
	CertFile, KeyFile string // provided by an administrator; empty for none
	CertDir           string // where other certificates are stored
	NodeName          string
	HostName          string    // the host name of a self-signed certificate
	Request           bool      // have it signed through the API server (serverTLSBootstrap)
	Identity          *Identity // nil without an API server
	Warn              func(problem string)
}

// Serving has the node's serving certificate: from files, self-signed, or signed through the API
// server. Start it and Close it.
type Serving struct {
	source interface {
		certificate() (*tls.Certificate, error)
	}
	request    *requestedCertificate // nil unless the certificate is requested
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
}

// NewServing reads or creates the certificate as far as possible without the API server. Its errors
// name the field.
func NewServing(opts ServingOptions) (*Serving, error) {
	s := &Serving{cancel: func() {}}
	var err error
	switch {
	case opts.Request:
		s.request, err = newRequestedCertificate(opts)
		s.source = s.request
	case opts.CertFile == "" && opts.KeyFile == "":
		s.source, err = newSelfSigned(opts)
	case opts.CertFile == "":
		return nil, errors.New("tlsCertFile: must be set, as tlsPrivateKeyFile is")
	case opts.KeyFile == "":
		return nil, errors.New("tlsPrivateKeyFile: must be set, as tlsCertFile is")
	default:
		var pair *certfile.Reloader[*tls.Certificate]
		if pair, err = certfile.OpenPair(opts.CertFile, opts.KeyFile, opts.Warn); err != nil {
			return nil, fmt.Errorf("tlsCertFile and tlsPrivateKeyFile: %w", err)
		}
		s.source = fileCertificate{pair}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Certificate returns the certificate for a handshake. It is a tls.Config.GetCertificate.
func (s *Serving) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.source.certificate()
}

// Start starts requesting certificates, if they are signed through the API server.
func (s *Serving) Start() {
	if s.request == nil || s.request.opts.Identity == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.goroutines.Go(func() { s.request.run(ctx) })
}

// Close ends the requests for certificates. A second Close does nothing.
func (s *Serving) Close() {
	s.cancel()
	s.goroutines.Wait()
}

// fileCertificate is a certificate in files that an administrator provides.
type fileCertificate struct {
	pair *certfile.Reloader[*tls.Certificate]
}

func (g fileCertificate) certificate() (*tls.Certificate, error) { return g.pair.Current(), nil }

func absoluteDir(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--cert-dir: %w", err)
	}
	return path, nil
}
