package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
)

// TestRunCluster follows the printed instructions until a pod runs, then sends an interrupt and
// expects everything to be removed.
func TestRunCluster(t *testing.T) {
	cluster.Require(t)
	cmd := exec.Command(build(t), "cluster")
	cmd.Dir = root
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // has ended already unless the test failed
	var said, orders []string
	var dir, nodeDir string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		said = append(said, line)
		if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "kubectl ") {
			orders = append(orders, line)
		}
		if _, at, found := strings.Cut(line, "KUBECONFIG="); found {
			dir = filepath.Dir(at)
		}
		if _, at, found := strings.Cut(line, "containerd in "); found {
			nodeDir = at
		}
		if strings.Contains(line, "Ctrl-C to stop") {
			runInstructions(t, orders)
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || dir == "" || nodeDir == "" {
		t.Fatalf("%v, and it said\n%s", err, strings.Join(said, "\n"))
	}
	for at, leftovers := range map[string]func(string) ([]string, error){
		dir: cluster.Leftovers, nodeDir: nodetest.Leftovers,
	} {
		if left, err := leftovers(at); err != nil || len(left) > 0 {
			t.Errorf("%s left %q, %v", at, left, err)
		}
	}
}

// runInstructions runs the printed commands in a shell, and expects a running pod.
func runInstructions(t *testing.T, commands []string) {
	t.Helper()
	const wait = "kubectl wait --for=condition=Ready pod/web --timeout=60s >&2\n" +
		"kubectl get pod web -o jsonpath='{.spec.nodeName} {.status.phase}'"
	cmd := exec.Command("sh", "-ec", strings.Join(append(commands, wait), "\n"))
	var problems strings.Builder
	cmd.Stderr = &problems
	got, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(got), "seedling Running") {
		t.Errorf("it printed %q, %v: %s", got, err, &problems)
	}
}
