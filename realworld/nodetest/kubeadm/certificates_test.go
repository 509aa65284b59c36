package kubeadm

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// currentClient is the client certificate of a kubelet, a link to the last one.
const currentClient = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// checkBootstrapped checks that the worker has got a certificate as the user of a bootstrap token.
func (s *suite) checkBootstrapped(t *testing.T, user string) {
	t.Helper()
	s.checkHealth(t, s.worker)
	var bootstrapped bool
	requests, err := s.requests(t.Context(), certificates.KubeAPIServerClientKubeletSignerName)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		s.say(t, "request %s of %s: %v", r.Name, r.Spec.Username, conditionsOf(r))
		bootstrapped = bootstrapped || r.Spec.Username == user &&
			slices.Contains(conditionsOf(r), "Approved") && len(r.Status.Certificate) > 0
	}
	if !bootstrapped {
		t.Errorf("no request of %s was approved and issued", user)
	}
	s.checkKubeconfig(t, s.worker)
	if _, err := os.Lstat(s.worker.Path("/etc/kubernetes/bootstrap-kubelet.conf")); err == nil {
		t.Error("bootstrap-kubelet.conf exists after the join")
	}
	name, c, err := s.worker.clientCertificate()
	if err != nil {
		t.Fatal(err)
	}
	s.say(t, "%s is of %s until %v", name, c.Subject, c.NotAfter)
	if want := "system:node:" + s.worker.HostName; c.Subject.CommonName != want {
		t.Errorf("the certificate is of %s, want %s", c.Subject, want)
	}
}

// checkKubeconfig checks that the credentials in an agent's kubeconfig are the names of files, and
// nothing secret.
func (s *suite) checkKubeconfig(t *testing.T, n *node) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(n.Path("/etc/kubernetes/kubelet.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(config.AuthInfos) != 1 {
		t.Errorf("kubelet.conf of %s has %d users, want one", n.HostName, len(config.AuthInfos))
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = ""
		want := &api.AuthInfo{ClientCertificate: currentClient, ClientKey: currentClient,
			Extensions: user.Extensions}
		if !reflect.DeepEqual(user, want) {
			t.Errorf("kubelet.conf of %s has %q and %q, or more: %d bytes of a certificate, %d of a key, "+
				"%d of a token", n.HostName, user.ClientCertificate, user.ClientKey,
				len(user.ClientCertificateData), len(user.ClientKeyData), len(user.Token))
		}
	}
	s.say(t, "kubelet.conf of %s names %s, and has no token, certificate or key", n.HostName,
		currentClient)
}

// requests returns the requests of certificates by a signer.
func (s *suite) requests(ctx context.Context, signer string) (
	[]certificates.CertificateSigningRequest, error) {
	list, err := s.api.CertificatesV1().CertificateSigningRequests().List(ctx,
		metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func conditionsOf(r certificates.CertificateSigningRequest) []string {
	var types []string
	for _, c := range r.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return types
}

// clientCertificate returns the file and the client certificate that a node has now. While the link
// is replaced, there is none for a moment.
func (n *node) clientCertificate() (name string, c *x509.Certificate, err error) {
	target, err := os.Readlink(n.Path(currentClient))
	if err != nil {
		return "", nil, err
	}
	name = filepath.Base(target)
	data, err := os.ReadFile(n.Path(filepath.Join(filepath.Dir(currentClient), name)))
	if err != nil {
		return "", nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "", nil, fmt.Errorf("%s is not PEM", target)
	}
	c, err = x509.ParseCertificate(block.Bytes)
	return name, c, err
}
