package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// startInBubble starts an agent whose kubeconfig embeds a certificate of a name, and returns its
// identity.
func startInBubble(t *testing.T, f *fake, name string, warn func(string)) *Identity {
	t.Helper()
	dir := t.TempDir()
	cert, key := f.authority.pair(t, name, -time.Hour, 1000*time.Hour)
	i, err := Load(Options{NodeName: "node-1", CertDir: dir, Rotate: true, Trace: f.trace, Warn: warn,
		Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubelet.conf"), map[string]any{
			"client-certificate-data": cert, "client-key-data": key})})
	if err != nil {
		t.Fatal(err)
	}
	i.Start()
	return i
}

// A certificate that is due as soon as it is obtained does not make the agent request the next one
// at once, and the pauses grow.
func TestPauseAfterCertificate(t *testing.T) {
	for name, sign := range map[string]func(*x509.CertificateRequest, *time.Time, *time.Time){
		"due": func(_ *x509.CertificateRequest, from, to *time.Time) {
			*from, *to = time.Now().Add(-1000*time.Hour), time.Now().Add(48*time.Hour)
		},
		"expired": func(_ *x509.CertificateRequest, from, to *time.Time) {
			*from, *to = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBubbleFake(t, sign)
				i := startInBubble(t, f, node, func(string) {})
				defer i.Close()
				if got := f.requestsWithin(30 * time.Second); got != 1 {
					t.Errorf("%d requests in the first half minute, want 1", got)
				}
				if got := f.requestsWithin(time.Hour); got < 3 || got > 6 {
					t.Errorf("%d requests in the first hour, want 5", got)
				}
				if got := f.requestsWithin(24 * time.Hour); got < 20 || got > 26 {
					t.Errorf("%d requests in a day, want one an hour", got)
				}
			})
		})
	}
}

// A certificate of another name or group is not used: the current one stays, and the pauses between
// requests grow.
func TestCertificateOfAnother(t *testing.T) {
	for want, change := range map[string]func(*pkix.Name){
		"node-2,O=system:nodes, want CN=system:node:node-1,O=system:nodes": func(s *pkix.Name) {
			s.CommonName = "system:node:node-2"
		},
		"it is for CN=system:node:node-1, want": func(s *pkix.Name) { s.Organization = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			var warnings []string
			f := newBubbleFake(t, func(asked *x509.CertificateRequest, _, _ *time.Time) {
				change(&asked.Subject)
			})
			i := startInBubble(t, f, node, func(problem string) { warnings = append(warnings, problem) })
			got := f.requestsWithin(10 * time.Minute)
			if got < 3 || got > 5 {
				t.Errorf("%d requests in ten minutes, want 4", got)
			}
			current, err := i.currentCertificate()
			if err != nil || time.Until(current.Leaf.NotAfter) < 100*time.Hour {
				t.Errorf("the current certificate: %v", err)
			}
			i.Close()
			if failures := i.Metrics()[0].Value; failures < float64(got-1) {
				t.Errorf("%v failures of %d requests", failures, got)
			}
			for _, w := range warnings {
				if !strings.Contains(w, want) {
					t.Errorf("warning %q, want %q", w, want)
				}
			}
			if len(warnings) == 0 {
				t.Error("no warning")
			}
		})
	}
}

// A signed certificate that is for another key, or is none, is refused as well.
func TestCertificateOfAnotherKey(t *testing.T) {
	a := newAuthority(t)
	r := signingRequest{template: x509.CertificateRequest{Subject: nodeSubject("node-1")}}
	cert, _ := a.pair(t, node, -time.Hour, time.Hour)
	for want, signed := range map[string][]byte{"another key": cert, "certificate": []byte("none")} {
		if err := r.check(signed, newKey(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The certificate of a node that was renamed is replaced at once, though it is valid for long.
func TestRenamedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBubbleFake(t, nil)
		dir := t.TempDir()
		cert, key := f.authority.pair(t, "system:node:earlier", -time.Hour, 1000*time.Hour)
		pem := filepath.Join(dir, pairName+"-current.pem")
		write(t, pem, string(cert)+string(key))
		f.kubeconfig(filepath.Join(dir, "kubelet.conf"), map[string]any{
			"client-certificate": pem, "client-key": pem})
		i, err := Load(Options{NodeName: "node-1", CertDir: dir, Rotate: true, Trace: f.trace,
			Kubeconfig: filepath.Join(dir, "kubelet.conf"), Warn: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		if !i.managed.renewal.isDue() {
			t.Errorf("the next certificate is requested in %v", i.managed.renewal.wait())
		}
		i.Close()
	})
}

// Certificates are renewed at 70 to 90 % of their lifetime, at different times.
func TestRenewalTime(t *testing.T) {
	from, lifetime := time.Now().Add(-time.Hour), 1000*time.Hour
	cert := &tls.Certificate{Leaf: &x509.Certificate{NotBefore: from, NotAfter: from.Add(lifetime)}}
	least, most := 1.0, 0.0
	for range 1000 {
		part := float64(renewalTime(cert).Sub(from)) / float64(lifetime)
		least, most = min(least, part), max(most, part)
	}
	if least < 0.7 || least > 0.72 || most > 0.9 || most < 0.88 {
		t.Errorf("renewed at %.3f to %.3f of the lifetime, want 0.7 to 0.9", least, most)
	}
}

// serveInBubble starts an agent whose serving certificate is requested, and returns how to end it.
func serveInBubble(t *testing.T, f *fake, warn func(string)) (s *Serving, end func()) {
	t.Helper()
	f.addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-1"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
	dir := t.TempDir()
	i, err := Load(Options{NodeName: "node-1", Trace: f.trace, Warn: func(string) {},
		Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubelet.conf"),
			map[string]any{"token": "secret"})})
	if err != nil {
		t.Fatal(err)
	}
	s, err = NewServing(ServingOptions{CertDir: dir, NodeName: "node-1", Request: true, Identity: i,
		Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s, func() { s.Close(); i.Close() }
}

// A changed address of the Node is in the certificate five minutes later.
func TestAddressesAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBubbleFake(t, nil)
		s, end := serveInBubble(t, f, func(w string) { t.Errorf("warning %q", w) })
		defer end()
		if got := f.requestsWithin(20 * time.Minute); got != 1 {
			t.Fatalf("%d requests at the start, want 1", got)
		}
		f.mu.Lock()
		f.addresses[1].Address = "192.0.2.8"
		f.mu.Unlock()
		if got := f.requestsWithin(5 * time.Minute); got != 1 {
			t.Errorf("%d requests after the address has changed, want 1", got)
		}
		if err := servedCertificate(t, s).VerifyHostname("192.0.2.8"); err != nil {
			t.Error(err)
		}
	})
}

// A signer may add names: the certificate is not requested again. If the signer leaves out names,
// the certificate is used, and requested again after pauses, or when the names change.
func TestNamesOfTheSigner(t *testing.T) {
	for name, c := range map[string]struct {
		sign        func(asked *x509.CertificateRequest, from, to *time.Time)
		least, most int // requests in ten hours
	}{
		"added": {func(asked *x509.CertificateRequest, _, to *time.Time) {
			*to = time.Now().Add(1000 * time.Hour)
			asked.DNSNames = append(asked.DNSNames, "added.example")
			asked.IPAddresses = append(asked.IPAddresses, net.IPv4(192, 0, 2, 99))
			asked.Subject.Organization = append(asked.Subject.Organization, "added")
		}, 1, 1},
		"left out": {func(asked *x509.CertificateRequest, _, to *time.Time) {
			*to = time.Now().Add(1000 * time.Hour)
			asked.IPAddresses = nil
		}, 8, 18},
		"another subject": {func(asked *x509.CertificateRequest, _, to *time.Time) {
			*to = time.Now().Add(1000 * time.Hour)
			asked.Subject = pkix.Name{CommonName: "node-1.example"}
		}, 8, 18},
		"expired": {func(_ *x509.CertificateRequest, from, to *time.Time) {
			*from, *to = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}, 8, 18},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBubbleFake(t, c.sign)
				s, end := serveInBubble(t, f, func(w string) { t.Errorf("warning %q", w) })
				defer end()
				if got := f.requestsWithin(10 * time.Hour); got < c.least || got > c.most {
					t.Errorf("%d requests in ten hours, want %d to %d", got, c.least, c.most)
				}
				if cert, err := s.Certificate(nil); (err == nil) == (name == "expired") {
					t.Errorf("%v, %v", cert, err)
				}
				f.mu.Lock()
				f.addresses[0].Address = "node-2"
				f.mu.Unlock()
				if got := f.requestsWithin(5 * time.Minute); got < 1 {
					t.Error("no request after the names have changed")
				}
			})
		})
	}
}

// A serving certificate for another key is refused, and the pauses between requests grow; other
// names of the Node are requested at the next check.
func TestServingCertificateOfAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newKey(t)
		f := newBubbleFake(t, func(asked *x509.CertificateRequest, _, _ *time.Time) {
			asked.PublicKey = other.Public()
		})
		s, end := serveInBubble(t, f, func(problem string) {
			if !strings.Contains(problem, "it is for another key") {
				t.Errorf("warning %q", problem)
			}
		})
		defer end()
		if got := f.requestsWithin(10 * time.Hour); got < 8 || got > 18 {
			t.Errorf("%d requests in ten hours, want 8 to 18", got)
		}
		if _, err := s.Certificate(nil); err == nil {
			t.Error("serves the certificate of another key")
		}
		f.mu.Lock()
		f.addresses[0].Address = "node-2"
		f.mu.Unlock()
		if got := f.requestsWithin(6 * time.Minute); got < 1 {
			t.Error("no request after the names have changed")
		}
	})
}

// A certificate satisfies a request with its subject, names and addresses, in any order and form.
func TestSatisfies(t *testing.T) {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: node, Organization: []string{"x",
		"system:nodes"}}, DNSNames: []string{"b", "a"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 7)}}
	asked := x509.CertificateRequest{Subject: nodeSubject("node-1"), DNSNames: []string{"a"},
		IPAddresses: []net.IP{net.IPv4(192, 0, 2, 7).To4()}}
	if !satisfies(c, &asked) {
		t.Error("does not satisfy")
	}
	for name, change := range map[string]func(*x509.CertificateRequest){
		"name":    func(r *x509.CertificateRequest) { r.Subject.CommonName = "node-2" },
		"group":   func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"y"} },
		"DNS":     func(r *x509.CertificateRequest) { r.DNSNames = []string{"a", "c"} },
		"address": func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv6loopback} },
	} {
		other := asked
		if change(&other); satisfies(c, &other) {
			t.Errorf("satisfies another %s", name)
		}
	}
}

// A Node's names are those of a host and of DNS; addresses that are no IP are no names.
func TestNodeNames(t *testing.T) {
	dns, ips := nodeNames([]v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "host"}, {Type: v1.NodeInternalDNS, Address: "internal.dns"},
		{Type: v1.NodeExternalDNS, Address: "external.dns"}, {Type: v1.NodeHostName, Address: "host"},
		{Type: v1.NodeInternalIP, Address: "no.ip"}, {Type: v1.NodeExternalIP, Address: "192.0.2.9"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeInternalIP, Address: "192.0.2.7"},
		{Type: v1.NodeHostName},
	})
	if want := []string{"external.dns", "host", "internal.dns"}; !slices.Equal(dns, want) {
		t.Errorf("names %q, want %q", dns, want)
	}
	if len(ips) != 2 || ips[0].String() != "192.0.2.7" || ips[1].String() != "192.0.2.9" {
		t.Errorf("addresses %v", ips)
	}
}
