package identity

import (
	"crypto/ecdsa"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/certificate"
	"sigs.k8s.io/yaml"

	"seedlet.dev/realworld/porttest"
)

// session is an identity that a test has loaded and started.
type session struct {
	*Identity
	conn     *Connection
	warnings []string
}

// startSession loads and starts an identity, and connects.
func startSession(t *testing.T, opts Options) *session {
	t.Helper()
	l := &session{}
	opts.NodeName, opts.UserAgent = "node-1", "seedlet/test"
	opts.Warn = func(problem string) { l.warnings = append(l.warnings, problem) }
	var err error
	if l.Identity, err = Load(opts); err != nil {
		t.Fatal(err)
	}
	if l.conn, err = l.Connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.conn.Close(); l.Close() })
	l.Start()
	return l
}

// whoami returns the user and the client address of a request, as the server sees them.
func (l *session) whoami(url string) (who, from string, err error) {
	response, err := l.conn.Client.Get(url + "/whoami")
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	who, from, _ = strings.Cut(string(data), " ")
	return who, from, err
}

// waitFor sends requests until the server sees an expected user or address.
func (l *session) waitFor(t *testing.T, url string, seen func(who, from string) bool) {
	t.Helper()
	porttest.Eventually(t, "the server sees the expected user and address", func() bool {
		who, from, err := l.whoami(url)
		return err == nil && seen(who, from)
	})
}

const node = "system:node:node-1"

func TestCredentials(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -time.Hour, time.Hour)
	write(t, filepath.Join(dir, "client.crt"), string(cert))
	write(t, filepath.Join(dir, "client.key"), string(key))
	write(t, filepath.Join(dir, "token"), "from-file\n")
	cases := []struct {
		name, want string
		user       map[string]any
	}{
		{"token", "secret", map[string]any{"token": "secret"}},
		{"token file", "from-file", map[string]any{"tokenFile": "token"}},
		{"embedded", node,
			map[string]any{"client-certificate-data": cert, "client-key-data": key}},
		{"files", node,
			map[string]any{"client-certificate": "client.crt", "client-key": "client.key"}},
		{"program", "from-program", map[string]any{"exec": map[string]any{
			"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
			"command": "echo", "args": []any{`{"kind": "ExecCredential", ` +
				`"apiVersion": "client.authentication.k8s.io/v1", ` +
				`"status": {"token": "from-program"}}`}}}},
	}
	for _, c := range cases {
		for _, rotate := range []bool{false, true} {
			l := startSession(t, Options{
				Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"), c.user),
				CertDir:    t.TempDir(), Rotate: rotate,
				Bootstrap: filepath.Join(dir, "none"), // as after kubeadm join
			})
			if who, _, err := l.whoami(f.url); who != c.want || len(l.warnings) > 0 {
				t.Errorf("%s: user %q, want %q; %v; warnings %q", c.name, who, c.want, err, l.warnings)
			}
			l.Close()
		}
	}
}

// countingTransport counts the requests that it passes on.
type countingTransport struct {
	http.RoundTripper
	requests int
}

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests++
	return c.RoundTripper.RoundTrip(r)
}

func TestRequestsAreTraced(t *testing.T) {
	f := newFake(t)
	traced := &countingTransport{}
	l := startSession(t, Options{CertDir: t.TempDir(),
		Kubeconfig: f.kubeconfig(filepath.Join(t.TempDir(), "kubeconfig"),
			map[string]any{"token": "secret"}),
		Trace: func(next http.RoundTripper) http.RoundTripper {
			traced.RoundTripper = next
			return traced
		}})
	if who, _, err := l.whoami(f.url); who != "secret" || err != nil || traced.requests != 1 {
		t.Errorf("user %q, %v, %d requests traced", who, err, traced.requests)
	}
}

// Each invalid field is an error that names the file and the field.
func TestInvalidKubeconfigs(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	path := f.kubeconfig(filepath.Join(dir, "kubeconfig"), map[string]any{"token": "secret"})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := f.authority.pair(t, node, -time.Hour, time.Hour)
	_, otherKey := f.authority.pair(t, node, -time.Hour, time.Hour)
	write(t, filepath.Join(dir, "client.crt"), string(cert))
	write(t, filepath.Join(dir, "other.key"), string(otherKey))
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Symlink("/dev/zero", filepath.Join(dir, "endless"))); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, old, new, want string }{
		{"no YAML", "apiVersion", "\t:", "yaml"},
		{"no context", "current-context: x", "", "current-context"},
		{"another context", "current-context: x", "current-context: z", `no context "z"`},
		{"no cluster", "cluster: c\n", "cluster: d\n", `contexts[x].cluster: there is no cluster "d"`},
		{"no user", "user: u\n", "user: v\n", `contexts[x].user: there is no user "v"`},
		{"no server", f.url, "", "clusters[c].server"},
		{"no URL", f.url, "127.0.0.1", "clusters[c].server"},
		{"no authority", "certificate-authority-data: ", "certificate-authority: none #",
			"clusters[c].certificate-authority: open " + filepath.Join(dir, "none")},
		{"empty authority", "certificate-authority-data: ", "certificate-authority: kubeconfig #",
			"clusters[c].certificate-authority: holds no certificate"},
		{"authority is a pipe", "certificate-authority-data: ", "certificate-authority: pipe #",
			"clusters[c].certificate-authority: " + filepath.Join(dir, "pipe is not a regular file")},
		{"token is a pipe", "token: secret", "tokenFile: pipe", "users[u].tokenFile: "},
		{"endless token", "token: secret", "tokenFile: endless", "is not a regular file"},
		{"certificate is a pipe", "token: secret", "{client-certificate: pipe, client-key: pipe}",
			"users[u].client-certificate: "},
		{"no token file", "token: secret", "tokenFile: none", "users[u].tokenFile: open"},
		{"no certificate", "token: secret", "{client-certificate: none, client-key: none}",
			"users[u].client-certificate: open"},
		{"key alone", "token: secret", "{client-key: other.key}", "users[u].client-certificate"},
		{"another's key", "token: secret",
			"{client-certificate: client.crt, client-key: other.key}",
			"users[u].client-certificate and client-key"},
	}
	for _, c := range cases {
		if !strings.Contains(string(good), c.old) {
			t.Fatalf("%s: nothing to replace", c.name)
		}
		write(t, path, strings.Replace(string(good), c.old, c.new, 1))
		_, err := Load(Options{Kubeconfig: path, NodeName: "node-1"})
		if err == nil || !strings.Contains(err.Error(), "--kubeconfig "+path) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	_, err = Load(Options{Kubeconfig: pipe, NodeName: "node-1"})
	if want := "--kubeconfig " + pipe; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the kubeconfig is a pipe: %v", err)
	}
	none := filepath.Join(dir, "none")
	_, err = Load(Options{Kubeconfig: none, Bootstrap: path, NodeName: "node-1"})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--bootstrap-kubeconfig") {
		t.Errorf("neither file can be used: %v", err)
	}
}

// Without a kubeconfig, a certificate is requested with the bootstrap token. Once obtained, the
// certificate is used, and the kubeconfig refers to it after a restart.
func TestBootstrap(t *testing.T) {
	for _, rotate := range []bool{false, true} {
		f := newFake(t)
		dir := t.TempDir()
		opts := Options{
			Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: filepath.Join(dir, "pki"),
			Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"}),
			Rotate:    rotate,
		}
		l := startSession(t, opts)
		if _, _, err := l.whoami(f.url); err == nil ||
			!strings.Contains(err.Error(), "no client certificate yet") {
			t.Errorf("without a certificate: %v", err)
		}
		close(f.approve)
		l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
		checkRequest(t, f)
		current := filepath.Join(dir, "pki", "kubelet-client-current.pem")
		written, err := os.ReadFile(opts.Kubeconfig)
		if err != nil || !strings.Contains(string(written), "client-certificate: "+current) {
			t.Errorf("the kubeconfig is %s, %v", written, err)
		}
		l.Close()

		opts.Bootstrap = filepath.Join(dir, "none")
		l = startSession(t, opts)
		if who, _, err := l.whoami(f.url); who != node || len(l.warnings) > 0 {
			t.Errorf("after a restart: user %q, %v, %q", who, err, l.warnings)
		}
		if len(f.csrRequesters()) != 1 {
			t.Errorf("certificates were requested by %q", f.csrRequesters())
		}
		l.Close()
	}
}

func checkRequest(t *testing.T, f *fake) {
	t.Helper()
	if !slices.Equal(f.csrRequesters(), []string{"boot"}) {
		t.Errorf("certificates were requested by %q", f.csrRequesters())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	spec := f.request.Spec
	if spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" {
		t.Errorf("signer %q", spec.SignerName)
	}
	if got := len(spec.Usages); got != 2 || !slices.Contains(spec.Usages, "client auth") {
		t.Errorf("usages %q", spec.Usages)
	}
}

// With an expired certificate another one is requested, if there is a bootstrap kubeconfig.
func TestExpired(t *testing.T) {
	f := newFake(t)
	close(f.approve)
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -2*time.Hour, -time.Hour)
	opts := Options{
		Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubelet.conf"),
			map[string]any{"client-certificate-data": cert, "client-key-data": key}),
		CertDir: dir, Bootstrap: filepath.Join(dir, "bootstrap"),
	}
	l := startSession(t, opts) // there is no bootstrap kubeconfig yet
	if len(l.warnings) != 1 || !strings.Contains(l.warnings[0], "has expired at") {
		t.Errorf("warnings %q", l.warnings)
	}
	l.Close()
	f.kubeconfig(opts.Bootstrap, map[string]any{"token": "boot"})
	l = startSession(t, opts)
	l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	if !slices.Equal(f.csrRequesters(), []string{"boot"}) {
		t.Errorf("certificates were requested by %q", f.csrRequesters())
	}
	l.Close()
}

// waitForRequests waits until certificates were requested so many times.
func (f *fake) waitForRequests(t *testing.T, count int) {
	t.Helper()
	porttest.Eventually(t, "certificates are requested", func() bool {
		return len(f.csrRequesters()) >= count
	})
}

// An agent that is started again and again waits for its first request.
func TestRestartsKeepTheRequest(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	opts := Options{Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: dir,
		Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"})}
	key := filepath.Join(dir, "kubelet-client.key.tmp")
	for range 3 {
		l := startSession(t, opts)
		f.waitForRequests(t, 1)
		l.Close()
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key is kept as %v, %v", info, err)
		}
	}
	close(f.approve)
	l := startSession(t, opts)
	l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	if got := f.csrRequesters(); len(got) != 1 {
		t.Errorf("certificates were requested by %q", got)
	}
	if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key is still there: %v", err)
	}
}

// An agent that ended after it had stored a certificate, and before it removed its key, requests
// the next certificate with another key.
func TestKeyOfCurrentCertificateIsReplaced(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -100*time.Hour, time.Hour)
	files, err := certificate.NewFileStore("kubelet-client", dir, dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	before, err := files.Update(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kubelet-client.key.tmp"), string(key))
	current := map[string]any{"client-certificate": files.CurrentPath(),
		"client-key": files.CurrentPath()}
	l := startSession(t, Options{Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubelet.conf"), current),
		CertDir: dir, Rotate: true})
	close(f.approve)
	porttest.Eventually(t, "the certificate is replaced", func() bool {
		now, err := l.currentCertificate()
		return err == nil && time.Since(now.Leaf.NotBefore) < time.Hour
	})
	now, err := l.currentCertificate()
	if err != nil || now.PrivateKey.(*ecdsa.PrivateKey).Equal(before.PrivateKey) {
		t.Errorf("the next certificate has the same key, %v", err)
	}
}

// After a denial, and with a torn key, there is a request with another key.
func TestDeniedRequest(t *testing.T) {
	f := newFake(t)
	f.deny.Store(true)
	close(f.approve)
	dir := t.TempDir()
	key := filepath.Join(dir, "kubelet-client.key.tmp")
	write(t, key, "-----BEGIN EC")
	l := startSession(t, Options{Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: dir,
		Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"})})
	f.waitForRequests(t, 2)
	f.deny.Store(false)
	l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	if m := l.Metrics()[0]; m.Value < 1 {
		t.Errorf("%v denied requests were counted", m.Value)
	}
}

// A certificate that is about to expire is replaced, and all connections are closed.
func TestRotation(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -100*time.Hour, time.Hour)
	l := startSession(t, Options{
		Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubelet.conf"),
			map[string]any{"client-certificate-data": cert, "client-key-data": key}),
		CertDir: dir, Rotate: true,
	})
	who, first, err := l.whoami(f.url)
	if who != node || err != nil {
		t.Fatalf("user %q, %v", who, err)
	}
	close(f.approve)
	l.waitFor(t, f.url, func(_, from string) bool { return from != first })
	if !slices.Equal(f.csrRequesters(), []string{node}) {
		t.Errorf("certificates were requested by %q", f.csrRequesters())
	}
	if now, err := l.currentCertificate(); err != nil || time.Since(now.Leaf.NotBefore) > time.Hour {
		t.Errorf("the certificate is from %v, %v", now.Leaf.NotBefore, err)
	}
}

// A torn certificate file is treated like a missing one.
func TestTornCertificateFile(t *testing.T) {
	f := newFake(t)
	close(f.approve)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "torn.pem"), "-----BEGIN CERT")
	if err := os.Symlink(filepath.Join(dir, "torn.pem"),
		filepath.Join(dir, "kubelet-client-current.pem")); err != nil {
		t.Fatal(err)
	}
	l := startSession(t, Options{
		Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: dir,
		Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"}),
	})
	l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	if len(l.warnings) < 2 {
		t.Errorf("warnings %q", l.warnings)
	}
}

// A stored certificate without a kubeconfig is used without a request.
func TestKubeconfigLost(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	cert, key := f.authority.pair(t, node, -time.Minute, time.Hour)
	write(t, filepath.Join(dir, "kubelet-client-current.pem"), string(cert)+string(key))
	l := startSession(t, Options{
		Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: dir, Rotate: true,
		Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"}),
	})
	if who, _, err := l.whoami(f.url); who != node {
		t.Errorf("user %q, %v", who, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubelet.conf")); err != nil ||
		len(f.csrRequesters()) > 0 {
		t.Errorf("certificates were requested by %q, %v", f.csrRequesters(), err)
	}
}

// A program on the path to a server of plain HTTP can take its place.
func TestPlainServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	f := newFake(t)
	for server, want := range map[string]string{"http://192.0.2.1:8080": "is not encrypted",
		"https://192.0.2.1:6443": ""} {
		f.url = server
		for _, opts := range []Options{
			{Kubeconfig: f.kubeconfig(path, map[string]any{"token": "secret"})},
			{Kubeconfig: path + ".none", Bootstrap: path, CertDir: t.TempDir()},
		} {
			var warnings []string
			opts.Warn = func(problem string) { warnings = append(warnings, problem) }
			i, err := Load(opts)
			if err != nil {
				t.Fatal(err)
			}
			i.Close()
			warned := strings.Contains(strings.Join(warnings, "\n"), "server: "+server+" is not encrypted")
			if warned != (want != "") {
				t.Errorf("%s: warnings %q", server, warnings)
			}
		}
	}
}

// A client that gets 401 uses a changed certificate file only over a new connection.
func TestUnauthorizedClient(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	put := func(name string) {
		cert, key := f.authority.pair(t, name, -time.Hour, time.Hour)
		write(t, filepath.Join(dir, "client.pem"), string(cert)+string(key))
	}
	put("stranger")
	l := startSession(t, Options{Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"),
		map[string]any{"client-certificate": "client.pem", "client-key": "client.pem"})})
	if who, _, err := l.whoami(f.url); who != "who" || err != nil {
		t.Errorf("response %q, %v", who, err)
	}
	put(node)
	l.waitFor(t, f.url, func(who, _ string) bool {
		l.conn.keepUntil.Store(&time.Time{})
		return who == node
	})
}

// A server certificate of another authority is accepted once the CA file contains the authority.
func TestAuthorityIsReplaced(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	path := f.kubeconfig(filepath.Join(dir, "kubeconfig"), map[string]any{"token": "secret"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	config["clusters"] = []any{map[string]any{"name": "c", "cluster": map[string]any{
		"server": f.url, "certificate-authority": "ca.crt"}}}
	if text, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(text))
	ca := filepath.Join(dir, "ca.crt")
	other, _ := newAuthority(t).pair(t, "other", -time.Hour, time.Hour)
	write(t, ca, string(other))
	l := startSession(t, Options{Kubeconfig: path})
	if _, _, err := l.whoami(f.url); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown authority: %v", err)
	}
	write(t, ca, string(f.ca))
	who, from, err := l.whoami(f.url)
	if err != nil || who != "secret" {
		t.Errorf("%q, %v", who, err)
	}
	if _, again, err := l.whoami(f.url); err != nil || again != from {
		t.Errorf("from %s after %s, %v: want one connection", again, from, err)
	}
	write(t, ca, string(other))
	l.conn.CloseAll()
	if _, _, err := l.whoami(f.url); err == nil {
		t.Error("a server of a removed authority was accepted")
	}
}
