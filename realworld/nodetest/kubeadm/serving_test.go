package kubeadm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testServing checks that a kubelet's port has no certificate before its request is approved, and
// that the API server trusts the issued one.
func (s *suite) testServing(t *testing.T) {
	pod := s.webPod(t)
	for _, n := range s.nodes() {
		s.waitUntil(t, n.HostName+" has requested a serving certificate", func() error {
			requests, err := s.requests(t.Context(), certificates.KubeletServingSignerName)
			if err != nil {
				return err
			}
			return missingUnless(slices.ContainsFunc(requests,
				func(r certificates.CertificateSigningRequest) bool {
					return r.Spec.Username == "system:node:"+n.HostName
				}), "%d requests", len(requests))
		})
	}
	out, err := s.controlPlane.program(t.Context(), t, "kubectl", "logs", pod).CombinedOutput()
	if err == nil {
		t.Errorf("without a serving certificate, kubectl logs printed %q", out)
	}
	s.say(t, "kubectl logs before the approval: %s", strings.TrimSpace(string(out)))
	s.approveServing(t)
	authority := s.authority(t)
	for _, n := range s.nodes() {
		s.waitUntil(t, n.HostName+" serves with a certificate of the cluster", func() (err error) {
			n.serving, err = handshake(t.Context(), n, authority)
			return err
		})
		s.say(t, "it is valid until %v", n.serving.NotAfter)
	}
	s.testKubectl(t)
}

// testKubectl has kubectl print logs, and run a program in a container, by the ports of both
// kubelets.
func (s *suite) testKubectl(t *testing.T) {
	t.Helper()
	pod := s.webPod(t)
	for _, args := range [][]string{
		{"logs", "--tail=1", pod},
		{"exec", pod, "--", "/sample", "exit"},
		{"logs", "--tail=1", "--namespace=kube-system", "kube-scheduler-" + s.controlPlane.HostName},
	} {
		said := s.output(t, s.controlPlane, "kubectl", args...)
		s.say(t, "kubectl %s: %s", strings.Join(args, " "), strings.TrimSpace(said))
		if said == "" {
			t.Errorf("kubectl %s printed nothing", strings.Join(args, " "))
		}
	}
}

// authority returns the certificate of the cluster's authority.
func (s *suite) authority(t *testing.T) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(s.controlPlane.Path("/etc/kubernetes/pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		t.Fatal("no certificate in the file of the authority")
	}
	return pool
}

// handshake connects to the port of a kubelet, as a client that trusts an authority, and returns
// the certificate of the server.
func handshake(ctx context.Context, n *node, authority *x509.CertPool) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: authority}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.address.String(), "10250"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is sent
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
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
