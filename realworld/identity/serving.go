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

// ServingOptions say what certificate the node shows to those who call it.
type ServingOptions struct {
	CertFile, KeyFile string // that somebody has provided; empty for none
	CertDir           string // where others are kept
	NodeName          string
	HostName          string    // that a certificate which nobody signs is for
	Request           bool      // have it signed through the API server (serverTLSBootstrap)
	Identity          *Identity // nil: there is no API server
	Warn              func(problem string)
}

// Serving is the certificate that the node shows to those who call it: one that is in files, one
// that it has signed itself, or one that it asks for. Start it and Close it.
type Serving struct {
	source interface {
		now() (*tls.Certificate, error)
	}
	request *request // nil where nobody is asked
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// NewServing reads, or makes, what there can be without asking anybody. Errors name the field.
func NewServing(opts ServingOptions) (*Serving, error) {
	s := &Serving{cancel: func() {}}
	var err error
	switch {
	case opts.Request:
		s.request, err = newRequest(opts)
		s.source = s.request
	case opts.CertFile == "" && opts.KeyFile == "":
		s.source, err = newSelfSigned(opts)
	case opts.CertFile == "":
		return nil, errors.New("tlsCertFile: must be set, as tlsPrivateKeyFile is")
	case opts.KeyFile == "":
		return nil, errors.New("tlsPrivateKeyFile: must be set, as tlsCertFile is")
	default:
		var pair *certfile.Kept[*tls.Certificate]
		if pair, err = certfile.OpenPair(opts.CertFile, opts.KeyFile, opts.Warn); err != nil {
			return nil, fmt.Errorf("tlsCertFile and tlsPrivateKeyFile: %w", err)
		}
		s.source = given{pair}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Certificate is the one for a handshake. It is for tls.Config.GetCertificate.
func (s *Serving) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.source.now()
}

// Start begins to ask for certificates, if that is how the node has its own.
func (s *Serving) Start() {
	if s.request == nil || s.request.opts.Identity == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.work.Go(func() { s.request.ask(ctx) })
}

// Close ends asking. Closing again does nothing.
func (s *Serving) Close() {
	s.cancel()
	s.work.Wait()
}

// given is a certificate that somebody else takes care of.
type given struct {
	pair *certfile.Kept[*tls.Certificate]
}

func (g given) now() (*tls.Certificate, error) { return g.pair.Now(), nil }

func absolute(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--cert-dir: %w", err)
	}
	return path, nil
}
