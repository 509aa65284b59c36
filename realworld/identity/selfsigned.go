package identity

import (
	"crypto/tls"
	"fmt"
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

	mu   sync.Mutex
	pair *certfile.Kept[*tls.Certificate] // nil until there is one
}

func newSelfSigned(opts ServingOptions) (*selfSigned, error) {
	dir, err := absolute(opts.CertDir)
	if err != nil {
		return nil, err
	}
	s := &selfSigned{opts: opts, cert: filepath.Join(dir, "kubelet.crt"),
		key: filepath.Join(dir, "kubelet.key")}
	_, err = s.now()
	return s, err
}

// now makes another certificate if there is none, or none that can be used any more.
func (s *selfSigned) now() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair == nil {
		pair, err := certfile.OpenPair(s.cert, s.key, s.opts.Warn)
		if err == nil {
			s.pair = pair
		}
	}
	if s.pair != nil {
		if now := s.pair.Now(); s.good(now) {
			return now, nil
		}
	}
	return s.make()
}

func (s *selfSigned) good(c *tls.Certificate) bool {
	if !ownIssuer.MatchString(c.Leaf.Issuer.CommonName) {
		return true // or not, but it is not ours
	}
	return time.Now().Before(c.Leaf.NotAfter) && c.Leaf.VerifyHostname(s.opts.HostName) == nil
}

// make writes the key first: whoever is killed in between finds halves that do not fit, and makes
// both anew.
func (s *selfSigned) make() (*tls.Certificate, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(s.opts.HostName, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	if err := replaceFile(s.key, keyPEM); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	if err := replaceFile(s.cert, certPEM); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	if s.pair, err = certfile.OpenPair(s.cert, s.key, s.opts.Warn); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return s.pair.Now(), nil
}
