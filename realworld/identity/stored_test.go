package identity

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/certificate"

	"seedlet.dev/realworld/porttest"
)

// embedded is a node whose kubeconfig embeds a certificate, before the agent starts.
type embedded struct {
	fake      *fake
	opts      Options
	cert, key []byte
	warnings  []string
}

// newEmbedded makes a kubeconfig whose certificate is valid between two times from now.
func newEmbedded(t *testing.T, from, to time.Duration) *embedded {
	t.Helper()
	e := &embedded{fake: newFake(t)}
	dir := t.TempDir()
	e.cert, e.key = e.fake.authority.pair(t, node, from, to)
	e.opts = Options{CertDir: filepath.Join(dir, "pki"), NodeName: "node-1", Rotate: true,
		Kubeconfig: e.fake.kubeconfig(filepath.Join(dir, "kubelet.conf"), map[string]any{
			"client-certificate-data": e.cert, "client-key-data": e.key}),
		Warn: func(problem string) { e.warnings = append(e.warnings, problem) }}
	return e
}

// load reads the credentials, as the agent does at its start before it opens its ports.
func (e *embedded) load(t *testing.T) *Identity {
	t.Helper()
	i, err := Load(e.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// current returns the path of the stored certificate.
func (e *embedded) current() string {
	return filepath.Join(e.opts.CertDir, "kubelet-client-current.pem")
}

// pemOf returns a certificate in its encoding.
func pemOf(cert *tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Leaf.Raw})
}

// checkStored checks the content of the stored file, and that only the owner can read its key.
func (e *embedded) checkStored(t *testing.T, cert, key []byte) {
	t.Helper()
	data, err := os.ReadFile(e.current())
	if want := append(bytes.Clone(cert), key...); err != nil || !bytes.Equal(data, want) {
		t.Errorf("stored: %s, %v; want %s", data, err, want)
	}
	if info, err := os.Stat(e.current()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the stored file: %v, %v", info, err)
	}
}

// store stores a certificate that ends at a time from now, as an earlier agent has.
func (e *embedded) store(t *testing.T, to time.Duration) (cert, key []byte) {
	t.Helper()
	files, err := certificate.NewFileStore(pairName, e.opts.CertDir, e.opts.CertDir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	cert, key = e.fake.authority.pair(t, node, -2*time.Hour, to)
	if _, err := files.Update(cert, key); err != nil {
		t.Fatal(err)
	}
	// The name of a stored file has a second: the next one has another.
	earlier := filepath.Join(e.opts.CertDir, pairName+"-earlier.pem")
	now, err := os.Readlink(e.current())
	if err := errors.Join(err, os.Rename(now, earlier), os.Remove(e.current()),
		os.Symlink(earlier, e.current())); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// The embedded certificate is stored before Load returns, and the next one is requested at once.
func TestEmbeddedIsStored(t *testing.T) {
	e := newEmbedded(t, -time.Hour, time.Hour)
	i := e.load(t)
	e.checkStored(t, e.cert, e.key)
	if cert, err := i.currentCertificate(); err != nil || time.Until(i.managed.renewal.due) > 0 {
		t.Errorf("in use: %v, %v; the next one is requested at %v", cert, err, i.managed.renewal.due)
	}
	if len(e.warnings) > 0 {
		t.Errorf("warnings %q", e.warnings)
	}
	i = e.load(t) // a restart: the stored one is valid, and no file is added
	files, err := filepath.Glob(filepath.Join(e.opts.CertDir, "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("files after a restart: %q, %v", files, err)
	}
	if time.Until(i.managed.renewal.due) < 0 {
		t.Errorf("after a restart, the next certificate is requested at %v", i.managed.renewal.due)
	}
}

// A kubelet stores an expired certificate too, if the kubeconfig is all it has. Restarts add no
// files.
func TestExpiredEmbedded(t *testing.T) {
	e := newEmbedded(t, -2*time.Hour, -time.Hour)
	for range 2 {
		e.warnings = nil
		i := e.load(t)
		e.checkStored(t, e.cert, e.key)
		if _, err := i.currentCertificate(); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("an expired certificate is used: %v", err)
		}
		if len(e.warnings) != 1 || !strings.Contains(e.warnings[0], "has expired at") {
			t.Errorf("warnings %q", e.warnings)
		}
	}
	if files, err := filepath.Glob(filepath.Join(e.opts.CertDir, "*")); len(files) != 2 {
		t.Errorf("files: %q, %v", files, err)
	}
}

// Without rotation, and for credentials that cannot be rotated, nothing is stored; a pair in files
// can be rotated where it is.
func TestOthersAreNotStored(t *testing.T) {
	e := newEmbedded(t, -time.Hour, time.Hour)
	dir := filepath.Dir(e.opts.Kubeconfig)
	write(t, filepath.Join(dir, "client.crt"), string(e.cert))
	write(t, filepath.Join(dir, "client.key"), string(e.key))
	for name, c := range map[string]struct {
		rotate bool
		user   map[string]any
	}{
		"no rotation": {false, map[string]any{
			"client-certificate-data": e.cert, "client-key-data": e.key}},
		"token": {true, map[string]any{"token": "secret"}},
		"files": {true, map[string]any{
			"client-certificate": "client.crt", "client-key": "client.key"}},
	} {
		e.opts.Rotate = c.rotate
		e.fake.kubeconfig(e.opts.Kubeconfig, c.user)
		e.load(t)
		if _, err := os.Lstat(e.current()); !errors.Is(err, fs.ErrNotExist) || len(e.warnings) > 0 {
			t.Errorf("%s: stored: %v; warnings %q", name, err, e.warnings)
		}
	}
}

// A certificate that does not match its key is an error that names the file, and nothing is stored.
func TestMismatchedEmbedded(t *testing.T) {
	e := newEmbedded(t, -time.Hour, time.Hour)
	_, key := e.fake.authority.pair(t, node, -time.Hour, time.Hour)
	e.fake.kubeconfig(e.opts.Kubeconfig, map[string]any{
		"client-certificate-data": e.cert, "client-key-data": key})
	_, err := Load(e.opts)
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig "+e.opts.Kubeconfig) ||
		!strings.Contains(err.Error(), "client-certificate and client-key") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(e.opts.CertDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of certificates: %v", err)
	}
}

// A valid stored certificate is used and kept; one that has expired or is torn is replaced.
func TestStoredAndEmbedded(t *testing.T) {
	e := newEmbedded(t, -time.Hour, time.Hour)
	cert, key := e.store(t, time.Hour)
	i := e.load(t)
	e.checkStored(t, cert, key)
	if current, err := i.currentCertificate(); err != nil || !bytes.Equal(pemOf(current), cert) {
		t.Errorf("in use: %v, %v", current, err)
	}

	e = newEmbedded(t, -time.Hour, time.Hour)
	e.store(t, -time.Hour)
	e.load(t)
	e.checkStored(t, e.cert, e.key)
	if len(e.warnings) > 0 {
		t.Errorf("warnings %q", e.warnings)
	}

	e = newEmbedded(t, -time.Hour, time.Hour)
	e.store(t, time.Hour)
	write(t, filepath.Join(e.opts.CertDir, pairName+"-earlier.pem"), "-----BEGIN CERT")
	e.load(t)
	e.checkStored(t, e.cert, e.key)
	if len(e.warnings) != 1 || !strings.Contains(e.warnings[0], e.current()) {
		t.Errorf("warnings %q", e.warnings)
	}
}

// An agent that ended while it stored the certificate stores it at its next start.
func TestStoringIsInterrupted(t *testing.T) {
	complete := func(e *embedded) string { return string(e.cert) + string(e.key) }
	torn := func(e *embedded) string { return complete(e)[:len(e.cert)+10] }
	for name, c := range map[string]struct {
		content func(e *embedded) string
		links   []string // that refer to the file
	}{
		"no file yet":                      {nil, nil},
		"a torn file":                      {torn, nil},
		"a file without a link":            {complete, nil},
		"a link that is not renamed":       {complete, []string{"updated"}},
		"a link to a file that was lost":   {torn, []string{"current"}},
		"an earlier link that was renamed": {complete, []string{"current", "updated"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEmbedded(t, -time.Hour, time.Hour)
			file := filepath.Join(e.opts.CertDir, pairName+"-2026-01-01-00-00-00.pem")
			if err := os.MkdirAll(e.opts.CertDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.content != nil {
				write(t, file, c.content(e))
			}
			for _, link := range c.links {
				path := filepath.Join(e.opts.CertDir, pairName+"-"+link+".pem")
				if err := os.Symlink(file, path); err != nil {
					t.Fatal(err)
				}
			}
			e.load(t)
			e.checkStored(t, e.cert, e.key)
		})
	}
}

// If the certificate cannot be stored, the error names the file, and the agent goes on with the
// embedded one.
func TestUnwritableDirectory(t *testing.T) {
	e := newEmbedded(t, -time.Hour, time.Hour)
	e.opts.CertDir = "/proc/self/pki" // not even root can write there
	i := e.load(t)
	if len(e.warnings) != 1 || !strings.Contains(e.warnings[0], e.opts.CertDir) ||
		!strings.Contains(e.warnings[0], "--kubeconfig "+e.opts.Kubeconfig) {
		t.Errorf("warnings %q", e.warnings)
	}
	if cert, err := i.currentCertificate(); err != nil || !bytes.Equal(pemOf(cert), e.cert) {
		t.Errorf("in use: %v", err)
	}

	e = newEmbedded(t, -time.Hour, time.Hour)
	write(t, e.current(), "a file that is no link and no certificate")
	e.load(t)
	if len(e.warnings) != 2 || !strings.Contains(e.warnings[1], e.current()) {
		t.Errorf("warnings %q", e.warnings)
	}
}

// The certificate that follows the embedded one is requested at the first start, and awaited by the
// next: "kubeadm init" changes the kubeconfig and restarts the agent as soon as the file exists.
func TestSuccessorAfterRestart(t *testing.T) {
	e := newEmbedded(t, -time.Hour, 1000*time.Hour)
	l := startSession(t, e.opts)
	e.fake.waitForRequests(t, 1)
	l.Close()
	e.checkStored(t, e.cert, e.key)
	e.fake.kubeconfig(e.opts.Kubeconfig, map[string]any{
		"client-certificate": e.current(), "client-key": e.current()})
	close(e.fake.approve)
	l = startSession(t, e.opts)
	requested := filepath.Join(e.opts.CertDir, pairName+".key.tmp")
	porttest.Eventually(t, "the embedded certificate is replaced", func() bool {
		_, err := os.Stat(requested)
		current, problem := l.currentCertificate()
		return errors.Is(err, fs.ErrNotExist) && problem == nil && !bytes.Equal(pemOf(current), e.cert)
	})
	if got := e.fake.csrRequesters(); len(got) != 1 {
		t.Errorf("certificates were requested by %q", got)
	}
	l.Close()
	_, key := e.fake.authority.pair(t, node, -time.Hour, time.Hour)
	for content, want := range map[string]bool{"torn": false, string(e.key): true, string(key): true} {
		write(t, requested, content)
		stored, err := currentPair(l.managed.files)
		if err != nil || hasUnfinishedRequest(l.managed.files, stored) != want {
			t.Errorf("key %q: a request is unfinished: %v, %v", content, !want, err)
		}
	}
	data, err := os.ReadFile(e.current())
	if err != nil {
		t.Fatal(err)
	}
	write(t, requested, string(data[bytes.Index(data, []byte("-----BEGIN EC")):]))
	if stored, err := currentPair(l.managed.files); err != nil ||
		hasUnfinishedRequest(l.managed.files, stored) {
		t.Errorf("the request of the stored certificate is unfinished: %v", err)
	}
}

// While the client certificate has expired, the agent looks for another one that an administrator
// lays down: in the kubeconfig, which is not written then, or where the kubeconfig refers to. The
// next certificate is requested with it, as at a start.
func TestKubeconfigIsReadAgain(t *testing.T) {
	for name, layDown := range map[string]func(t *testing.T, e *embedded, cert, key []byte){
		"embedded": func(_ *testing.T, e *embedded, cert, key []byte) {
			e.fake.kubeconfig(e.opts.Kubeconfig, map[string]any{
				"client-certificate-data": cert, "client-key-data": key})
		},
		"files": func(t *testing.T, e *embedded, cert, key []byte) {
			pem := filepath.Join(filepath.Dir(e.opts.Kubeconfig), "client.pem")
			write(t, pem, string(cert)+string(key))
			e.fake.kubeconfig(e.opts.Kubeconfig, map[string]any{
				"client-certificate": "client.pem", "client-key": "client.pem"})
		},
		"stored": func(t *testing.T, e *embedded, cert, key []byte) {
			write(t, e.current(), string(cert)+string(key))
		},
	} {
		for _, bootstrap := range []string{"", "none"} {
			t.Run(name+bootstrap, func(t *testing.T) {
				e := newEmbedded(t, -2*time.Hour, -time.Hour)
				if bootstrap != "" { // as after kubeadm join
					e.opts.Bootstrap = filepath.Join(t.TempDir(), bootstrap)
				}
				l := startSession(t, e.opts)
				if _, _, err := l.whoami(e.fake.url); err == nil ||
					!strings.Contains(err.Error(), "has expired") {
					t.Fatalf("a request with an expired certificate: %v", err)
				}
				cert, key := e.fake.authority.pair(t, node, -time.Hour, 100*time.Hour)
				layDown(t, e, cert, key)
				before, err := os.ReadFile(e.opts.Kubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				l.waitFor(t, e.fake.url, func(who, _ string) bool { return who == node })
				if name != "stored" {
					e.fake.waitForRequests(t, 1)
				}
				l.Close()
				if got := e.fake.csrRequesters(); len(got) > 0 && got[0] != node {
					t.Errorf("certificates were requested by %q", got)
				}
				if after, err := os.ReadFile(e.opts.Kubeconfig); !bytes.Equal(after, before) {
					t.Errorf("the kubeconfig was written: %s, %v", after, err)
				}
				if name == "embedded" {
					e.checkStored(t, cert, key)
				}
			})
		}
	}
}

// A bootstrap does not write a kubeconfig that an administrator lays down meanwhile.
func TestKubeconfigDuringBootstrap(t *testing.T) {
	e := newEmbedded(t, -2*time.Hour, -time.Hour)
	e.opts.Bootstrap = e.fake.kubeconfig(filepath.Join(t.TempDir(), "bootstrap"),
		map[string]any{"token": "stranger"})
	l := startSession(t, e.opts)
	cert, key := e.fake.authority.pair(t, node, -time.Hour, 100*time.Hour)
	e.fake.kubeconfig(e.opts.Kubeconfig, map[string]any{
		"client-certificate-data": cert, "client-key-data": key})
	l.waitFor(t, e.fake.url, func(who, _ string) bool { return who == node })
	data, err := os.ReadFile(e.opts.Kubeconfig)
	if err != nil || !strings.Contains(string(data), "client-key-data") {
		t.Errorf("the kubeconfig was written: %s, %v", data, err)
	}
}

// Nor does it write one that comes while the request of the bootstrap awaits its approval.
func TestKubeconfigDuringApproval(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	opts := Options{Kubeconfig: filepath.Join(dir, "kubelet.conf"), CertDir: dir,
		Bootstrap: f.kubeconfig(filepath.Join(dir, "bootstrap"), map[string]any{"token": "boot"})}
	l := startSession(t, opts)
	f.waitForRequests(t, 1)
	cert, key := f.authority.pair(t, node, -time.Hour, 100*time.Hour)
	f.kubeconfig(opts.Kubeconfig, map[string]any{"client-certificate-data": cert,
		"client-key-data": key})
	close(f.approve)
	l.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	data, err := os.ReadFile(opts.Kubeconfig)
	if err != nil || !strings.Contains(string(data), "client-key-data") {
		t.Errorf("the kubeconfig was written: %s, %v", data, err)
	}
}
