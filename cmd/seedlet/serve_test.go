package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/porttest"
)

// getSecure sends a request to the secure port, with a token if it is not empty.
func getSecure(t *testing.T, port int, token, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	url := fmt.Sprintf("https://127.0.0.1:%d%s", port, path)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// checkSecurePort requests the paths that an authorized client may read.
func checkSecurePort(t *testing.T, port int) {
	t.Helper()
	for path, want := range map[string]string{
		"/healthz":     "ok",
		"/pods":        `"kind":"PodList"`,
		"/metrics":     "seedlet_step_duration_seconds_count",
		"/debug/state": "{",
		"/configz":     `{"kubeletconfig":{`,
		"/statusz":     "1.36.3",
		"/flagz":       "authorization-mode",
		"/logs/":       "<pre>",
	} {
		code, body := getSecure(t, port, "", path)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, no %q in %q", path, code, want, body)
		}
		if strings.Contains(body, "far") && (path == "/configz" || path == "/flagz") {
			t.Errorf("%s shows a header of the manifest URL: %s", path, body)
		}
	}
}

// reviews is an API server that knows the tokens that begin with "good". All users may read metrics
// and the configuration.
func reviews(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	asked, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch review := asked.(type) {
	case *authenticationv1.TokenReview:
		review.Kind, review.APIVersion = "TokenReview", "authentication.k8s.io/v1"
		review.Status.Authenticated = strings.HasPrefix(review.Spec.Token, "good")
		review.Status.User.Username = "jane"
	case *authorizationv1.SubjectAccessReview:
		review.Kind, review.APIVersion = "SubjectAccessReview", "authorization.k8s.io/v1"
		subresource := review.Spec.ResourceAttributes.Subresource
		review.Status.Allowed = subresource == "metrics" || subresource == "configz"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked) // the client may have disconnected
}

// A stream may be idle for ever with 0, as the kubelet's flag says.
func TestIdleTimeout(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{
		0: math.MaxInt64, -time.Second: math.MaxInt64, time.Minute: time.Minute} {
		c := &kubeletconfig.KubeletConfiguration{
			StreamingConnectionIdleTimeout: metav1.Duration{Duration: configured}}
		if got := idleTimeout(c); got != want {
			t.Errorf("%v: %v, want %v", configured, got, want)
		}
	}
}

// The secure port with its defaults and an API server: unauthenticated clients are refused, others
// may do what the API server allows.
func TestSecurePort(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(reviews))
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	port := freePort(t)
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd := command(t, "--config", write(t, filepath.Join(dir, "config.yaml"), header),
		"--address", "127.0.0.1", "--port", fmt.Sprint(port),
		"--kubeconfig", write(t, filepath.Join(dir, "kubelet.conf"),
			fmt.Sprintf(kubeconfig, server.URL)),
		"--cert-dir", filepath.Join(dir, "pki"), "--root-dir", filepath.Join(dir, "root"),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--hostname-override", "node-a", "--healthz-port", "0")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-notified: // all ports are open
	case <-time.After(porttest.Patience):
		t.Fatalf("it does not begin; it says:\n%s", log.String())
	}
	for _, c := range []struct {
		token, path string
		code        int
		text        string
	}{
		{"", "/metrics", http.StatusUnauthorized, "Unauthorized"},
		{"bad", "/metrics", http.StatusUnauthorized, "Unauthorized"},
		{"good", "/metrics", http.StatusOK, "# HELP"},
		{"good", "/pods", http.StatusForbidden,
			"Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"good", "/debug/state", http.StatusForbidden,
			"Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[proxy])\n"},
	} {
		code, body := getSecure(t, port, c.token, c.path)
		if code != c.code || !strings.HasPrefix(body, c.text) {
			t.Errorf("%s with token %q: %d %.100q, want %d %q", c.path, c.token, code, body, c.code,
				c.text)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v; it says:\n%s", err, log.String())
	}
}
