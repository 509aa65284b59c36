package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/porttest"
)

// signingRequest returns the request of a new node for its certificate.
func signingRequest(node string) (string, error) {
	key, err := newKey()
	if err != nil {
		return "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{nodesGroup}},
	}, key)
	if err != nil {
		return "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return `{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": {"name": "` + node + `"}, "spec": {
			"request": "` + base64.StdEncoding.EncodeToString(text) + `",
			"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
			"usages": ["digital signature", "client auth"]}}`, nil
}

// TestVersionIsTheModules compares the version that is linked into the programs with the version of
// their module.
func TestVersionIsTheModules(t *testing.T) {
	data, err := os.ReadFile("tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.Contains(text, "\tk8s.io/kubernetes "+Version+"\n") {
		t.Errorf("tools/go.mod does not require %s", Version)
	}
	staging := "v0" + strings.TrimPrefix(Version, "v1")
	for _, line := range regexp.MustCompile(`(?m)^\t.* => .*$`).FindAllString(text, -1) {
		if !strings.HasSuffix(line, " "+staging) {
			t.Errorf("replaced by another version than %s: %s", staging, line)
		}
	}
	for _, name := range modules[0].programs {
		if !strings.Contains(text, "\tk8s.io/kubernetes/cmd/"+name+"\n") {
			t.Errorf("tools/go.mod has no tool line of %s", name)
		}
	}
}

// TestToolLines compares the programs of each module with the tool lines that build them.
func TestToolLines(t *testing.T) {
	for _, m := range modules {
		text, err := os.ReadFile(m.dir + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.programs {
			if !regexp.MustCompile(`(?m)[\t ]\S+/cmd/` + name + "$").Match(text) {
				t.Errorf("%s/go.mod has no tool line of %s", m.dir, name)
			}
		}
	}
}

// TestAuthority connects by TLS in both directions with certificates of the same and of another
// authority.
func TestAuthority(t *testing.T) {
	ca, _, err := newAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := newAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.issue(pkix.Name{CommonName: "server"}, nil, addresses(loopback))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	certificate, err := tls.X509KeyPair(serving.certificate, serving.key)
	if err != nil {
		t.Fatal(err)
	}
	var user pkix.Name
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			user = r.TLS.PeerCertificates[0].Subject
		}))
	server.Config.ErrorLog = porttest.ErrorLog(t) // of rejected clients
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()
	for _, c := range []struct {
		name          string
		trusts, shows *authority
		good          bool
	}{
		{"one authority", ca, ca, true},
		{"a server of another authority", other, ca, false},
		{"a client of another authority", ca, other, false},
	} {
		p, err := c.shows.client("jane", "readers")
		if err != nil {
			t.Fatal(err)
		}
		client, err := newClient(c.trusts.certificate, p)
		if err != nil {
			t.Fatal(err)
		}
		user = pkix.Name{}
		err = get(t.Context(), client, server.URL)
		if c.good != (err == nil) || c.good != (user.CommonName == "jane") {
			t.Errorf("%s: %v, user %v", c.name, err, user)
		}
		if c.good && !slices.Equal(user.Organization, []string{"readers"}) {
			t.Errorf("groups %q, want readers", user.Organization)
		}
	}
}

// daemonOf returns a shell script as a component.
func daemonOf(t *testing.T, script string) *cleanup.Daemon {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	return &cleanup.Daemon{Program: shell, Args: []string{"-c", script},
		LogFile: filepath.Join(t.TempDir(), "log")}
}

// TestServeTakesAnotherPort makes another process take the port of a component twice.
func TestServeTakesAnotherPort(t *testing.T) {
	var made int
	c := &Cluster{options: Options{Progress: func(string) {}}}
	component := func(last string) func() (*cleanup.Daemon, error) {
		made = 0
		return func() (*cleanup.Daemon, error) {
			if made++; made == startTriesMax {
				return daemonOf(t, last), nil
			}
			return daemonOf(t, "echo listen: address already in use"), nil
		}
	}
	never := func(context.Context) error { return errors.New("not yet") }
	var d *cleanup.Daemon
	ready := func(ctx context.Context) error {
		if made < startTriesMax {
			return never(ctx)
		}
		return nil
	}
	err := c.startComponent(t.Context(), &d, component("exec sleep 60"), ready)
	if err != nil || !d.Running() {
		t.Errorf("the third try: %v, running %t", err, d.Running())
	}
	if err := d.Kill(); err != nil {
		t.Error(err)
	}
	err = c.startComponent(t.Context(), &d, component("echo out of luck"), never)
	if err == nil || !strings.HasSuffix(err.Error(), "sh ended by itself:\nout of luck") {
		t.Errorf("got %v, want the end of the log", err)
	}
	err = c.startComponent(t.Context(), &d, func() (*cleanup.Daemon, error) {
		return daemonOf(t, "echo bad flag"), nil
	}, never)
	if err == nil || !strings.HasSuffix(err.Error(), "bad flag") {
		t.Errorf("got %v, want the end of the log", err)
	}
}

func TestFreeAddress(t *testing.T) {
	address, err := freeAddress(loopback)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("%s is not free: %v", address, err)
	}
	_ = l.Close() // only a test of listening
}

// TestSweepStale removes the directory of a dead owner, and no other.
func TestSweepStale(t *testing.T) {
	parent := t.TempDir()
	mark := func(name string, age time.Duration) (string, *os.File) {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := lockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(lockPath(dir), then, then); err != nil {
			t.Fatal(err)
		}
		return dir, lock
	}
	held, holder := mark(dirPrefix+"held", time.Hour)
	dead, owner := mark(dirPrefix+"dead", time.Hour)
	fresh, starter := mark(dirPrefix+"fresh", 0)
	foreign, stranger := mark("foreign", time.Hour)
	for _, lock := range []*os.File{owner, starter, stranger} {
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sweepStale(parent)
	for _, dir := range []string{held, fresh, foreign} {
		if _, err := os.Lstat(dir); err != nil {
			t.Errorf("%s was swept", dir)
		}
	}
	if _, err := os.Lstat(dead); err == nil {
		t.Errorf("%s still exists", dead)
	}
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
}
