package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLifetime is the validity of certificates: longer than any test, and no longer.
const certificateLifetime = 7 * 24 * time.Hour

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func (a *authority) pem() []byte { return certificatePEM(a.certificate.Raw) }

// pair is a certificate with its private key, both in PEM.
type pair struct{ certificate, key []byte }

// write writes the pair to NAME.crt and NAME.key in a directory.
func (p pair) write(dir, name string) error {
	if err := writeSecret(filepath.Join(dir, name+".crt"), p.certificate); err != nil {
		return err
	}
	return writeSecret(filepath.Join(dir, name+".key"), p.key)
}

// newAuthority returns a self-signed authority.
func newAuthority(name string) (*authority, pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, pair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, pair{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a := &authority{template, key}
	p, err := a.sign(template, key)
	if err != nil {
		return nil, pair{}, err
	}
	block, _ := pem.Decode(p.certificate)
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, pair{}, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return a, p, nil
}

// client issues a certificate for a user of the API server: the common name is the user's name,
// each organization is a group.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: groups}, nil, nil)
}

// issue issues a certificate for a client, and for a server with the given names if there are any.
func (a *authority) issue(subject pkix.Name, names []string, addresses []net.IP) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template, err := newTemplate(subject)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(names)+len(addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames, template.IPAddresses = names, addresses
	return a.sign(template, key)
}

func (a *authority) sign(template *x509.Certificate, key crypto.Signer) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w",
			template.Subject.CommonName, err)
	}
	text, err := keyPEM(key)
	return pair{certificatePEM(der), text}, err
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// newTemplate returns the common fields of all certificates. They are valid from an hour ago,
// because clocks differ.
func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLifetime),
	}, nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// newKeyPair returns a key with its public half, for signing and verifying service account tokens.
func newKeyPair() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = keyPEM(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func writeSecret(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
