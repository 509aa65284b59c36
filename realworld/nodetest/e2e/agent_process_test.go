package e2e

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// nodeName is the name of the agent's node, and the suffix of the names of its static pods.
const nodeName = "e2e"

// client keeps no connection between requests, because tests kill and restart the agent.
var client = &http.Client{
	Timeout:   porttest.Patience,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// agent is a process of bin/seedlet on a node. All of its files are below the node's directory.
type agent struct {
	manifestDir string
	sampleImage string // the reference of the image of cmd/sample
	rootDir     string
	logLinkDir  string // links to the logs of containers
	podLogDir   string // logs of pods
	configFile  string
	logFile     string // the agent's own log
	certDir     string // the agent's own certificates
	podsURL     string
	healthURL   string
	flags       []string // in addition to the flags that startProcess sets
	cmd         *exec.Cmd
}

// seedletBinary is the agent's binary, built once for all tests. It needs no library, and its tags
// are those of the Makefile.
var seedletBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "seedlet-e2e-")
	if err != nil {
		return "", err
	}
	path, built := filepath.Join(dir, "seedlet"), filepath.Join(dir, "built")
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", built,
		"seedlet.dev/cmd/seedlet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building seedlet: %w\n%s", err, out)
	}
	// The binary is installed as on a node. The page cache holds a file that the linker has just
	// written in larger pieces than a file that was copied or read from the disk, and 8 MiB more of
	// it count as memory of the process.
	if out, err = exec.Command("install", built, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing seedlet: %w\n%s", err, out)
	}
	return path, os.Remove(built)
})

// TestUnusedMethodsAreNotLinked demands that the linker leaves out methods that nothing calls. It
// keeps all of them if anything in the program looks up methods by name, as text/template does:
// then the agent takes a third more disk and memory. What does is named in the lines with
// ReflectMethod of "go build -tags grpcnotrace -ldflags=-dumpdep ./cmd/seedlet".
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	t.Parallel()
	path, err := seedletBinary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	isComplete := false
	for _, s := range symbols {
		isComplete = isComplete || s.Name == "k8s.io/api/core/v1.(*Pod).Marshal"
		if strings.Contains(s.Name, "text/template.(*state)") ||
			strings.HasSuffix(s.Name, "ApplyConfiguration).WithName") {
			t.Fatalf("%s is linked into the agent", s.Name)
		}
	}
	if !isComplete {
		t.Fatal("the symbols of methods are not found")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait, so more of them run in parallel than there are processors.
	if err := flag.Set("test.parallel", "7"); err != nil {
		panic(err) // package testing defines the flag
	}
	code := m.Run()
	if path, err := seedletBinary(); err == nil {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// newAgent writes the configuration of an agent. The lines of more are appended to it.
func newAgent(t testing.TB, n *nodetest.Node, more ...string) *agent {
	t.Helper()
	dir := filepath.Join(n.Dir, "agent")
	pods, health, secure := freePort(t), freePort(t), freePort(t)
	a := &agent{
		manifestDir: filepath.Join(dir, "manifests"),
		sampleImage: n.Images.Sample,
		rootDir:     filepath.Join(dir, "root"),
		logLinkDir:  filepath.Join(dir, "links"),
		podLogDir:   filepath.Join(dir, "logs"),
		configFile:  filepath.Join(dir, "config.yaml"),
		logFile:     filepath.Join(dir, "seedlet.log"),
		certDir:     filepath.Join(dir, "pki"),
		podsURL:     fmt.Sprintf("http://127.0.0.1:%d/pods", pods),
		healthURL:   fmt.Sprintf("http://127.0.0.1:%d/healthz", health),
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
%s`, n.Endpoint, a.manifestDir, a.podLogDir, nodetest.CgroupRoot(n.Dir), secure, pods,
		health, unlessSet(more, "containerLogMonitorInterval: 3s\n", nodetest.SharedDisk)+
			strings.Join(more, ""))
	if err := os.MkdirAll(a.manifestDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.configFile, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return a
}

// unlessSet returns those of some fields of the configuration, each with its lines, that a test
// does not set by itself.
func unlessSet(own []string, fields ...string) string {
	set := "\n" + strings.Join(own, "")
	return strings.Join(slices.DeleteFunc(fields, func(field string) bool {
		name, _, _ := strings.Cut(field, ":")
		return strings.Contains(set, "\n"+name+":")
	}), "")
}

// freePort returns a port without a listener that no outgoing connection gets: it is below
// the kernel's range of local ports, which begins at 32768.
func freePort(t testing.TB) int {
	t.Helper()
	const first, count = 20_000, 10_000
	for range count {
		port := first + (os.Getpid()*97+int(portsTaken.Add(1)))%count
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

var portsTaken atomic.Int32

// appendConfig appends lines to the configuration. They apply from the next start of the agent.
func (a *agent) appendConfig(t testing.TB, lines string) {
	t.Helper()
	file, err := os.OpenFile(a.configFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(lines)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// replaceInConfig replaces text of the configuration, which it has.
func (a *agent) replaceInConfig(t testing.TB, old, replacement string) {
	t.Helper()
	data, err := os.ReadFile(a.configFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("the configuration has no %q:\n%s", old, data)
	}
	text := strings.Replace(string(data), old, replacement, 1)
	if err := os.WriteFile(a.configFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start starts the agent and waits until /healthz reports that it is healthy.
func (a *agent) start(t testing.TB) {
	t.Helper()
	a.startProcess(t)
	a.waitHealthy(t)
}

// startProcess starts the agent and returns at once. Closing the node kills an agent that still
// runs.
func (a *agent) startProcess(t testing.TB) {
	t.Helper()
	path, err := seedletBinary()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(a.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the agent has its own file descriptor
	cmd := exec.Command(path, append([]string{"--config=" + a.configFile, "--root-dir=" + a.rootDir,
		"--container-log-links-dir=" + a.logLinkDir, "--hostname-override=" + nodeName,
		"--cert-dir=" + a.certDir, "-v=4", "--kernel-settings-root=",
		"--make-iptables-util-chains=false"},
		a.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.cmd = cmd
}

// waitHealthy waits until /healthz reports that the agent is healthy.
func (a *agent) waitHealthy(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(porttest.Patience)
	for {
		response, err := client.Get(a.healthURL)
		if err == nil {
			_ = response.Body.Close() // only the status code matters
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent is not healthy: %v, %v\n%s", response, err, a.logTail(t, 40))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// signalAndWait sends the agent a signal that ends it, waits for its exit and returns its exit
// code; -1 for an agent that a signal killed.
func (a *agent) signalAndWait(t testing.TB, signal syscall.Signal) int {
	t.Helper()
	if err := a.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("sending %v to the agent: %v\n%s", signal, err, a.logTail(t, 40))
	}
	timer := time.AfterFunc(porttest.Patience, func() { _ = a.cmd.Process.Kill() })
	err := a.cmd.Wait()
	if !timer.Stop() {
		t.Errorf("the agent did not exit within %v of %v", porttest.Patience, signal)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return a.cmd.ProcessState.ExitCode()
}

// addManifest writes the manifest NAME.yaml by an atomic rename, so that the agent never reads half
// of it.
func (a *agent) addManifest(t testing.TB, name, manifest string) {
	t.Helper()
	text := strings.ReplaceAll(manifest, "seedlet.dev/sample:v1", a.sampleImage)
	temporary := filepath.Join(a.manifestDir, "."+name)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(a.manifestDir, name+".yaml")); err != nil {
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
	a.addManifest(t, name, string(data))
}

func (a *agent) removeManifest(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(a.manifestDir, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// samplePodManifest returns the manifest of a pod with one container "main" that runs the sample.
func samplePodManifest(name, restartPolicy string, graceSeconds int, args ...string) string {
	quoted, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings can always be encoded
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

// servedPods returns the pods that the agent serves at its read-only port.
func (a *agent) servedPods(t testing.TB) []v1.Pod {
	t.Helper()
	response, err := client.Get(a.podsURL)
	if err != nil {
		t.Fatalf("requesting /pods: %v\n%s", err, a.logTail(t, 40))
	}
	defer func() { _ = response.Body.Close() }() // read to the end below
	var list v1.PodList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		t.Fatalf("reading /pods (%s): %v", response.Status, err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" {
		t.Errorf("/pods is a %s %s, want a v1 PodList", list.APIVersion, list.Kind)
	}
	return list.Items
}

// servedPod returns the pod of servedPods with the given name in its manifest; a zero pod if there
// is none.
func (a *agent) servedPod(t testing.TB, name string) v1.Pod {
	t.Helper()
	for _, p := range a.servedPods(t) {
		if p.Name == name+"-"+nodeName {
			return p
		}
	}
	return v1.Pod{}
}

// podDirectories returns the directories of the pod with the given UID below the agent's root and
// log directories. For an empty UID it returns the directories of all pods and the links to logs.
func (a *agent) podDirectories(t testing.TB, uid string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		a.rootDir + "/pods/*", a.podLogDir + "/*", a.logLinkDir + "/*",
	} {
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

// logTail returns the last lines of the agent's own log.
func (a *agent) logTail(t testing.TB, lines int) string {
	t.Helper()
	data, err := os.ReadFile(a.logFile)
	if err != nil {
		return err.Error()
	}
	// A library tells at length, every ten seconds, how it looks for the node's address.
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(data)), "\n"),
		func(line string) bool { return strings.Contains(line, " interface.go:") })
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// podLogLines returns the first lines of the agent's log that name a pod.
func (a *agent) podLogLines(t testing.TB, pod string) string {
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
