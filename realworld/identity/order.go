package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// approvalTimeout is how long a request waits for its approval before another is made.
const approvalTimeout = 15 * time.Minute

// order is what certificate the API server is asked for.
type order struct {
	template x509.CertificateRequest
	signer   string
	usages   func(key any) []certificates.KeyUsage
}

// fill makes a key, has it signed, and keeps the certificate.
func (o order) fill(ctx context.Context, client kubernetes.Interface,
	files certificate.FileStore) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	request, err := cert.MakeCSRFromTemplate(key, &o.template)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, request, "", o.signer, nil,
		o.usages(key), key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, approvalTimeout)
	defer cancel()
	signed, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		return nil, fmt.Errorf("waiting for the approval of %s: %w", name, err)
	}
	kept, err := files.Update(signed,
		pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}))
	if err != nil {
		return nil, fmt.Errorf("keeping the certificate of %s: %w", name, err)
	}
	return kept, nil
}

// nodeSubject is what a node is called in its certificates.
func nodeSubject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
}

// renewal is when the next certificate is to be asked for. All nodes may have been made at one
// time, and should not all ask at one time.
func renewal(c *tls.Certificate) time.Time {
	lifetime := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)
	part := 0.7 + 0.2*mathrand.Float64()
	return c.Leaf.NotBefore.Add(time.Duration(part * float64(lifetime)))
}
