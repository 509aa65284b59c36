package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// errRefused is the error of a signed certificate that is not used. The next request is sent after
// the pause of a renewal: what a signer does wrong it does again.
var errRefused = errors.New("refused")

// approvalTimeout is how long a request waits for its approval before another one is sent.
const approvalTimeout = 15 * time.Minute

// signingRequest describes a certificate that the API server is requested to sign.
type signingRequest struct {
	pairName string // the prefix of its files
	template x509.CertificateRequest
	signer   string
	usages   func(key any) []certificates.KeyUsage
}

// obtain creates a key, has it signed, and stores the certificate. The key is kept in a file until
// the certificate is stored, and the name of the request follows from it: an agent that is started
// again waits for the same request, however often that happens. A request that was denied, or led
// to the certificate of another, is given up with its key.
func (o signingRequest) obtain(ctx context.Context, client kubernetes.Interface,
	files certificate.FileStore) (*tls.Certificate, error) {
	keyFile := requestKeyPath(files, o.pairName)
	keyPEM, key, err := loadOrMakeKey(keyFile)
	if err == nil && isKeyOfCurrent(key, files) { // it was to be removed when an earlier agent ended
		if err = os.Remove(keyFile); err == nil {
			keyPEM, key, err = loadOrMakeKey(keyFile)
		}
	}
	if err != nil {
		return nil, err
	}
	request, err := cert.MakeCSRFromTemplate(key, &o.template)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, request, o.name(key), o.signer,
		nil, o.usages(key), key)
	if err != nil {
		if strings.Contains(err.Error(), "not compatible") { // such as one whose certificate has expired
			err = errors.Join(err, os.Remove(keyFile))
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, approvalTimeout)
	defer cancel()
	signed, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		err = fmt.Errorf("waiting for the approval of %s: %w", name, err)
		if ctx.Err() == nil { // it was denied, or it failed
			err = errors.Join(err, os.Remove(keyFile))
		}
		return nil, err
	}
	if err := o.check(signed, key); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: the certificate of %s: %w", errRefused, name, err),
			os.Remove(keyFile))
	}
	stored, err := files.Update(signed, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("keeping the certificate of %s: %w", name, err)
	}
	_ = os.Remove(keyFile) // otherwise the next certificate has the same key
	return stored, nil
}

// check returns an error if a signed certificate is not for the key of the request, or if it is a
// client certificate of another subject: the API server would not know the node by it. Clients
// judge a serving certificate by its other names, and it is of use without some of them.
func (o signingRequest) check(signed []byte, key *ecdsa.PrivateKey) error {
	chain, err := cert.ParseCertsPEM(signed)
	switch {
	case err != nil:
		return err
	case !key.PublicKey.Equal(chain[0].PublicKey):
		return errors.New("it is for another key")
	case o.signer == certificates.KubeAPIServerClientKubeletSignerName &&
		!hasSubject(chain[0], o.template.Subject):
		return fmt.Errorf("it is for %s, want %s", chain[0].Subject, o.template.Subject)
	}
	return nil
}

// requestKeyPath returns the file of the key for which a certificate is requested.
func requestKeyPath(files certificate.FileStore, pairName string) string {
	return filepath.Join(filepath.Dir(files.CurrentPath()), pairName+".key.tmp")
}

// isKeyOfCurrent reports whether a key is that of the stored certificate. Its request may still
// exist and lead to the same certificate, and the next certificate needs another key anyway.
func isKeyOfCurrent(key *ecdsa.PrivateKey, files certificate.FileStore) bool {
	current, err := files.Current()
	return err == nil && key.Equal(current.PrivateKey)
}

// loadOrMakeKey returns the key of a file. If there is none, or the file is torn, it makes one.
func loadOrMakeKey(file string) ([]byte, *ecdsa.PrivateKey, error) {
	data, _, err := keyutil.LoadOrGenerateKeyFile(file)
	if err != nil {
		_ = os.Remove(file) // if that fails, so does the next attempt
		if data, _, err = keyutil.LoadOrGenerateKeyFile(file); err != nil {
			return nil, nil, err
		}
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s: want an ECDSA key, have %T", file, parsed)
	}
	return data, key, nil
}

// name returns the name of the request for a key. It is another one if anything differs that the
// certificate is for.
func (o signingRequest) name(key *ecdsa.PrivateKey) string {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic("identity: a key cannot be encoded: " + err.Error())
	}
	digest := sha256.New()
	fmt.Fprintf(digest, "%x %s %s %q %q", public, o.signer, o.template.Subject, o.template.DNSNames,
		o.template.IPAddresses)
	return "node-csr-" + hex.EncodeToString(digest.Sum(nil))
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
