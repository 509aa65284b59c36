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
	"seedlet.dev/realworld/replacefile"
)

// ownIssuer matches the issuer of the certificates that a node signs itself. A certificate of
// another issuer in their place is never replaced.
var ownIssuer = regexp.MustCompile(`-ca@[0-9]+$`)

// selfSigned is a self-signed certificate in the files of the kubelet's. It is used as long as it
// is valid.
type selfSigned struct {
	opts      ServingOptions
	cert, key string // paths

	mu       sync.Mutex
	pair     *certfile.Reloader[*tls.Certificate]
	fallback *tls.Certificate // used instead of the files if those could not be written
}

func newSelfSigned(opts ServingOptions) (*selfSigned, error) {
	dir, err := absoluteDir(opts.CertDir)
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

// load reads the files, or creates them if they are missing or must be replaced.
func (s *selfSigned) load() error {
	pair, err := certfile.OpenPair(s.cert, s.key, s.opts.Warn)
	if err == nil && s.isUsable(pair.Current()) {
		s.pair = pair
		return nil
	}
	if err != nil && !s.canReplace() {
		return err
	}
	generated, err := s.generate()
	if err != nil {
		return err
	}
	if err := s.write(generated); err != nil {
		return err
	}
	s.pair, err = certfile.OpenPair(s.cert, s.key, s.opts.Warn)
	return err
}

// certificate returns the current certificate, or generates another one if it is no longer valid.
func (s *selfSigned) certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.pair.Current(); s.isUsable(now) {
		return now, nil
	}
	if s.fallback != nil && s.isUsable(s.fallback) {
		return s.fallback, nil
	}
	generated, err := s.generate()
	if err != nil {
		return nil, err
	}
	if err := s.write(generated); err != nil {
		s.opts.Warn(fmt.Sprintf("--cert-dir: %v; the new serving certificate lasts until the next "+
			"start only", err))
	}
	s.fallback = &generated.pair
	return s.fallback, nil
}

func (s *selfSigned) isUsable(c *tls.Certificate) bool {
	if !ownIssuer.MatchString(c.Leaf.Issuer.CommonName) {
		return true // not checked: an administrator provided it
	}
	return time.Now().Before(c.Leaf.NotAfter) && c.Leaf.VerifyHostname(s.opts.HostName) == nil
}

// canReplace reports whether files without a valid pair are the node's own, or missing.
func (s *selfSigned) canReplace() bool {
	data, err := readFile(s.cert)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	found, parseErr := cert.ParseCertsPEM(data)
	return err == nil && parseErr == nil && ownIssuer.MatchString(found[0].Issuer.CommonName)
}

// generated is a new certificate and its key.
type generated struct {
	cert, key []byte // PEM
	pair      tls.Certificate
}

func (s *selfSigned) generate() (m generated, err error) {
	m.cert, m.key, err = cert.GenerateSelfSignedCertKey(s.opts.HostName, nil, nil)
	if err == nil {
		m.pair, err = tls.X509KeyPair(m.cert, m.key)
	}
	if err != nil {
		return m, fmt.Errorf("making a serving certificate: %w", err)
	}
	return m, nil
}

// write writes the key first: after a kill in between, the files do not match and are generated
// again. Every user may read the certificate, as a kubelet's: monitoring looks at its dates.
func (s *selfSigned) write(m generated) error {
	if err := replacefile.Write(s.key, m.key, dirMode); err != nil {
		return err
	}
	return replacefile.WritePublic(s.cert, m.cert, dirMode)
}
