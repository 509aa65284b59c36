package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"seedlet.dev/world"
)

// These tests use cgroups of the machine, under a name of their own.

// ownName returns the name of this process's test cgroups.
func ownName() string { return fmt.Sprintf("seedlet-test-%d", os.Getpid()) }

// newKernelHarness returns a port on the cgroups of this machine. The test's cgroups are removed at
// its end.
func newKernelHarness(t *testing.T) *harness {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	h := newHarness(t, "/sys/fs/cgroup")
	t.Cleanup(func() {
		h.must(&world.RemoveCgroup{Path: ownName()})
		if remaining := h.directories(ownName()); len(remaining) > 0 {
			t.Errorf("cgroups remain: %v", remaining)
		}
	})
	return h
}

// directories returns the directories of a cgroup in all hierarchies.
func (h *harness) directories(path string) []string {
	h.t.Helper()
	hierarchies, err := findHierarchies("/sys/fs/cgroup")
	if err != nil {
		h.t.Fatal(err)
	}
	var dirs []string
	for _, h := range hierarchies {
		if dir := filepath.Join(h.root, path); hasFile(dir, procsFile) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// startProcess starts a process in a cgroup.
func (h *harness) startProcess(path string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	for _, dir := range h.directories(path) {
		if err := writeFile(dir, procsFile, strconv.Itoa(cmd.Process.Pid)); err != nil {
			h.t.Fatal(err)
		}
	}
	return cmd
}

func TestCgroupsOfThisMachine(t *testing.T) {
	h := newKernelHarness(t)
	pod := ownName() + "/burstable/pod1-2"
	h.must(&world.SetCgroup{Path: pod, CPUShares: 512, CPUQuota: 50000, MemoryBytes: 64 << 20,
		PidsMax: 50})
	hierarchies, err := findHierarchies("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if dirs := h.directories(pod); len(dirs) != len(hierarchies) {
		t.Errorf("created in %v, want each hierarchy", dirs)
	}
	h.checkLimits(pod, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "50000",
		"cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "67108864", "pids.max": "50"},
		map[string]string{"cpu.weight": "59", "cpu.max": "50000 100000", "memory.max": "67108864",
			"pids.max": "50"})
	h.must(&world.SetCgroup{Path: pod + "/child", CPUQuota: 40000})
	// Half a CPU again, with another period and a child that has two fifths.
	h.must(&world.SetCgroup{Path: pod, CPUQuota: 10000, CPUPeriod: 20000, PidsMax: 60})
	h.checkLimits(pod, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "10000",
		"cpu.cfs_period_us": "20000", "memory.limit_in_bytes": "9223372036854771712",
		"pids.max": "60"}, map[string]string{"cpu.max": "10000 20000", "memory.max": "max",
		"pids.max": "60"})
	h.must(&world.SetCgroup{Path: pod})
	h.checkLimits(pod, map[string]string{"cpu.cfs_quota_us": "-1", "pids.max": "max"},
		map[string]string{"cpu.max": "max 100000", "pids.max": "max"})
	h.must(&world.SetCgroup{Path: ownName() + "/besteffort"})
	if got := h.list(ownName(), false); got != "besteffort burstable" {
		t.Errorf("listed %q", got)
	}
}

// checkLimits checks limits in the files of the machine's cgroup version.
func (h *harness) checkLimits(path string, v1, v2 map[string]string) {
	h.t.Helper()
	dirs := h.directories(path)
	want := v1
	if len(dirs) == 1 {
		want = v2
	}
	for file, value := range want {
		found := false
		for _, dir := range dirs {
			if hasFile(dir, file) {
				checkFiles(h.t, dir, map[string]string{file: value})
				found = true
				break
			}
		}
		if !found {
			h.t.Errorf("no hierarchy has %s", file)
		}
	}
}

func TestRemoveKills(t *testing.T) {
	h := newKernelHarness(t)
	pod := ownName() + "/pod"
	h.must(&world.SetCgroup{Path: pod + "/a/b"})
	inner, outer := h.startProcess(pod+"/a/b"), h.startProcess(pod)
	ended := make(chan error, 2)
	for _, cmd := range []*exec.Cmd{inner, outer} {
		go func() { ended <- cmd.Wait() }()
	}
	h.must(&world.RemoveCgroup{Path: pod})
	for range 2 {
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process ended with %v, want it killed", err)
		}
	}
	if remaining := h.directories(pod); len(remaining) > 0 {
		t.Errorf("cgroups remain: %v", remaining)
	}
	h.must(&world.RemoveCgroup{Path: pod})
}

// The hybrid layout has a v2 hierarchy beside the others. A cgroup in it serves as a v2 root
// without controllers.
func TestVersion2OfThisMachine(t *testing.T) {
	outer := newKernelHarness(t)
	outer.must(&world.SetCgroup{Path: ownName()})
	for _, root := range outer.directories(ownName()) {
		if !hasFile(root, "cgroup.controllers") {
			continue
		}
		h := newHarness(t, root)
		h.must(&world.SetCgroup{Path: "kubepods/pod"})
		cmd := exec.Command("sleep", "300")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := writeFile(filepath.Join(root, "kubepods/pod"), procsFile,
			strconv.Itoa(cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		h.must(&world.RemoveCgroup{Path: "kubepods"})
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("the process ended with %v, want it killed", err)
		}
		if hasFile(root, "kubepods") {
			t.Error("the cgroup still exists")
		}
	}
}
