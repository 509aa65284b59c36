package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/porttest"
)

// The command is tested as a process: the test binary starts itself as seedlet.
const runVariable = "SEEDLET_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		if err := protectMachine(); err != nil {
			fmt.Fprintln(os.Stderr, "Error: protecting the machine from the test:", err)
			os.Exit(2)
		}
		main()
		return
	}
	os.Exit(m.Run())
}

// protectMachine keeps the agent of a test from the machine that runs the test: from the settings
// of its kernel, which other programs share, and from its logs. It refuses to do so in the mount
// namespace of the test itself, where the mounts would be the machine's.
func protectMachine() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	parent, parentErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	switch {
	case err != nil || parentErr != nil:
		return errors.Join(err, parentErr)
	case own == parent:
		return errors.New("the agent has no mounts of its own: it must be started by agentCommand")
	}
	if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	err = unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	return errors.Join(err, unix.Mount("tmpfs", "/var/log", "tmpfs", 0, ""))
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	t.Cleanup(cancel)
	return agentCommand(ctx, args...)
}

// agentCommand returns the agent as a process with mounts of its own, which end with it. It has no
// chains of iptables made, and no port that it would have without a file, since it shares the
// network of the machine.
func agentCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--kernel-settings-root=", "--make-iptables-util-chains=false",
		"--read-only-port=0"}, args...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestVersion(t *testing.T) {
	out, err := command(t, "--version").Output()
	if err != nil || string(out) != "Kubernetes "+version+"\n" {
		t.Errorf("says %q, %v", out, err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information")
	}
	for _, module := range info.Deps {
		release := strings.Replace(module.Version, "v0.", "v1.", 1)
		if module.Path == "k8s.io/api" && release != version {
			t.Errorf("version %s, but k8s.io/api is %s", version, module.Version)
		}
	}
}

// Each mistake leads to exit code 1 and one line that names the flag or field.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	wrong := write(t, filepath.Join(dir, "wrong.yaml"), header+"maxPods: many\n")
	dropIn := write(t, filepath.Join(dir, "conf.d", "10-a.conf"), header+"healthzPort: 70000\n")
	pipe := filepath.Join(dir, "pipes.d", "10-pipe.conf")
	if err := errors.Join(os.Mkdir(filepath.Dir(pipe), 0o755), unix.Mkfifo(pipe, 0o644)); err != nil {
		t.Fatal(err)
	}
	checkMistakes(t, []mistake{
		{"configuration is a pipe", "--config: " + pipe + " is not a regular file",
			[]string{"--config", pipe}},
		{"endless configuration", "--config: /dev/zero is not a regular file",
			[]string{"--config", "/dev/zero"}},
		{"pipe", pipe + " is not a regular file", []string{"--config-dir", filepath.Dir(pipe)}},
		{"unknown flag", "--frobnicate", []string{"--frobnicate"}},
		{"argument", "extra", []string{"extra"}},
		{"no number", "--max-pods", []string{"--max-pods", "many"}},
		{"zero time", "fileCheckFrequency", []string{"--file-check-frequency", "0s"}},
		{"negative", "maxPods", []string{"--max-pods", "-3"}},
		{"zero period", "httpCheckFrequency", []string{"--http-check-frequency", "0s"}},
		{"header", "--manifest-url-header", []string{"--manifest-url-header", "a"}},
		{"no file", "--config: open /none.yaml", []string{"--config", "/none.yaml"}},
		{"no directory", "--config-dir", []string{"--config-dir", "/none.d"}},
		{"wrong type", "maxPods", []string{"--config", wrong}},
		{"drop-in", "healthzPort", []string{"--config-dir", filepath.Dir(dropIn)}},
		{"node name", "--hostname-override", []string{"--hostname-override", "no_name"}},
		{"endpoint", "containerRuntimeEndpoint",
			[]string{"--container-runtime-endpoint", "tcp://x:1"}},
		{"format", "logging.format", []string{"--logging-format", "xml"}},
		{"label", "--node-labels", []string{"--node-labels", "a=b,kubernetes.io/x=y"}},
		{"loopback", "--node-ip", []string{"--node-ip", "127.0.0.1"}},
		{"cloud", "--cloud-provider", []string{"--cloud-provider", "acme"}},
		{"taint", "--register-with-taints", []string{"--register-with-taints", "a=b"}},
		{"root", "--root-dir", []string{"--root-dir", ""}},
		{"port", "port", []string{"--port", "0"}},
		{"address", "--address", []string{"--address", "here"}},
		{"version", "--version", []string{"--version=v1.35.0"}},
		{"reserved memory", "--reserved-memory", []string{"--reserved-memory", "memory=1Gi"}},
		{"gate", "featureGates[Frobnicate]", []string{"--feature-gates", "Frobnicate=true"}},
		{"locked gate", "featureGates[NodeSwap]", []string{"--feature-gates", "NodeSwap=false"}},
		{"policy", "cpuManagerPolicy", []string{"--cpu-manager-policy", "static"}},
		{"mounter", "--experimental-mounter-path", []string{"--experimental-mounter-path", "/m"}},
		{"lock", "--exit-on-lock-contention", []string{"--exit-on-lock-contention"}},
		{"module", "logging.vmodule", []string{"--vmodule", "a=1", "--logging-format", "json"}},
		{"mode", "authorization.mode", []string{"--authorization-mode", "RBAC"}},
		{"bootstrap alone", "--bootstrap-kubeconfig", []string{"--bootstrap-kubeconfig", "/x"}},
		{"certificates", "--cert-dir", []string{"--cert-dir", ""}},
	})
}

// The plugins that provide credentials are read before the agent does anything.
func TestMistakesAboutPlugins(t *testing.T) {
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "config.yaml"), header)
	providers := filepath.Dir(write(t, filepath.Join(dir, "providers.d", "a.yaml"),
		"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"+
			"- {name: none, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [a.example], "+
			"defaultCacheDuration: 1m}\n"))
	tokens := write(t, filepath.Join(dir, "tokens.yaml"),
		"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"+
			"- {name: there, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [a.example], "+
			"defaultCacheDuration: 1m, tokenAttributes: {serviceAccountTokenAudience: a, "+
			"cacheType: Token, requireServiceAccount: true}}\n")
	if err := os.Chmod(write(t, filepath.Join(dir, "there"), "#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	checkMistakes(t, []mistake{
		{"plugins alone", "--image-credential-provider-bin-dir",
			[]string{"--image-credential-provider-config", config}},
		{"kind of plugins", config + ": want apiVersion", []string{
			"--image-credential-provider-config", config, "--image-credential-provider-bin-dir", dir}},
		{"no plugin", "--image-credential-provider-bin-dir: exec: ", []string{
			"--image-credential-provider-config", providers, "--image-credential-provider-bin-dir", dir}},
		{"no tokens", "plugin there: tokenAttributes: needs the feature gate KubeletServiceAccountToken",
			[]string{"--image-credential-provider-config", tokens, "--image-credential-provider-bin-dir",
				dir, "--feature-gates", "KubeletServiceAccountTokenForCredentialProviders=false"}},
	})
}

// mistake is a command line that keeps the agent from starting, and a part of what it says.
type mistake struct {
	name, want string
	args       []string
}

func checkMistakes(t *testing.T, cases []mistake) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, c.args...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("exit code %d, %v", cmd.ProcessState.ExitCode(), err)
			}
			text := withoutDeprecations(string(out))
			if strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) {
				t.Errorf("says %q, want one line with %q", text, c.want)
			}
		})
	}
}

// withoutDeprecations returns the output of the agent without its lines on deprecated flags.
func withoutDeprecations(text string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "Flag --") && strings.Contains(line, " has been deprecated, ")
	})
	return strings.Join(lines, "")
}

// settingsOf returns the settings that a command line makes.
func settingsOf(t *testing.T, args ...string) *settings {
	t.Helper()
	line := newCommandLine(defaultConfig())
	line.set.SetOutput(io.Discard)
	if err := line.set.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := readSettings(line, args)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Flags override drop-in files, which override the file in the order of their names.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "config.yaml"), header+
		"maxPods: 1\nreadOnlyPort: 1\nhealthzPort: 1\nstaticPodPath: manifests\n"+
		"staticPodURL: http://x/\nstaticPodURLHeader: {z: [\"0\"]}\n"+
		"logging: {verbosity: 7}\nfeatureGates: {MemoryQoS: true}\n")
	write(t, filepath.Join(dir, "d", "20.conf"), header+"readOnlyPort: 3\n")
	write(t, filepath.Join(dir, "d", "10.conf"), header+"readOnlyPort: 2\nhealthzPort: 2\n")
	write(t, filepath.Join(dir, "d", "30.txt"), "not read")
	s := settingsOf(t, "--config", file, "--config-dir", filepath.Join(dir, "d"),
		"--healthz-port", "0", "-v=0", "--node-labels", "a=b,c=d", "--node_labels", "e=f",
		"--node-ip", "192.0.2.1,2001:db8::1", "--register-node=false",
		"--manifest-url-header", "a:1,b:2", "--manifest-url-header", "a:3",
		"--feature-gates", "EventedPLEG=true", "--eviction-hard", "memory.available<1Gi",
		"--register-with-taints", "k=v:NoSchedule,l:NoExecute", "--seccomp-default")
	c := s.config
	if c.MaxPods != 1 || c.ReadOnlyPort != 3 || *c.HealthzPort != 0 || c.Logging.Verbosity != 0 {
		t.Errorf("maxPods %d, readOnlyPort %d, healthzPort %d, verbosity %d; want 1, 3, 0, 0",
			c.MaxPods, c.ReadOnlyPort, *c.HealthzPort, c.Logging.Verbosity)
	}
	if want := filepath.Join(dir, "manifests"); c.StaticPodPath != want {
		t.Errorf("staticPodPath %q, want %q", c.StaticPodPath, want)
	}
	if diff := cmp.Diff(map[string][]string{"a": {"1", "3"}, "b": {"2"}},
		c.StaticPodURLHeader); diff != "" || c.StaticPodURL != "http://x/" {
		t.Errorf("staticPodURL %q, headers %s", c.StaticPodURL, diff)
	}
	if len(s.node.Labels) != 3 || len(s.node.IPs) != 2 || *c.RegisterNode ||
		len(c.RegisterWithTaints) != 2 || c.RegisterWithTaints[1].Effect != v1.TaintEffectNoExecute {
		t.Errorf("%+v, %v", s.node, c.RegisterWithTaints)
	}
	if !c.FeatureGates["EventedPLEG"] || !c.FeatureGates["MemoryQoS"] || !*c.SeccompDefault ||
		len(c.EvictionHard) != 1 || c.EvictionHard["memory.available"] != "1Gi" {
		t.Errorf("gates %v, seccomp %v, thresholds %v", c.FeatureGates, *c.SeccompDefault,
			c.EvictionHard)
	}
	if s.rootDir != defaultRootDir || c.RuntimeRequestTimeout.Duration != 2*time.Minute {
		t.Errorf("root %q, timeout %v", s.rootDir, c.RuntimeRequestTimeout)
	}
}

// A default that depends on a feature gate depends on that of the command line, unless the file
// sets the gate.
func TestDefaultOfGate(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "config.yaml"), header)
	for _, args := range [][]string{{"--config", file}, nil} {
		off := append(args, "--feature-gates=KubeletEnsureSecretPulledImages=false")
		c := settingsOf(t, off...).config
		if got := c.ImagePullCredentialsVerificationPolicy; got != "" {
			t.Errorf("%q: imagePullCredentialsVerificationPolicy is %q", args, got)
		}
		if c := settingsOf(t, args...).config; c.ImagePullCredentialsVerificationPolicy == "" {
			t.Errorf("%q: no imagePullCredentialsVerificationPolicy", args)
		}
	}
}

// Paths on the command line are relative to the working directory.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := settingsOf(t, "--pod-manifest-path", "pods", "--tls-cert-file", "a.crt",
		"--tls-private-key-file", "a.key", "--client-ca-file", "ca.crt").config
	for want, got := range map[string]string{"pods": c.StaticPodPath, "a.crt": c.TLSCertFile,
		"a.key": c.TLSPrivateKeyFile, "ca.crt": c.Authentication.X509.ClientCAFile} {
		if got != filepath.Join(dir, want) {
			t.Errorf("%s is %q", want, got)
		}
	}
}

// What is odd in a file is said also if the file, or another one, is refused: it may be why.
func TestWarningsBesideError(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "config.yaml"),
		header+"systemReserved: {cpu: 100m}\nenforceNodeAllocatable: [system-reserved]\n"+
			"systemReservedCgroups: /system\n")
	write(t, filepath.Join(dir, "d", "10.conf"), header+"maxPods: many\n")
	for want, args := range map[string][]string{
		"systemReservedCgroup": {"--config", file},
		"maxPods":              {"--config", file, "--config-dir", filepath.Join(dir, "d")},
	} {
		line := newCommandLine(defaultConfig())
		var out strings.Builder
		line.set.SetOutput(&out)
		if err := line.set.Parse(args); err != nil {
			t.Fatal(err)
		}
		if _, err := readSettings(line, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one of %s", err, want)
		}
		if !strings.Contains(out.String(), "Warning: ") ||
			!strings.Contains(out.String(), "systemReservedCgroups") {
			t.Errorf("%s: written: %q", want, out.String())
		}
	}
}

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: registry.invalid/web:v1}]}
`

// listPods serves a list of one pod. A header of the request has its name.
func listPods(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: %s}\n"+
		"  spec: {containers: [{name: a, image: registry.invalid/a}]}\n", r.Header.Get("X-Name"))
}

// Without a runtime the agent starts, is healthy, serves its pods, notifies systemd, and ends on
// SIGTERM.
func TestWithoutRuntime(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "manifests", "web.yaml"), pod)
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	healthz, readOnly, secure := freePort(t), freePort(t), freePort(t)
	page := httptest.NewServer(http.HandlerFunc(listPods))
	defer page.Close()
	config := write(t, filepath.Join(dir, "config.yaml"), header+
		"staticPodPath: manifests\naddress: 127.0.0.1\nhairpinMode: none\nmaxPodz: 3\npodLogsDir: "+
		filepath.Join(dir, "logs")+"\nstaticPodURL: "+page.URL+"\n"+
		"staticPodURLHeader: {X-Name: [far]}\n")
	cmd := command(t, "--config", config, "--root-dir", filepath.Join(dir, "root"),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--hostname-override", "Node-A", "--healthz-port", fmt.Sprint(healthz),
		"--read-only-port", fmt.Sprint(readOnly), "--port", fmt.Sprint(secure), "-v", "2",
		"--cert-dir", filepath.Join(dir, "pki"), "--authorization-mode", "AlwaysAllow",
		"--anonymous-auth", "--manifest-url-header", "X-Name:far")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"),
		"WATCHDOG_USEC=1100000")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("it says:\n%s", log.String())
		}
	}()
	if got := <-notified; got != "READY=1" {
		t.Errorf("systemd is told %q first, want READY=1", got)
	}
	if body := get(t, healthz, "/healthz"); body != "ok" {
		t.Errorf("health is %q", body)
	}
	var list v1.PodList
	for late := time.Now().Add(porttest.Patience); time.Now().Before(late); {
		if err := json.Unmarshal([]byte(get(t, readOnly, "/pods")), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 1 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(list.Items) != 2 || list.Items[0].Name != "far-node-a" ||
		list.Items[1].Name != "web-node-a" {
		t.Errorf("pods are %+v, want far-node-a of the URL and web-node-a", list.Items)
	}
	if got := <-notified; got != "WATCHDOG=1" {
		t.Errorf("systemd is told %q next, want WATCHDOG=1", got)
	}
	checkSecurePort(t, secure)
	if metrics := get(t, readOnly, "/metrics"); !strings.Contains(metrics,
		"\nseedlet_step_duration_seconds_count ") {
		t.Errorf("no step durations in the metrics:\n%s", metrics)
	}
	endInOrder(t, cmd, notified)
	for _, words := range []string{"hairpinMode", "authentication.webhook.enabled", "maxPodz",
		"Flag --port has been deprecated, "} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("no warning with %q", words)
		}
	}
}

// endInOrder ends the agent and expects its log line about it.
func endInOrder(t *testing.T, cmd *exec.Cmd, notified <-chan string) {
	t.Helper()
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v, want exit code 0", err)
	}
	if took := time.Since(began); took > porttest.Patience {
		t.Errorf("ends after %v", took)
	}
	last := <-notified
	for last == "WATCHDOG=1" {
		last = <-notified
	}
	if last != "STOPPING=1" {
		t.Errorf("systemd is told %q last, want STOPPING=1", last)
	}
}

// An agent that cannot listen does not notify systemd that it is ready.
func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd := command(t, "--healthz-port", fmt.Sprint(port), "--root-dir", filepath.Join(dir, "root"))
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	out, _ := cmd.CombinedOutput()
	select {
	case state := <-notified:
		t.Errorf("systemd is told %q", state)
	case <-time.After(50 * time.Millisecond):
	}
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "healthz port") {
		t.Errorf("exit code %d, says %q", cmd.ProcessState.ExitCode(), out)
	}
}

// notifySocket stands in for systemd's notification socket.
func notifySocket(t *testing.T, path string) <-chan string {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	messages := make(chan string, 8)
	go func() {
		defer close(messages)
		buf := make([]byte, 1024)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	return messages
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func get(t *testing.T, port int, path string) string {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, body)
	}
	return string(body)
}

// The agent does not start if the kernel's settings are protected and not right; the error names
// each.
func TestKernelSettingsAreRequired(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"vm/overcommit_memory": "0", "vm/panic_on_oom": "0",
		"kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
		"kernel/keys/root_maxbytes": "7"} {
		write(t, filepath.Join(root, name), text+"\n")
	}
	out, err := command(t, "--root-dir", filepath.Join(root, "root"), "--hostname-override", "n1",
		"--protect-kernel-defaults", "--kernel-settings-root", root).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "vm.overcommit_memory: is 0, must be 1") ||
		!strings.Contains(string(out), "kernel.keys.root_maxbytes: is 7, must be 25000000") {
		t.Errorf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(root, "vm/overcommit_memory"))
	if err != nil || string(data) != "0\n" {
		t.Errorf("a protected setting was changed: %q, %v", data, err)
	}
}
