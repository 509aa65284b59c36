package kubeadm

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/porttest"
)

// rotated is a certificate that is replaced before its end.
type rotated struct {
	what    string
	old     *x509.Certificate
	current func() (*x509.Certificate, error)
}

// testRotation waits until the client and serving certificates of both nodes are replaced, and
// until those that were have ended. The nodes go on with the new ones.
func (s *suite) testRotation(t *testing.T) {
	all := s.rotatedCertificates(t)
	s.waitUntilReplaced(t, all)
	var ends time.Time
	for _, r := range all {
		if r.old.NotAfter.After(ends) {
			ends = r.old.NotAfter
		}
	}
	s.waitBefore(t, ends.Add(porttest.Patience), "the replaced certificates have ended", func() error {
		return missingUnless(time.Now().After(ends), "the last ends at %v", ends)
	})
	for _, r := range all {
		c, err := r.current()
		if err != nil || c.SerialNumber.Cmp(r.old.SerialNumber) == 0 {
			t.Fatalf("%s is not a new one: %v", r.what, err)
		}
		s.say(t, "%s is valid until %v", r.what, c.NotAfter)
	}
	for _, n := range s.nodes() {
		s.waitForLease(t, n, ends)
		s.checkKubeconfig(t, n)
	}
	s.testWatches(t)
	s.testKubectl(t)
	for _, signer := range []string{certificates.KubeAPIServerClientKubeletSignerName,
		certificates.KubeletServingSignerName} {
		requests, err := s.requests(t.Context(), signer)
		s.say(t, "requests of %s: %d, %v", signer, len(requests), err)
	}
}

// rotatedCertificates returns the client certificates of the nodes, and their first serving
// certificates. All are issued by the cluster: the agent of the control plane has replaced at once
// the client certificate that kubeadm has made for a year.
func (s *suite) rotatedCertificates(t *testing.T) (all []rotated) {
	t.Helper()
	authority := s.authority(t)
	for _, n := range s.nodes() {
		_, client, err := n.clientCertificate()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all,
			rotated{"the client certificate of " + n.HostName, client,
				func() (*x509.Certificate, error) {
					_, c, err := n.clientCertificate()
					return c, err
				}},
			rotated{"the serving certificate of " + n.HostName, n.serving,
				func() (*x509.Certificate, error) { return handshake(t.Context(), n, authority) }})
	}
	for _, r := range all {
		s.say(t, "%s is valid from %v until %v", r.what, r.old.NotBefore, r.old.NotAfter)
		if time.Until(r.old.NotAfter) > signingDuration {
			t.Fatalf("%s was not issued for %v", r.what, signingDuration)
		}
	}
	return all
}

// waitUntilReplaced waits until certificates are replaced, each before its end.
func (s *suite) waitUntilReplaced(t *testing.T, all []rotated) {
	t.Helper()
	for left := all; len(left) > 0; {
		first := left[0].old.NotAfter
		for _, r := range left {
			if r.old.NotAfter.Before(first) {
				first = r.old.NotAfter
			}
		}
		var next []rotated
		s.waitBefore(t, first.Add(porttest.Patience), "a certificate is replaced", func() error {
			var waiting []string
			next = nil
			for _, r := range left {
				c, err := r.current()
				if err == nil && c.SerialNumber.Cmp(r.old.SerialNumber) != 0 {
					s.checkReplaced(t, r)
					continue
				}
				next = append(next, r)
				state := "ends at " + r.old.NotAfter.Format(time.TimeOnly)
				if err != nil {
					state = err.Error()
				}
				waiting = append(waiting, r.what+": "+state)
			}
			return missingUnless(len(next) < len(left), "%s", strings.Join(waiting, ", "))
		})
		left = next
	}
}

// checkReplaced checks that a certificate that has just been replaced has not ended.
func (s *suite) checkReplaced(t *testing.T, r rotated) {
	t.Helper()
	left := time.Until(r.old.NotAfter)
	s.say(t, "%s is replaced %v before its end", r.what, left.Round(time.Second))
	if left < 0 {
		t.Errorf("%s was replaced after its end, %v", r.what, r.old.NotAfter)
	}
}

// waitForLease waits until a node has renewed its lease after a time.
func (s *suite) waitForLease(t *testing.T, n *node, after time.Time) {
	t.Helper()
	s.waitUntil(t, n.HostName+" renews its lease with the new certificate", func() error {
		l, err := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), n.HostName,
			metav1.GetOptions{})
		if err == nil && (l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(after)) {
			err = fmt.Errorf("renewed at %v", l.Spec.RenewTime)
		}
		return err
	})
}
