package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/porttest"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: c, cluster: {server: "%s", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`

// With an unusable kubeconfig the agent exits with an error that names the file and the field.
func TestBadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "kubelet.conf"), fmt.Sprintf(kubeconfig, "https://x"))
	none := filepath.Join(dir, "none")
	for want, args := range map[string][]string{
		bad + ": clusters[c].certificate-authority": {"--kubeconfig", bad},
		none:                            {"--kubeconfig", none},
		"--bootstrap-kubeconfig " + bad: {"--kubeconfig", none, "--bootstrap-kubeconfig", bad},
	} {
		cmd := command(t, append(args, "--root-dir", dir)...)
		out, _ := cmd.CombinedOutput() // the exit code is checked below
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if last := lines[len(lines)-1]; cmd.ProcessState.ExitCode() != 1 ||
			!strings.HasPrefix(last, "Error: --kubeconfig ") || !strings.Contains(last, want) {
			t.Errorf("exit code %d, says %q, want %q", cmd.ProcessState.ExitCode(), last, want)
		}
	}
}

// With a kubeconfig the agent lists its pods. Static pods run whatever the API server responds.
func TestWithAPIServer(t *testing.T) {
	asked := make(chan string, 1024)
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get("Authorization") + " " + r.UserAgent() + " " + r.URL.String()
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}))
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "manifests", "web.yaml"), pod)
	write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	readOnly := freePort(t)
	cmd := command(t,
		"--kubeconfig", write(t, filepath.Join(dir, "kubelet.conf"),
			fmt.Sprintf(kubeconfig, server.URL)),
		"--config", write(t, filepath.Join(dir, "config.yaml"), header+
			"staticPodPath: manifests\naddress: 127.0.0.1\n"),
		"--cert-dir", filepath.Join(dir, "pki"), "--root-dir", filepath.Join(dir, "root"),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--hostname-override", "node-a", "--healthz-port", "0", "--enable-server=false",
		"--read-only-port", fmt.Sprint(readOnly))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitRequest(t, asked, "spec.nodeName%3Dnode-a")
	var list v1.PodList
	end := time.Now().Add(porttest.Patience)
	for ; len(list.Items) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no pods; it says:\n%s", log.String())
		}
		if err := json.Unmarshal([]byte(get(t, readOnly, "/pods")), &list); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v; it says:\n%s", err, log.String())
	}
}

// awaitRequest waits for a request of the agent that contains the given texts.
func awaitRequest(t *testing.T, asked <-chan string, words string) {
	t.Helper()
	for late := time.After(porttest.Patience); ; {
		select {
		case request := <-asked:
			if !strings.HasPrefix(request, "Bearer secret ") || !strings.Contains(request, version) {
				t.Errorf("asked by somebody else: %s", request)
			}
			if strings.Contains(request, words) {
				return
			}
		case <-late:
			t.Fatalf("no request with %s", words)
		}
	}
}
