package identity

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
)

// fileSession starts a session with a client certificate in a file, and returns how to replace it.
func fileSession(t *testing.T, f *fake) (l *session, put func(pem string)) {
	t.Helper()
	dir := t.TempDir()
	put = func(pem string) {
		write(t, filepath.Join(dir, "new.pem"), pem)
		err := os.Rename(filepath.Join(dir, "new.pem"), filepath.Join(dir, "client.pem"))
		if err != nil {
			t.Fatal(err)
		}
	}
	put(f.pem(t, "first"))
	return startSession(t, Options{Kubeconfig: f.kubeconfig(filepath.Join(dir, "kubeconfig"),
		map[string]any{"client-certificate": "client.pem", "client-key": "client.pem"})}), put
}

// pem returns a certificate of a name with its key, in one file's content.
func (f *fake) pem(t *testing.T, name string) string {
	t.Helper()
	cert, key := f.authority.pair(t, name, -time.Hour, time.Hour)
	return string(cert) + string(key)
}

// A changed certificate file is used over a new connection, although the server accepts the old
// certificate as well and no response is a 401. Open requests of other connections end.
func TestChangedFileMakesNewConnections(t *testing.T) {
	f := newFake(t)
	l, put := fileSession(t, f)
	who, first, err := l.whoami(f.url)
	if who != "first" || err != nil {
		t.Fatalf("user %q, %v", who, err)
	}
	watching, err := l.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watching.Close)
	ended := make(chan error, 1)
	go func() {
		response, err := watching.Client.Get(f.url + csrPath + "?watch=true")
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	porttest.Eventually(t, "the watch has started", func() bool { return f.watches.Load() == 1 })

	put(f.pem(t, "second"))
	l.waitFor(t, f.url, func(who, from string) bool { return who == "second" && from != first })
	if err := <-ended; err == nil || strings.Contains(err.Error(), "deadline") {
		t.Errorf("the watch with the old certificate has ended with %v", err)
	}
	response, err := watching.Client.Get(f.url + "/whoami")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
	if len(l.warnings) > 0 || !l.NotAfter().After(time.Now()) {
		t.Errorf("warnings %q; a certificate until %s", l.warnings, l.NotAfter())
	}
}

// Files that have the same certificate again, or that are torn, close no connection.
func TestUnchangedCertificateKeepsConnections(t *testing.T) {
	f := newFake(t)
	l, put := fileSession(t, f)
	pem := f.pem(t, "second")
	put(pem)
	var first string
	l.waitFor(t, f.url, func(who, from string) bool { first = from; return who == "second" })
	for _, content := range []string{pem, pem[:len(pem)/2], pem} {
		put(content)
		if who, from, err := l.whoami(f.url); who != "second" || from != first || err != nil {
			t.Errorf("user %q from %s after %s, %v", who, from, first, err)
		}
	}
	if len(l.warnings) != 1 || !strings.Contains(l.warnings[0], "stays in use") {
		t.Errorf("warnings %q", l.warnings)
	}
}
