package identity

import (
	"crypto/x509"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"

	"seedlet.dev/realworld/porttest"
)

// servedCertificate returns the certificate of a handshake.
func servedCertificate(t *testing.T, s *Serving) *x509.Certificate {
	t.Helper()
	c, err := s.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func newServing(t *testing.T, opts ServingOptions) *Serving {
	t.Helper()
	if opts.Warn == nil {
		opts.Warn = func(problem string) { t.Errorf("unexpected warning: %s", problem) }
	}
	s, err := NewServing(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestServingFromFiles(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	opts := ServingOptions{CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key")}
	put := func(name string) {
		cert, key := a.pair(t, name, -time.Hour, time.Hour)
		write(t, opts.KeyFile, string(key))
		write(t, opts.CertFile, string(cert))
	}
	put("first")
	s := newServing(t, opts)
	if name := servedCertificate(t, s).Subject.CommonName; name != "first" {
		t.Errorf("serves %q", name)
	}
	put("second")
	if name := servedCertificate(t, s).Subject.CommonName; name != "second" {
		t.Errorf("serves %q after the files were replaced", name)
	}
	for want, wrong := range map[string]ServingOptions{
		"tlsPrivateKeyFile: must": {CertFile: opts.CertFile},
		"tlsCertFile: must":       {KeyFile: opts.KeyFile},
		"tlsCertFile and":         {CertFile: opts.CertFile, KeyFile: dir + "/none"},
	} {
		if _, err := NewServing(wrong); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A self-signed certificate is reused after restarts as long as it is valid.
func TestServingSelfSigned(t *testing.T) {
	dir := t.TempDir()
	opts := ServingOptions{CertDir: dir, HostName: "node-1"}
	first := servedCertificate(t, newServing(t, opts))
	if err := first.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	if again := servedCertificate(t, newServing(t, opts)); !again.Equal(first) {
		t.Error("another certificate after a restart")
	}
	key := filepath.Join(dir, "kubelet.key")
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	info, err := os.Stat(filepath.Join(dir, "kubelet.crt"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the certificate: %v, %v", info, err)
	}
	opts.HostName = "node-2"
	renamed := servedCertificate(t, newServing(t, opts))
	if err := renamed.VerifyHostname("node-2"); err != nil {
		t.Error(err)
	}
	write(t, key, "torn")
	if replaced := servedCertificate(t, newServing(t, opts)); replaced.Equal(renamed) {
		t.Error("the certificate without a key was reused")
	}
	// A running agent's host name does not change; here it makes the certificate invalid, as time
	// would.
	running := newServing(t, opts)
	before := servedCertificate(t, running)
	running.source.(*selfSigned).opts.HostName = "node-3"
	after := servedCertificate(t, running)
	if err := after.VerifyHostname("node-3"); err != nil {
		t.Error(err)
	}
	if again := servedCertificate(t, running); again.Equal(before) || !again.Equal(after) {
		t.Error("a new certificate for each handshake")
	}
	opts.HostName = "node-3"
	if stored := servedCertificate(t, newServing(t, opts)); !stored.Equal(after) {
		t.Error("the new certificate was not stored")
	}
	// An administrator's certificate is used even if it has expired.
	theirs, theirKey := newAuthority(t).pair(t, "theirs", -time.Hour, -time.Minute)
	write(t, key, string(theirKey))
	write(t, filepath.Join(dir, "kubelet.crt"), string(theirs))
	if name := servedCertificate(t, newServing(t, opts)).Subject.CommonName; name != "theirs" {
		t.Errorf("serves %q", name)
	}
	write(t, key, "torn")
	if _, err := NewServing(opts); err == nil || !strings.HasPrefix(err.Error(), "--cert-dir") {
		t.Errorf("error %v for torn files of an administrator", err)
	}
}

// If the files cannot be written, there is a new certificate at each start, not at each handshake.
func TestServingSelfSignedCannotBeStored(t *testing.T) {
	var warnings []string
	s := newServing(t, ServingOptions{CertDir: t.TempDir(), HostName: "node-1",
		Warn: func(problem string) { warnings = append(warnings, problem) }})
	own := s.source.(*selfSigned)
	own.opts.HostName = "node-2"
	own.key = filepath.Join(own.cert, "not", "a", "directory")
	first := servedCertificate(t, s)
	if again := servedCertificate(t, s); !again.Equal(first) || first.VerifyHostname("node-2") != nil {
		t.Errorf("%v, then %v", first.DNSNames, again.DNSNames)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "--cert-dir") {
		t.Errorf("warnings %q", warnings)
	}
}

// requestOptions returns the options of a serving certificate that is signed through the API
// server.
func requestOptions(t *testing.T, f *fake) (ServingOptions, *session) {
	t.Helper()
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -time.Hour, time.Hour)
	l := startSession(t, Options{Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"),
		map[string]any{"client-certificate-data": cert, "client-key-data": key})})
	f.addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-1"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeInternalIP, Address: "::7"}}
	return ServingOptions{CertDir: dir, NodeName: "node-1", Request: true, Identity: l.Identity,
		Warn: func(string) {}}, l
}

func TestServingRequested(t *testing.T) {
	f := newFake(t)
	opts, _ := requestOptions(t, f)
	s := newServing(t, opts)
	if _, err := s.Certificate(nil); err == nil ||
		!strings.HasPrefix(err.Error(), "no serving certificate available for the kubelet") {
		t.Errorf("error %v before there is a certificate", err)
	}
	s.Start()
	porttest.Eventually(t, "a certificate is requested", func() bool {
		return len(f.csrRequesters()) > 0
	})
	if _, err := s.Certificate(nil); err == nil {
		t.Error("a certificate before it is approved")
	}
	close(f.approve)
	porttest.Eventually(t, "there is a certificate", func() bool {
		_, err := s.Certificate(nil)
		return err == nil
	})
	spec := f.request.Spec
	usages := []certificates.KeyUsage{certificates.UsageDigitalSignature,
		certificates.UsageServerAuth}
	if spec.SignerName != certificates.KubeletServingSignerName ||
		!slices.Equal(spec.Usages, usages) {
		t.Errorf("requested %+v", spec)
	}
	leaf := servedCertificate(t, s)
	if leaf.Subject.CommonName != node {
		t.Errorf("for %s", leaf.Subject)
	}
	for _, name := range []string{"node-1", "192.0.2.7", "::7"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if links, err := filepath.Glob(opts.CertDir + "/kubelet-server-current.pem"); len(links) != 1 {
		t.Errorf("certificates %q, %v", links, err)
	}
	s.Close()
	if again := servedCertificate(t, newServing(t, opts)); !again.Equal(leaf) {
		t.Error("another certificate after a restart")
	}
}

// The certificate is requested again when the addresses of the Node have changed or the certificate
// is about to expire, and not otherwise.
func TestServingIsRenewed(t *testing.T) {
	f := newFake(t)
	close(f.approve)
	opts, l := requestOptions(t, f)
	r, err := newRequestedCertificate(opts)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(l.Config(), l.conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	check := func(asked int, why string) {
		t.Helper()
		if err := r.requestIfNeeded(t.Context(), client); err != nil {
			t.Error(err)
		}
		if got := len(f.csrRequesters()); got != asked {
			t.Errorf("%d requests, want %d: %s", got, asked, why)
		}
	}
	check(1, "no certificate")
	check(1, "valid")
	f.mu.Lock()
	f.addresses[1].Address = "192.0.2.8"
	f.mu.Unlock()
	check(2, "another address")
	check(2, "valid again")
	r.renewal = renewal{}
	check(3, "about to expire")
	f.deny.Store(true)
	r.renewal = renewal{}
	if err := r.requestIfNeeded(t.Context(), client); err == nil {
		t.Error("no error for a denied request")
	}
	s := &Serving{request: r}
	ttl, rotations, failures := s.Metrics()[0], s.Metrics()[1].Histogram, s.Metrics()[2]
	if left := time.Until(r.current.Load().Leaf.NotAfter).Seconds(); math.Abs(ttl.Value-left) > 60 {
		t.Errorf("%v seconds to live, want %v", ttl.Value, left)
	}
	if rotations.Count != 2 || failures.Value != 1 {
		t.Errorf("%d rotations, %v failures; want 2 and 1", rotations.Count, failures.Value)
	}
	f.deny.Store(false)
	f.mu.Lock()
	f.addresses = f.addresses[:1]
	f.mu.Unlock()
	if err := r.requestIfNeeded(t.Context(), client); err == nil || len(f.csrRequesters()) != 4 {
		t.Errorf("error %v, %d requests; want no request without an address", err, len(f.csrRequesters()))
	}
	expired := *r.current.Load()
	leaf := *expired.Leaf
	leaf.NotAfter = time.Now().Add(-time.Minute)
	expired.Leaf = &leaf
	r.current.Store(&expired)
	if _, err := r.certificate(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("error %v for a certificate that has expired", err)
	}
}

func TestServingWithoutAPIServer(t *testing.T) {
	var warnings []string
	s := newServing(t, ServingOptions{CertDir: t.TempDir(), Request: true,
		Warn: func(problem string) { warnings = append(warnings, problem) }})
	s.Start()
	if _, err := s.Certificate(nil); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "serverTLSBootstrap") {
		t.Errorf("warnings %q", warnings)
	}
}

// A self-signed certificate that has expired is replaced at the start, and at a handshake.
func TestServingSelfSignedExpires(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	a.cert.Subject.CommonName = "node-1-ca@1700000000"
	put := func(to time.Duration) {
		private := newKey(t)
		key, err := keyutil.MarshalPrivateKeyToPEM(private)
		if err != nil {
			t.Fatal(err)
		}
		cert := a.sign(t, &x509.CertificateRequest{DNSNames: []string{"node-1"},
			PublicKey: private.Public()}, time.Now().Add(-2*time.Hour), time.Now().Add(to))
		write(t, filepath.Join(dir, "kubelet.key"), string(key))
		write(t, filepath.Join(dir, "kubelet.crt"), string(cert))
	}
	opts := ServingOptions{CertDir: dir, HostName: "node-1"}
	put(time.Hour)
	s := newServing(t, opts)
	if issuer := servedCertificate(t, s).Issuer.CommonName; issuer != a.cert.Subject.CommonName {
		t.Errorf("a valid certificate was replaced by that of %s", issuer)
	}
	for _, running := range []bool{true, false} {
		put(-time.Hour)
		if !running {
			s = newServing(t, opts)
		}
		if leaf := servedCertificate(t, s); time.Until(leaf.NotAfter) < time.Hour {
			t.Errorf("running %v: serves a certificate until %v", running, leaf.NotAfter)
		}
	}
}
