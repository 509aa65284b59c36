package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/cluster"
)

// TestRunCluster does what it says on the screen, and then Ctrl-C: the cluster must answer, and
// be gone.
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
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // ended long ago if all went well
	var said, exports []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasPrefix(lines.Text(), "export ") {
			exports = append(exports, lines.Text())
		}
		if strings.Contains(lines.Text(), "Ctrl-C to stop") {
			shell := strings.Join(append(exports, "kubectl get namespace default -o name"), "\n")
			got, err := exec.Command("sh", "-c", shell).CombinedOutput()
			if err != nil || string(got) != "namespace/default\n" {
				t.Errorf("kubectl printed %q, %v", got, err)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || len(exports) != 2 {
		t.Fatalf("%v, and it said\n%s", err, strings.Join(said, "\n"))
	}
	_, kubeconfig, _ := strings.Cut(exports[0], "KUBECONFIG=")
	left, err := cluster.Leftovers(filepath.Dir(kubeconfig))
	if err != nil || len(left) > 0 {
		t.Errorf("it left %q, %v", left, err)
	}
}
