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

// approvalTimeout is how long a request waits for its approval before another one is sent.
const approvalTimeout = 15 * time.Minute

// signingRequest describes a certificate that the API server is requested to sign.
type signingRequest struct {
	template x509.CertificateRequest
	signer   string
	usages   func(key any) []certificates.KeyUsage
}

// obtain creates a key, has it signed, and stores the certificate.
func (o signingRequest) obtain(ctx context.Context, client kubernetes.Interface,
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
	stored, err := files.Update(signed,
		pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}))
	if err != nil {
		return nil, fmt.Errorf("keeping the certificate of %s: %w", name, err)
	}
	return stored, nil
}

// nodeSubject returns the subject of a node's certificates.
func nodeSubject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
}

// renewalTime returns when the next certificate must be requested. It is random, so that nodes
// which were created at the same time do not send their requests at the same time.
func renewalTime(c *tls.Certificate) time.Time {
	lifetime := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)
	part := 0.7 + 0.2*mathrand.Float64()
	return c.Leaf.NotBefore.Add(time.Duration(part * float64(lifetime)))
}
