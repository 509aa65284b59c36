package host

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// keyType names the type of a public key as the API does.
func keyType(public crypto.PublicKey) string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA%d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return fmt.Sprintf("ECDSAP%d", k.Curve.Params().BitSize)
	case ed25519.PublicKey:
		return "ED25519"
	}
	return fmt.Sprintf("%T", public)
}

// A key has its type, its request proves its possession, and no two keys are the same.
func TestMakeKey(t *testing.T) {
	h := newHarness(t, t.TempDir())
	seen := map[string]bool{}
	for _, want := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521",
		"ED25519", "ED25519"} {
		made := h.must(&world.MakeKey{Type: want}).(*world.KeyMade)
		request, err := x509.ParseCertificateRequest(made.Request)
		if err != nil || request.CheckSignature() != nil || keyType(request.PublicKey) != want {
			t.Fatalf("%s: the request is for a key of type %s: %v", want, keyType(request.PublicKey), err)
		}
		if len(request.Extensions) > 0 || request.Subject.String() != "" {
			t.Errorf("%s: the request asks for more: %v %s", want, request.Extensions, request.Subject)
		}
		block, rest := pem.Decode([]byte(made.PrivateKey))
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Fatalf("%s: the key is no PEM block", want)
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		public := key.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool })
		if !public.Equal(request.PublicKey) {
			t.Errorf("%s: the request is for another key", want)
		}
		if seen[made.PrivateKey] {
			t.Errorf("%s: the same key again", want)
		}
		seen[made.PrivateKey] = true
	}
}

func TestUnknownKeyType(t *testing.T) {
	h := newHarness(t, t.TempDir())
	if _, err := h.try(&world.MakeKey{Type: "RSA1024"}, porttest.Patience); !err.Has(
		world.KindInvalid) {
		t.Errorf("%v", err)
	}
}
