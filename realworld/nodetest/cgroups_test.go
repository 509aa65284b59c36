package nodetest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"seedlet.dev/realworld/nodetest"
)

// A process that was left in a cgroup of the node is ended, so that the cgroup can be removed.
func TestRemoveCgroups(t *testing.T) {
	dir := t.TempDir()
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil || len(hierarchies) == 0 {
		t.Fatalf("no cgroup hierarchy: %v", err)
	}
	inner := filepath.Join(filepath.Dir(hierarchies[0]), nodetest.CgroupRoot(dir), "pod", "c")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- left.Wait() }()
	pid := strconv.Itoa(left.Process.Pid)
	err = os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(pid), 0)
	if err != nil {
		_ = left.Process.Kill() // the test has failed already
		t.Fatal(err)
	}
	if err := nodetest.RemoveCgroups(dir); err != nil {
		t.Error(err)
	}
	if err := <-exited; err == nil {
		t.Error("the process has exited by itself")
	}
}
