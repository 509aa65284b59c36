package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"

	"seedlet.dev/realworld/certfile"
)

// ownIssuer is who signs the certificates that a node makes for itself. Whoever puts another one
// in their place keeps it.
var ownIssuer = regexp.MustCompile(`-ca@[0-9]+$`)

// selfSigned is a certificate that nobody else signs, in the files where the kubelet has its own.
// It is kept as long as it is good.
type selfSigned struct {
	opts      ServingOptions
	cert, key string // paths

	mu      sync.Mutex
	pair    *certfile.Kept[*tls.Certificate]
	instead *tls.Certificate // of what is in the files, if another could not be written
}

func newSelfSigned(opts ServingOptions) (*selfSigned, error) {
	dir, err := absolute(opts.CertDir)
	if err != nil {
		return nil, err
	}
	s := &selfSigned{opts: opts, cert: filepath.Join(dir, "kubelet.crt"),
		key: filepath.Join(dir, "kubelet.key")}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return s, nil
}

// load reads the files, or makes them if that is what they want.
func (s *selfSigned) load() error {
	pair, err := certfile.OpenPair(s.cert, s.key, s.opts.Warn)
	if err == nil && s.good(pair.Now()) {
		s.pair = pair
		return nil
	}
	if err != nil && !s.mayReplace() {
		return err
	}
	made, err := s.make()
	if err != nil {
		return err
	}
	if err := s.write(made); err != nil {
		return err
	}
	s.pair, err = certfile.OpenPair(s.cert, s.key, s.opts.Warn)
	return err
}

// now makes another certificate if the one there is cannot be used any more.
func (s *selfSigned) now() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.pair.Now(); s.good(now) {
		return now, nil
	}
	if s.instead != nil && s.good(s.instead) {
		return s.instead, nil
	}
	made, err := s.make()
	if err != nil {
		return nil, err
	}
	if err := s.write(made); err != nil {
		s.opts.Warn(fmt.Sprintf("--cert-dir: %v; the new serving certificate lasts until the next "+
			"start only", err))
	}
	s.instead = &made.pair
	return s.instead, nil
}

func (s *selfSigned) good(c *tls.Certificate) bool {
	if !ownIssuer.MatchString(c.Leaf.Issuer.CommonName) {
		return true // or not, but it is not ours
	}
	return time.Now().Before(c.Leaf.NotAfter) && c.Leaf.VerifyHostname(s.opts.HostName) == nil
}

// mayReplace says whether files that make no pair are the node's own, or not there.
func (s *selfSigned) mayReplace() bool {
	found, err := cert.CertsFromFile(s.cert)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && ownIssuer.MatchString(found[0].Issuer.CommonName)
}

// made is a new certificate and its key.
type made struct {
	cert, key []byte // PEM
	pair      tls.Certificate
}

func (s *selfSigned) make() (m made, err error) {
	m.cert, m.key, err = cert.GenerateSelfSignedCertKey(s.opts.HostName, nil, nil)
	if err == nil {
		m.pair, err = tls.X509KeyPair(m.cert, m.key)
	}
	if err != nil {
		return m, fmt.Errorf("making a serving certificate: %w", err)
	}
	return m, nil
}

// write writes the key first: whoever is killed in between finds halves that do not fit, and makes
// both anew.
func (s *selfSigned) write(m made) error {
	if err := replaceFile(s.key, m.key); err != nil {
		return err
	}
	return replaceFile(s.cert, m.cert)
}
