package kubeadm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// currentClient is the client certificate of a kubelet, a link to the last one.
const currentClient = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// checkBootstrapped checks that the worker has got a certificate by its bootstrap token.
func (s *suite) checkBootstrapped(t *testing.T) {
	t.Helper()
	s.checkHealth(t, s.worker)
	var bootstrapped bool
	for _, r := range s.requests(t, certificates.KubeAPIServerClientKubeletSignerName) {
		s.say(t, "request %s of %s: %v", r.Name, r.Spec.Username, conditionsOf(r))
		bootstrapped = bootstrapped || strings.HasPrefix(r.Spec.Username, "system:bootstrap:") &&
			slices.Contains(conditionsOf(r), "Approved") && len(r.Status.Certificate) > 0
	}
	if !bootstrapped {
		t.Error("no request of a bootstrap token was approved and issued")
	}
	s.checkKubeconfig(t, s.worker)
	if _, err := os.Lstat(s.worker.Path("/etc/kubernetes/bootstrap-kubelet.conf")); err == nil {
		t.Error("bootstrap-kubelet.conf exists after the join")
	}
	name, c := s.clientCertificate(t)
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
			t.Errorf("the user in kubelet.conf of %s is not only the names of %s: %#v", n.HostName,
				currentClient, user)
		}
	}
	s.say(t, "kubelet.conf of %s names %s, and has no token, certificate or key", n.HostName,
		currentClient)
}

// requests returns the requests of certificates by a signer.
func (s *suite) requests(t *testing.T, signer string) []certificates.CertificateSigningRequest {
	t.Helper()
	list, err := s.api.CertificatesV1().CertificateSigningRequests().List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func conditionsOf(r certificates.CertificateSigningRequest) []string {
	var types []string
	for _, c := range r.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return types
}

// clientCertificate returns the file and the client certificate that the worker has now.
func (s *suite) clientCertificate(t *testing.T) (name string, c *x509.Certificate) {
	t.Helper()
	target, err := os.Readlink(s.worker.Path(currentClient))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.worker.Path(filepath.Join(filepath.Dir(currentClient),
		filepath.Base(target))))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s is not PEM", target)
	}
	if c, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(target), c
}

// testServing checks that a kubelet's port has no certificate before its request is approved, and
// that the API server trusts the issued one.
func (s *suite) testServing(t *testing.T) {
	pod := s.webPods(t)[0].Name
	nodes := []*node{s.controlPlane, s.worker}
	for _, n := range nodes {
		s.waitUntil(t, n.HostName+" has requested a serving certificate", func() bool {
			return slices.ContainsFunc(s.requests(t, certificates.KubeletServingSignerName),
				func(r certificates.CertificateSigningRequest) bool {
					return r.Spec.Username == "system:node:"+n.HostName
				})
		})
	}
	out, err := s.controlPlane.program(t.Context(), t, "kubectl", "logs", pod).CombinedOutput()
	if err == nil {
		t.Errorf("without a serving certificate, kubectl logs printed %q", out)
	}
	s.say(t, "kubectl logs before the approval: %s", strings.TrimSpace(string(out)))
	s.approveServing(t)
	for _, n := range nodes {
		s.waitUntil(t, n.HostName+" serves with a certificate of the cluster", func() bool {
			err := s.handshake(t, n)
			if err != nil {
				s.say(t, "%s: %v", n.HostName, err)
				time.Sleep(time.Second)
			}
			return err == nil
		})
	}
	logs := s.output(t, s.controlPlane, "kubectl", "logs", "--tail=1", pod)
	s.say(t, "kubectl logs: %s", strings.TrimSpace(logs))
	said := s.output(t, s.controlPlane, "kubectl", "exec", pod, "--", "/sample", "exit")
	s.say(t, "kubectl exec: %s", strings.TrimSpace(said))
	if logs == "" || said == "" {
		t.Error("kubectl printed nothing")
	}
	logs = s.output(t, s.controlPlane, "kubectl", "logs", "--namespace=kube-system", "--tail=1",
		"kube-scheduler-"+s.controlPlane.HostName)
	s.say(t, "kubectl logs of a static pod: %s", strings.TrimSpace(logs))
}

// handshake connects to the port of a kubelet, as a client that trusts the cluster's authority.
func (s *suite) handshake(t *testing.T, n *node) error {
	t.Helper()
	authority, err := os.ReadFile(s.controlPlane.Path("/etc/kubernetes/pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		t.Fatal("no certificate in the file of the authority")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(n.address.String(), "10250"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// approveServing approves all requests of serving certificates until the end of the test, as the
// administrator of a cluster must: the controller manager does not.
func (s *suite) approveServing(t *testing.T) {
	t.Helper()
	// The context of this step ends with it; certificates are rotated until the end.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.atEnd(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.approveOnce(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
}

// approveOnce approves the requests that wait. Failures are repeated by the caller.
func (s *suite) approveOnce(ctx context.Context) {
	client := s.api.CertificatesV1().CertificateSigningRequests()
	list, err := client.List(ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificates.KubeletServingSignerName})
	if err != nil {
		return
	}
	for _, r := range list.Items {
		if len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = append(r.Status.Conditions,
			certificates.CertificateSigningRequestCondition{Type: certificates.CertificateApproved,
				Status: v1.ConditionTrue, Reason: "Test", Message: "approved by the test"})
		_, _ = client.UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}) // repeated
	}
}

// testRotation waits until the worker has a later client certificate, with which it goes on.
func (s *suite) testRotation(t *testing.T) {
	name, old := s.clientCertificate(t)
	s.say(t, "%s is valid from %v until %v", name, old.NotBefore, old.NotAfter)
	var current *x509.Certificate
	s.waitUntil(t, "the worker has another client certificate", func() bool {
		name, current = s.clientCertificate(t)
		return current.SerialNumber.Cmp(old.SerialNumber) != 0
	})
	if time.Now().After(old.NotAfter) {
		t.Errorf("the certificate was replaced after its end, %v", old.NotAfter)
	}
	s.say(t, "%s is valid until %v; requests of nodes: %d", name, current.NotAfter,
		len(s.requests(t, certificates.KubeAPIServerClientKubeletSignerName)))
	s.waitUntil(t, "the old certificate has ended", func() bool {
		return time.Now().After(old.NotAfter)
	})
	lease := func() (time.Time, error) {
		l, err := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(),
			s.worker.HostName, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		if l.Spec.RenewTime == nil {
			return time.Time{}, errors.New("never renewed")
		}
		return l.Spec.RenewTime.Time, nil
	}
	s.waitUntil(t, "the worker renews its lease with the new certificate", func() bool {
		renewed, err := lease()
		return err == nil && renewed.After(old.NotAfter)
	})
	logs := s.output(t, s.controlPlane, "kubectl", "logs", "--tail=1", s.webPods(t)[0].Name)
	s.say(t, "kubectl logs after the rotation: %s; serving certificates requested: %d",
		strings.TrimSpace(logs), len(s.requests(t, certificates.KubeletServingSignerName)))
}
