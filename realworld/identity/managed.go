package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

const (
	// pairName is the prefix of certificate files; the newest is kubelet-client-current.pem.
	pairName = "kubelet-client"
	// The bounds of the exponential backoff between failures.
	retryMin = 2 * time.Second
	retryMax = 32 * time.Second
	// renewalCheckInterval bounds the time between checks whether the next certificate is due: the
	// date may be changed, and the machine may be suspended.
	renewalCheckInterval = time.Hour
)

// manageCertificate prepares the requests for certificates, starting with that of a kubeconfig if
// there is one.
func (i *Identity) manageCertificate(own *kubeconfig) (*Identity, error) {
	certDir, err := filepath.Abs(i.opts.CertDir)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	certFile, keyFile := "", ""
	if own != nil {
		certFile, keyFile = own.config.CertFile, own.config.KeyFile
	}
	files, err := certificate.NewFileStoreWithLogger(klog.Background().V(2), pairName, certDir,
		certDir, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	i.managed = &managedCertificate{files: files, kubeconfigWritten: own != nil}
	if err := i.useStored(own); err != nil {
		i.opts.Warn(err.Error()) // a torn file; the next certificate replaces it
	}
	return i, nil
}

// useStored uses the certificate that is stored, if it is valid, or else that of a kubeconfig, if
// there is one. The error is of a stored certificate that cannot be read.
func (i *Identity) useStored(own *kubeconfig) error {
	stored, err := currentPair(i.managed.files)
	switch {
	case err == nil && time.Now().Before(stored.Leaf.NotAfter):
		i.useCertificate(stored)
		if hasUnfinishedRequest(i.managed.files, stored) {
			i.managed.renewal.due = time.Now()
		}
	case own != nil:
		i.storeEmbedded(own, stored)
		i.useCertificate(own.certificate)
		i.managed.renewal.due = time.Now() // as a kubelet replaces a kubeconfig's at once
	}
	if noPair := (*certificate.NoCertKeyError)(nil); errors.As(err, &noPair) {
		return nil
	}
	return err
}

// readAgain looks for a valid certificate where Load has looked for one, and uses it: after a long
// outage an administrator gives the node another kubeconfig. The server is that of Load until the
// next start.
func (i *Identity) readAgain() (found bool) {
	_ = i.useStored(i.providedKubeconfig()) // what cannot be read is as good as none
	if _, err := i.currentCertificate(); err != nil {
		return false
	}
	i.closeAll()
	return true
}

// providedKubeconfig returns the kubeconfig if it has a valid certificate by now; else nil. It is
// not written then.
func (i *Identity) providedKubeconfig() *kubeconfig {
	own, err := readKubeconfig("--kubeconfig", i.opts.Kubeconfig)
	if err != nil || own.certificate == nil || own.checkExpiry(time.Now()) != nil {
		return nil
	}
	i.managed.kubeconfigWritten = true
	return own
}

// hasUnfinishedRequest reports whether an earlier start has requested the next certificate.
// "kubeadm init" restarts the agent while that requests the successor of the certificate that
// kubeadm has issued for a year.
func hasUnfinishedRequest(files certificate.FileStore, stored *tls.Certificate) bool {
	data, err := readFile(requestKeyPath(files, pairName))
	if err != nil {
		return false
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return false
	}
	requested, is := key.(*ecdsa.PrivateKey)
	return is && !requested.Equal(stored.PrivateKey)
}

// storeEmbedded stores the certificate and key that a kubeconfig embeds, even if the certificate
// has expired; stored is the unusable one that is stored already, or nil. A kubelet does the same
// when it starts (getCurrentCertificateOrBootstrap of client-go): "kubeadm init" looks for the
// file, and has the kubeconfig refer to it. A kubelet does not store a pair that the kubeconfig
// names as files. After an error the agent works with the embedded pair, which it has read.
func (i *Identity) storeEmbedded(own *kubeconfig, stored *tls.Certificate) {
	if len(own.config.CertData) == 0 || len(own.config.KeyData) == 0 {
		return
	}
	if stored != nil && !stored.Leaf.NotAfter.Before(own.certificate.Leaf.NotAfter) {
		// It is the same, which an earlier start has stored, or a newer one, which is valid again once
		// the date of the machine is right.
		return
	}
	if _, err := i.managed.files.Update(own.config.CertData, own.config.KeyData); err != nil {
		i.opts.Warn(fmt.Sprintf("storing the client certificate of %s: %v", own.source, err))
	}
}

// currentPair returns the stored certificate. Its file is read here first, since the library would
// wait for a pipe.
func currentPair(files certificate.FileStore) (*tls.Certificate, error) {
	if _, err := readFile(files.CurrentPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files.Current()
}

// useCertificate makes connections use a certificate. The kubeconfig that refers to the certificate
// is written first: a client that sees the node register may look for the file.
func (i *Identity) useCertificate(cert *tls.Certificate) {
	m := i.managed
	if !m.kubeconfigWritten {
		err := writeKubeconfig(i.opts.Kubeconfig, i.config, m.files.CurrentPath())
		if err != nil {
			i.opts.Warn(err.Error())
		}
		m.kubeconfigWritten = err == nil
	}
	m.renewal.due = renewalTime(cert)
	if !hasSubject(cert.Leaf, nodeSubject(i.opts.NodeName)) {
		m.renewal.due = time.Now() // the node was renamed
	}
	m.current.Store(cert)
}

// currentCertificate returns the certificate for a new connection.
func (i *Identity) currentCertificate() (*tls.Certificate, error) {
	current := i.managed.current.Load()
	switch {
	case current == nil:
		return nil, errors.New("there is no client certificate yet")
	case time.Now().After(current.Leaf.NotAfter):
		return nil, fmt.Errorf("the client certificate has expired at %v",
			current.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return current, nil
}

// requestCertificates requests each certificate before the last one expires; without rotation, one
// certificate if there is none.
func (i *Identity) requestCertificates(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := i.currentCertificate()
		wait := i.managed.renewal.wait()
		switch {
		case err == nil && !i.opts.Rotate:
			return
		case wait <= 0:
			i.requestWithRetry(ctx)
		case err == nil:
			sleep(ctx, min(wait, renewalCheckInterval))
		case !i.readAgain(): // a pause without a valid certificate
			sleep(ctx, min(wait, retryMax))
		}
	}
}

// requestWithRetry requests a certificate until one is there, or is refused, which begins a pause.
func (i *Identity) requestWithRetry(ctx context.Context) {
	lastWarning := ""
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := i.requestCertificate(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		i.renewErrors.Add(1)
		if err.Error() != lastWarning {
			lastWarning = err.Error()
			i.opts.Warn("requesting a client certificate: " + lastWarning)
		}
		if errors.Is(err, errRefused) {
			i.managed.renewal.obtained(true)
			return
		}
		sleep(ctx, wait/2+mathrand.N(wait/2))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// requestCertificate creates a key, has it signed, and uses the certificate. Without a valid one it
// first looks whether another program has provided one, whose successor is requested next.
func (i *Identity) requestCertificate(ctx context.Context) error {
	if _, err := i.currentCertificate(); err != nil && i.readAgain() {
		return nil
	}
	conn, err := i.requestConnection()
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := NewGroups(i.Config(), conn.Client)
	if err != nil {
		return err
	}
	stored, err := signingRequest{
		pairName: pairName,
		template: x509.CertificateRequest{Subject: nodeSubject(i.opts.NodeName)},
		signer:   certificates.KubeAPIServerClientKubeletSignerName,
		usages:   certificate.DefaultKubeletClientGetUsages,
	}.obtain(ctx, client, i.managed.files)
	if err != nil {
		return err
	}
	_ = i.providedKubeconfig() // it may have come while the request awaited its approval
	i.useCertificate(stored)
	i.managed.renewal.obtained(i.managed.renewal.isDue())
	i.closeAll() // a server identifies a client by its connection
	return nil
}

// requestConnection returns a connection for certificate requests: with the current certificate, or
// else with the bootstrap kubeconfig, which is read again because its token may have changed.
func (i *Identity) requestConnection() (*Connection, error) {
	if _, err := i.currentCertificate(); err == nil {
		return i.connect(i.config, i.currentCertificate)
	} else if i.opts.Bootstrap == "" {
		return nil, fmt.Errorf("%w, and there is no bootstrap kubeconfig", err)
	}
	bootstrap, err := readKubeconfig("--bootstrap-kubeconfig", i.opts.Bootstrap)
	if err != nil {
		return nil, err
	}
	return i.connect(bootstrap.config, nil)
}
