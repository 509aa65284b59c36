package systemdtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seedlet.dev/realworld/nodetest"
)

// On the machine systemd is process 1, makes slices and applies their limits, and nothing of this
// machine's cgroups is seen.
func TestInside(t *testing.T) {
	t.Parallel()
	if !Inside(t) {
		return
	}
	name, err := os.ReadFile("/proc/1/comm")
	if err != nil || strings.TrimSpace(string(name)) != "systemd" {
		t.Fatalf("process 1 is %q, %v", name, err)
	}
	out, err := exec.Command("systemd-run", "--slice=a-b.slice", "--property=TasksMax=77", "--wait",
		"sh", "-c", "cat /sys/fs/cgroup/pids$(sed -n 's/.*:pids://p' /proc/self/cgroup)/pids.max > /out").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, err := os.ReadFile("/out"); err != nil || strings.TrimSpace(string(got)) != "77" {
		t.Errorf("the bound of processes is %q, %v, want 77", got, err)
	}
	if found, err := filepath.Glob("/sys/fs/cgroup/*/sdl-*"); err != nil || len(found) > 0 {
		t.Errorf("the machine sees cgroups of the one around it: %q, %v", found, err)
	}
}

// After the machine nothing of it is left.
func TestMachineLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || len(missingPackages()) > 0 {
		t.Skip("needs root and systemd")
	}
	m := &machine{options: []string{"--machine=seedlet-test"}}
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*" + nodetest.CgroupRoot(m.dir))
	if err != nil || len(left) > 0 {
		t.Errorf("the machine left %q, %v", left, err)
	}
	if _, err := os.Lstat(m.dir); err == nil {
		t.Errorf("%s exists", m.dir)
	}
}
