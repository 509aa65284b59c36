package identity

import (
	"path/filepath"
	"testing"
	"time"
)

// The end of the certificate in use is known wherever the certificate is from, and of one that has
// expired until it has a successor.
func TestNotAfter(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	now := time.Now()
	isIn := func(at time.Time, d time.Duration) bool { return at.Sub(now.Add(d)).Abs() < time.Hour/2 }
	pair := func(d time.Duration) map[string]any {
		cert, key := f.authority.pair(t, node, -9*time.Hour, d)
		return map[string]any{"client-certificate-data": cert, "client-key-data": key}
	}
	load := func(user map[string]any, rotate bool) *session {
		return startSession(t, Options{CertDir: t.TempDir(), Rotate: rotate,
			Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"), user),
			Bootstrap:  f.kubeconfig(filepath.Join(dir, "boot"), map[string]any{"token": "boot"})})
	}
	for _, rotate := range []bool{false, true} {
		if at := load(pair(5*time.Hour), rotate).NotAfter(); !isIn(at, 5*time.Hour) {
			t.Errorf("embedded, rotation %v: %s", rotate, at)
		}
	}
	if at := load(map[string]any{"token": "secret"}, true).NotAfter(); !at.IsZero() {
		t.Errorf("a token has a certificate until %s", at)
	}
	expired := load(pair(-3*time.Hour), true)
	if at := expired.NotAfter(); !isIn(at, -3*time.Hour) {
		t.Errorf("expired: %s", at)
	}
	close(f.approve)
	expired.waitFor(t, f.url, func(who, _ string) bool { return who == node })
	if at := expired.NotAfter(); !isIn(at, time.Hour) {
		t.Errorf("its successor: %s", at)
	}

	cert, key := f.authority.pair(t, node, -9*time.Hour, 7*time.Hour)
	files := ServingOptions{CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key")}
	put := func() { write(t, files.CertFile, string(cert)); write(t, files.KeyFile, string(key)) }
	put()
	serving := newServing(t, files)
	cert, key = f.authority.pair(t, node, -9*time.Hour, -time.Hour)
	put()
	if at := serving.NotAfter(); !isIn(at, -time.Hour) {
		t.Errorf("replaced files of a serving certificate: %s", at)
	}
	own := newServing(t, ServingOptions{CertDir: t.TempDir(), HostName: "node-1"})
	if at := own.NotAfter(); !at.IsZero() {
		t.Errorf("self-signed: %s", at)
	}
}
