package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

// pairName is what the files of certificates begin with; the newest is kubelet-client-current.pem.
const pairName = "kubelet-client"

// manage makes the manager that asks for certificates: beginning with those of a kubeconfig, or
// without any.
func (i *Identity) manage(own, bootstrap *kubeconfig) error {
	certDir, err := filepath.Abs(i.opts.CertDir)
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	config := certificate.Config{
		Template: &x509.CertificateRequest{Subject: pkix.Name{
			CommonName:   "system:node:" + i.opts.NodeName,
			Organization: []string{"system:nodes"},
		}},
		SignerName:  certificates.KubeAPIServerClientKubeletSignerName,
		GetUsages:   certificate.DefaultKubeletClientGetUsages,
		ClientsetFn: i.clientset,
	}
	certFile, keyFile := "", ""
	if own != nil {
		config.BootstrapCertificatePEM, config.BootstrapKeyPEM = own.certPEM, own.keyPEM
		certFile, keyFile = own.config.CertFile, own.config.KeyFile
	}
	files, err := certificate.NewFileStoreWithLogger(klog.Background().V(2), pairName, certDir,
		certDir, certFile, keyFile)
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	i.managed = &managed{store: &store{FileStore: files, identity: i, written: bootstrap == nil}}
	config.CertificateStore = i.managed.store
	i.managed.manager, err = certificate.NewManager(&config)
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return nil
}

// clientset is how the manager asks: with the certificate that there is, or else with the
// bootstrap kubeconfig, which is read again, as a new token may have been put there.
func (i *Identity) clientset(current *tls.Certificate) (kubernetes.Interface, error) {
	if i.managed.bootstrap != nil {
		i.managed.bootstrap.Close()
		i.managed.bootstrap = nil
	}
	config, cert := i.config, i.certificateNow
	if current == nil {
		if i.opts.Bootstrap == "" {
			return nil, errors.New("the client certificate has expired, " +
				"and there is no bootstrap kubeconfig to ask for another")
		}
		bootstrap, err := readKubeconfig("--bootstrap-kubeconfig", i.opts.Bootstrap)
		if err != nil {
			return nil, err
		}
		config, cert = bootstrap.config, nil
	}
	c, err := i.connect(config, cert)
	if err != nil {
		return nil, err
	}
	i.managed.bootstrap = c
	return kubernetes.NewForConfigAndClient(i.Config(), c.Client)
}

// store is where the manager keeps certificates, and where the agent hears of a new one first.
type store struct {
	certificate.FileStore
	identity *Identity
	written  bool // the kubeconfig names the certificate, or another that is as good
}

// Current is the certificate that was kept last.
func (s *store) Current() (*tls.Certificate, error) {
	cert, err := s.FileStore.Current()
	if err == nil {
		if time.Now().Before(cert.Leaf.NotAfter) {
			s.take(cert)
		}
		return cert, nil
	}
	if none, ok := errors.AsType[*certificate.NoCertKeyError](err); ok {
		return nil, none // as it is: the manager looks for this type alone
	}
	// A torn file is as good as none: the next certificate replaces it.
	s.identity.opts.Warn(err.Error())
	none := certificate.NoCertKeyError(err.Error())
	return nil, &none
}

// Update keeps a new certificate, and from then on connections use it.
func (s *store) Update(cert, key []byte) (*tls.Certificate, error) {
	kept, err := s.FileStore.Update(cert, key)
	if err != nil {
		return nil, err
	}
	s.take(kept)
	if i := s.identity; i.managed.manager != nil && !i.opts.Rotate {
		i.managed.manager.Stop() // one was enough
	}
	s.identity.closeAll()
	return kept, nil
}

// take lets connections use a certificate. The kubeconfig that names it is written before: whoever
// sees the node come may look for it.
func (s *store) take(cert *tls.Certificate) {
	i := s.identity
	if !s.written {
		if err := writeKubeconfig(i.opts.Kubeconfig, i.config, s.CurrentPath()); err != nil {
			i.opts.Warn(err.Error())
		} else {
			s.written = true
		}
	}
	i.managed.current.Store(cert)
}
