package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

const (
	// pairName is what files of certificates begin with; the newest is
	// kubelet-client-current.pem.
	pairName = "kubelet-client"
	// Between failures, doubling.
	retryMin = 2 * time.Second
	retryMax = 32 * time.Second
	// lookMax is how long nobody looks whether it is time for the next certificate: the date may
	// be set, and the machine may sleep.
	lookMax = time.Hour
)

// manage prepares for asking: beginning with the certificate of a kubeconfig, or without one.
func (i *Identity) manage(own *kubeconfig) (*Identity, error) {
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
	i.managed = &managed{files: files, written: own != nil}
	kept, err := files.Current()
	var none *certificate.NoCertKeyError
	switch {
	case err == nil && time.Now().Before(kept.Leaf.NotAfter):
		i.take(kept)
	case err != nil && !errors.As(err, &none):
		i.opts.Warn(err.Error()) // a torn file: the next certificate replaces it
		fallthrough
	default:
		if own != nil {
			i.take(own.certificate)
			i.managed.due = time.Now() // so that it is kept where it can be rotated
		}
	}
	return i, nil
}

// take lets connections use a certificate. The kubeconfig that names it is written before: whoever
// sees the node come may look for it.
func (i *Identity) take(taken *tls.Certificate) {
	m := i.managed
	if !m.written {
		err := writeKubeconfig(i.opts.Kubeconfig, i.config, m.files.CurrentPath())
		if err != nil {
			i.opts.Warn(err.Error())
		}
		m.written = err == nil
	}
	m.due = renewal(taken)
	if taken.Leaf.Subject.CommonName != nodeSubject(i.opts.NodeName).CommonName {
		m.due = time.Now() // the node has been renamed
	}
	m.current.Store(taken)
}

// certificateNow is the certificate for a connection that is being made.
func (i *Identity) certificateNow() (*tls.Certificate, error) {
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

// ask asks for one certificate after the other, each in time; or, if they are not rotated, for
// one if there is none.
func (i *Identity) ask(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := i.certificateNow()
		if err == nil && !i.opts.Rotate {
			return
		}
		left := time.Until(i.managed.due)
		if err != nil || left <= 0 {
			i.askUntilGiven(ctx)
			continue
		}
		pause(ctx, min(left, lookMax))
	}
}

func (i *Identity) askUntilGiven(ctx context.Context) {
	warned := ""
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := i.askOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != warned {
			warned = err.Error()
			i.opts.Warn("asking for a client certificate: " + warned)
		}
		pause(ctx, wait/2+mathrand.N(wait/2))
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// askOnce makes a key, has it signed, and takes the certificate.
func (i *Identity) askOnce(ctx context.Context) error {
	conn, err := i.askingConnection()
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := NewGroups(i.Config(), conn.Client)
	if err != nil {
		return err
	}
	kept, err := order{
		template: x509.CertificateRequest{Subject: nodeSubject(i.opts.NodeName)},
		signer:   certificates.KubeAPIServerClientKubeletSignerName,
		usages:   certificate.DefaultKubeletClientGetUsages,
	}.fill(ctx, client, i.managed.files)
	if err != nil {
		return err
	}
	i.take(kept)
	i.closeAll() // a server knows a client by its connection
	return nil
}

// askingConnection is a connection to ask with: in the name of the certificate that there is, or
// else in that of the bootstrap kubeconfig, which is read again, as it may have a new token.
func (i *Identity) askingConnection() (*Connection, error) {
	if _, err := i.certificateNow(); err == nil {
		return i.connect(i.config, i.certificateNow)
	} else if i.opts.Bootstrap == "" {
		return nil, fmt.Errorf("%w, and there is no bootstrap kubeconfig", err)
	}
	bootstrap, err := readKubeconfig("--bootstrap-kubeconfig", i.opts.Bootstrap)
	if err != nil {
		return nil, err
	}
	return i.connect(bootstrap.config, nil)
}
