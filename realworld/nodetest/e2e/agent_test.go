package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/nodetest"
)

// nodeName is the agent's node, and so the suffix of its static pods' names.
const nodeName = "e2e"

// client keeps no connection between requests, as the agent comes and goes.
var client = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// agent is bin/seedlet on a node. Everything it keeps is below the node's directory.
type agent struct {
	manifests string
	image     string // of the sample
	root      string
	links     string // to the logs of containers
	logs      string // of pods
	config    string
	logFile   string // its own
	certs     string // its own certificates
	podsURL   string
	healthURL string
	flags     []string // besides those that every agent here has
	cmd       *exec.Cmd
}

// seedlet is the agent's binary, built once for all tests.
var seedlet = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "seedlet-e2e-")
	if err != nil {
		return "", err
	}
	path, built := filepath.Join(dir, "seedlet"), filepath.Join(dir, "built")
	out, err := exec.Command("go", "build", "-o", built, "seedlet.dev/cmd/seedlet").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building seedlet: %w\n%s", err, out)
	}
	// Installed as on a node: what the linker has just written stays in memory in larger pieces
	// than what was copied or read from the disk, and 8 MiB more of it counts as the process's.
	if out, err = exec.Command("install", built, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing seedlet: %w\n%s", err, out)
	}
	return path, os.Remove(built)
})

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests mostly wait here, so more of them than there are processors go on side by side.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err) // package testing has defined it
	}
	code := m.Run()
	if path, err := seedlet(); err == nil {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// newAgent writes the configuration of an agent, with more lines of it as given.
func newAgent(t testing.TB, n *nodetest.Node, more ...string) *agent {
	t.Helper()
	dir := filepath.Join(n.Dir, "agent")
	pods, health, secure := freePort(t), freePort(t), freePort(t)
	a := &agent{
		manifests: filepath.Join(dir, "manifests"),
		image:     n.Images.Sample,
		root:      filepath.Join(dir, "root"),
		links:     filepath.Join(dir, "links"),
		logs:      filepath.Join(dir, "logs"),
		config:    filepath.Join(dir, "config.yaml"),
		logFile:   filepath.Join(dir, "seedlet.log"),
		certs:     filepath.Join(dir, "pki"),
		podsURL:   fmt.Sprintf("http://127.0.0.1:%d/pods", pods),
		healthURL: fmt.Sprintf("http://127.0.0.1:%d/healthz", health),
	}
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: %q
staticPodPath: %q
podLogsDir: %q
cgroupRoot: %q
address: 127.0.0.1
port: %d
readOnlyPort: %d
healthzPort: %d
containerLogMaxSize: 64Ki
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
`, n.Endpoint, a.manifests, a.logs, nodetest.CgroupRoot(n.Dir), secure, pods,
		health) +
		strings.Join(more, "")
	if err := os.MkdirAll(a.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.config, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return a
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it only showed that the port is free
	return l.Addr().(*net.TCPAddr).Port
}

// configure adds lines to the configuration, for when the agent starts again.
func (a *agent) configure(t testing.TB, lines string) {
	t.Helper()
	file, err := os.OpenFile(a.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(lines)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// start starts the agent and waits until it calls itself well.
func (a *agent) start(t testing.TB) {
	t.Helper()
	a.launch(t)
	a.well(t)
}

// launch starts the agent. When the node is closed it is killed if it still runs.
func (a *agent) launch(t testing.TB) {
	t.Helper()
	path, err := seedlet()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(a.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the agent has its own copy
	cmd := exec.Command(path, append([]string{"--config=" + a.config, "--root-dir=" + a.root,
		"--container-log-links-dir=" + a.links, "--hostname-override=" + nodeName,
		"--cert-dir=" + a.certs, "-v=4"},
		a.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.cmd = cmd
}

// well waits until the agent calls itself well.
func (a *agent) well(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		answer, err := client.Get(a.healthURL)
		if err == nil {
			_ = answer.Body.Close() // the code says it all
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent is not well: %v, %v\n%s", answer, err, a.logTail(t, 40))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// signal sends a signal that ends the agent and returns its exit code, -1 for a killed one.
func (a *agent) signal(t testing.TB, signal syscall.Signal) int {
	t.Helper()
	if err := a.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("sending %v to the agent: %v\n%s", signal, err, a.logTail(t, 40))
	}
	timer := time.AfterFunc(15*time.Second, func() { _ = a.cmd.Process.Kill() })
	err := a.cmd.Wait()
	if !timer.Stop() {
		t.Errorf("the agent did not end on %v", signal)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return a.cmd.ProcessState.ExitCode()
}

// add writes a manifest NAME.yaml as an atomic replacement, so that the agent sees it whole.
func (a *agent) add(t testing.TB, name, manifest string) {
	t.Helper()
	text := strings.ReplaceAll(manifest, "seedlet.dev/sample:v1", a.image)
	temporary := filepath.Join(a.manifests, "."+name)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(a.manifests, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// addExample adds a manifest of the examples folder.
func (a *agent) addExample(t testing.TB, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../examples", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a.add(t, name, string(data))
}

func (a *agent) remove(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(a.manifests, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// pod is the manifest of a pod with one container "main" that runs the sample.
func pod(name, restartPolicy string, graceSeconds int, args ...string) string {
	quoted, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: %d
  containers:
  - name: main
    image: seedlet.dev/sample:v1
    args: %s
`, name, restartPolicy, graceSeconds, quoted)
}

// pods is what the agent's read-only port answers.
func (a *agent) pods(t testing.TB) []v1.Pod {
	t.Helper()
	answer, err := client.Get(a.podsURL)
	if err != nil {
		t.Fatalf("asking for /pods: %v\n%s", err, a.logTail(t, 40))
	}
	defer func() { _ = answer.Body.Close() }() // read to the end below
	var list v1.PodList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		t.Fatalf("reading /pods (%s): %v", answer.Status, err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" {
		t.Errorf("/pods is a %s %s, want a v1 PodList", list.APIVersion, list.Kind)
	}
	return list.Items
}

// pod is one pod of pods, by the name in its manifest; a zero one when it is not there.
func (a *agent) pod(t testing.TB, name string) v1.Pod {
	t.Helper()
	for _, p := range a.pods(t) {
		if p.Name == name+"-"+nodeName {
			return p
		}
	}
	return v1.Pod{}
}

// directories are the directories of a pod below the agent's root and the log directory, by its
// UID; of all pods, and with the links to logs, for an empty one.
func (a *agent) directories(t testing.TB, uid string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{a.root + "/pods/*", a.logs + "/*", a.links + "/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.Contains(filepath.Base(path), uid) {
				found = append(found, path)
			}
		}
	}
	return found
}

// logTail is the end of the agent's own log.
func (a *agent) logTail(t testing.TB, lines int) string {
	t.Helper()
	data, err := os.ReadFile(a.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// logOf are the first lines of the agent's log that name a pod.
func (a *agent) logOf(t testing.TB, pod string) string {
	t.Helper()
	data, err := os.ReadFile(a.logFile)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "/"+pod+"-"+nodeName) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[:min(len(lines), 40)], "")
}
