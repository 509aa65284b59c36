package identity

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// shown is the certificate that a client would see.
func shown(t *testing.T, s *Serving) *x509.Certificate {
	t.Helper()
	c, err := s.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func serving(t *testing.T, opts ServingOptions) *Serving {
	t.Helper()
	if opts.Warn == nil {
		opts.Warn = func(problem string) { t.Errorf("warned of %s", problem) }
	}
	s, err := NewServing(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestServingGiven(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	opts := ServingOptions{CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key")}
	put := func(name string) {
		cert, key := a.pair(t, name, -time.Hour, time.Hour)
		write(t, opts.KeyFile, string(key))
		write(t, opts.CertFile, string(cert))
	}
	put("first")
	s := serving(t, opts)
	if name := shown(t, s).Subject.CommonName; name != "first" {
		t.Errorf("shows %q", name)
	}
	put("second")
	if name := shown(t, s).Subject.CommonName; name != "second" {
		t.Errorf("shows %q after it was replaced", name)
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

// A certificate of the node's own lasts over restarts, and no longer than it is good.
func TestServingSelfSigned(t *testing.T) {
	dir := t.TempDir()
	opts := ServingOptions{CertDir: dir, HostName: "node-1"}
	first := shown(t, serving(t, opts))
	if err := first.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	if again := shown(t, serving(t, opts)); !again.Equal(first) {
		t.Error("another certificate after a restart")
	}
	key := filepath.Join(dir, "kubelet.key")
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	opts.HostName = "node-2"
	renamed := shown(t, serving(t, opts))
	if err := renamed.VerifyHostname("node-2"); err != nil {
		t.Error(err)
	}
	write(t, key, "torn")
	if mended := shown(t, serving(t, opts)); mended.Equal(renamed) {
		t.Error("a certificate without a key")
	}
	// While the agent runs the name stays, but time goes on.
	running := serving(t, opts)
	before := shown(t, running)
	running.source.(*selfSigned).opts.HostName = "node-3"
	after := shown(t, running)
	if err := after.VerifyHostname("node-3"); err != nil {
		t.Error(err)
	}
	if again := shown(t, running); again.Equal(before) || !again.Equal(after) {
		t.Error("a certificate for each handshake")
	}
	opts.HostName = "node-3"
	if kept := shown(t, serving(t, opts)); !kept.Equal(after) {
		t.Error("the new one was not kept")
	}
	// What somebody else has put there is theirs, even if it has expired.
	theirs, theirKey := newAuthority(t).pair(t, "theirs", -time.Hour, -time.Minute)
	write(t, key, string(theirKey))
	write(t, filepath.Join(dir, "kubelet.crt"), string(theirs))
	if name := shown(t, serving(t, opts)).Subject.CommonName; name != "theirs" {
		t.Errorf("shows %q", name)
	}
	write(t, key, "torn")
	if _, err := NewServing(opts); err == nil || !strings.HasPrefix(err.Error(), "--cert-dir") {
		t.Errorf("error %v for the torn files of somebody else", err)
	}
}

// A disk that takes nothing costs a new certificate at the next start, not one at each handshake.
func TestServingSelfSignedCannotBeKept(t *testing.T) {
	var warned []string
	s := serving(t, ServingOptions{CertDir: t.TempDir(), HostName: "node-1",
		Warn: func(problem string) { warned = append(warned, problem) }})
	own := s.source.(*selfSigned)
	own.opts.HostName = "node-2"
	own.key = filepath.Join(own.cert, "not", "a", "directory")
	first := shown(t, s)
	if again := shown(t, s); !again.Equal(first) || first.VerifyHostname("node-2") != nil {
		t.Errorf("%v, then %v", first.DNSNames, again.DNSNames)
	}
	if len(warned) != 1 || !strings.HasPrefix(warned[0], "--cert-dir") {
		t.Errorf("warned of %q", warned)
	}
}

// requested starts a serving certificate by request.
func requested(t *testing.T, f *fake) (ServingOptions, *life) {
	t.Helper()
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -time.Hour, time.Hour)
	l := begin(t, Options{Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"),
		map[string]any{"client-certificate-data": cert, "client-key-data": key})})
	f.addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-1"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeInternalIP, Address: "::7"}}
	return ServingOptions{CertDir: dir, NodeName: "node-1", Request: true, Identity: l.Identity,
		Warn: func(string) {}}, l
}

func TestServingRequested(t *testing.T) {
	f := newFake(t)
	opts, _ := requested(t, f)
	s := serving(t, opts)
	if _, err := s.Certificate(nil); err == nil ||
		!strings.HasPrefix(err.Error(), "no serving certificate available for the kubelet") {
		t.Errorf("error %v before there is a certificate", err)
	}
	s.Start()
	for end := time.Now().Add(waitMax); len(f.asked()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody asks")
		}
	}
	if _, err := s.Certificate(nil); err == nil {
		t.Error("a certificate before it is approved")
	}
	close(f.approve)
	for end := time.Now().Add(waitMax); ; time.Sleep(10 * time.Millisecond) {
		if _, err := s.Certificate(nil); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	spec := f.request.Spec
	usages := []certificates.KeyUsage{certificates.UsageDigitalSignature,
		certificates.UsageServerAuth}
	if spec.SignerName != certificates.KubeletServingSignerName ||
		!slices.Equal(spec.Usages, usages) {
		t.Errorf("asked for %+v", spec)
	}
	leaf := shown(t, s)
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
	if again := shown(t, serving(t, opts)); !again.Equal(leaf) {
		t.Error("another certificate after a restart")
	}
}

// It is asked again when the Node has another address, or the certificate is about to expire, and
// not otherwise.
func TestServingIsRenewed(t *testing.T) {
	f := newFake(t)
	close(f.approve)
	opts, l := requested(t, f)
	r, err := newRequest(opts)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(l.Config(), l.conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	look := func(asked int, why string) {
		t.Helper()
		if err := r.askIfNeeded(t.Context(), client); err != nil {
			t.Error(err)
		}
		if got := len(f.asked()); got != asked {
			t.Errorf("asked %d times, want %d: %s", got, asked, why)
		}
	}
	look(1, "there is none")
	look(1, "it is good")
	f.mu.Lock()
	f.addresses[1].Address = "192.0.2.8"
	f.mu.Unlock()
	look(2, "another address")
	look(2, "it is good again")
	r.due = time.Now()
	look(3, "it is about to expire")
	f.mu.Lock()
	f.addresses = f.addresses[:1]
	f.mu.Unlock()
	if err := r.askIfNeeded(t.Context(), client); err == nil || len(f.asked()) != 3 {
		t.Errorf("error %v, asked %d times; want no request without an address", err, len(f.asked()))
	}
	expired := *r.current.Load()
	leaf := *expired.Leaf
	leaf.NotAfter = time.Now().Add(-time.Minute)
	expired.Leaf = &leaf
	r.current.Store(&expired)
	if _, err := r.now(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("error %v for a certificate that has expired", err)
	}
}

func TestServingAlone(t *testing.T) {
	var warned []string
	s := serving(t, ServingOptions{CertDir: t.TempDir(), Request: true,
		Warn: func(problem string) { warned = append(warned, problem) }})
	s.Start()
	if _, err := s.Certificate(nil); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if len(warned) != 1 || !strings.HasPrefix(warned[0], "serverTLSBootstrap") {
		t.Errorf("warned of %q", warned)
	}
}
