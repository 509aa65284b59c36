package host

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"runtime"

	"seedlet.dev/world"
)

// keyMaker makes private keys: of those that take seconds of computation, half as many at a time as
// there are CPUs.
type keyMaker struct{ slots chan struct{} }

func newKeyMaker() keyMaker {
	return keyMaker{slots: make(chan struct{}, max(1, runtime.NumCPU()/2))}
}

// makeKey makes a private key, and a request for a certificate that proves its possession. A key
// that is being made when the deadline passes is made to its end.
func (k keyMaker) makeKey(ctx context.Context, m *world.MakeKey) (*world.KeyMade, error) {
	generate, isKnown := keyTypes[m.Type]
	if !isKnown {
		return nil, world.Errorf(world.KindInvalid, world.CallName(m), "unknown key type %q", m.Type)
	}
	if m.IsSlow() {
		select {
		case k.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-k.slots }()
	}
	key, err := generate()
	if err != nil {
		return nil, fmt.Errorf("making a key of type %s: %w", m.Type, err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("making a request for a key of type %s: %w", m.Type, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key of type %s: %w", m.Type, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return &world.KeyMade{PrivateKey: string(text), Request: request}, nil
}

// keyTypes are the types that the API server accepts (validateProjectionSources in
// pkg/apis/core/validation).
var keyTypes = map[string]func() (crypto.Signer, error){
	"RSA3072":   rsaKey(3072),
	"RSA4096":   rsaKey(4096),
	"ECDSAP256": ecdsaKey(elliptic.P256()),
	"ECDSAP384": ecdsaKey(elliptic.P384()),
	"ECDSAP521": ecdsaKey(elliptic.P521()),
	"ED25519": func() (crypto.Signer, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
}

func rsaKey(bits int) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, bits) }
}

func ecdsaKey(curve elliptic.Curve) func() (crypto.Signer, error) {
	return func() (crypto.Signer, error) { return ecdsa.GenerateKey(curve, rand.Reader) }
}
