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

// These tests use cgroups of the machine, under one name of their own.

// ownName is the name of this process's test cgroups.
func ownName() string { return fmt.Sprintf("seedlet-test-%d", os.Getpid()) }

// machine is a port on the cgroups of this machine. What the test makes is removed at its end.
func machine(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	b := newBench(t, "/sys/fs/cgroup")
	t.Cleanup(func() {
		b.do(&world.RemoveCgroup{Path: ownName()})
		if left := b.everywhere(ownName()); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return b
}

// everywhere is where a cgroup is, of all the hierarchies.
func (b *bench) everywhere(path string) []string {
	b.t.Helper()
	hierarchies, err := findHierarchies("/sys/fs/cgroup")
	if err != nil {
		b.t.Fatal(err)
	}
	var dirs []string
	for _, h := range hierarchies {
		if dir := filepath.Join(h.root, path); has(dir, procsFile) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// inhabit starts a process in a cgroup.
func (b *bench) inhabit(path string) *exec.Cmd {
	b.t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for _, dir := range b.everywhere(path) {
		if err := write(dir, procsFile, strconv.Itoa(cmd.Process.Pid)); err != nil {
			b.t.Fatal(err)
		}
	}
	return cmd
}

func TestCgroupsOfThisMachine(t *testing.T) {
	b := machine(t)
	pod := ownName() + "/burstable/pod1-2"
	b.do(&world.SetCgroup{Path: pod, CPUShares: 512, CPUQuota: 50000, MemoryBytes: 64 << 20,
		PidsMax: 50})
	hierarchies, err := findHierarchies("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if dirs := b.everywhere(pod); len(dirs) != len(hierarchies) {
		t.Errorf("made in %v, want it in each hierarchy", dirs)
	}
	b.holds(pod, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "50000",
		"cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "67108864", "pids.max": "50"},
		map[string]string{"cpu.weight": "59", "cpu.max": "50000 100000", "memory.max": "67108864",
			"pids.max": "50"})
	b.do(&world.SetCgroup{Path: pod + "/child", CPUQuota: 40000})
	// Half a CPU again, in another period, with a child that has two fifths.
	b.do(&world.SetCgroup{Path: pod, CPUQuota: 10000, CPUPeriod: 20000, PidsMax: 60})
	b.holds(pod, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "10000",
		"cpu.cfs_period_us": "20000", "memory.limit_in_bytes": "9223372036854771712",
		"pids.max": "60"}, map[string]string{"cpu.max": "10000 20000", "memory.max": "max",
		"pids.max": "60"})
	b.do(&world.SetCgroup{Path: pod})
	b.holds(pod, map[string]string{"cpu.cfs_quota_us": "-1", "pids.max": "max"},
		map[string]string{"cpu.max": "max 100000", "pids.max": "max"})
	b.do(&world.SetCgroup{Path: ownName() + "/besteffort"})
	if got := b.list(ownName(), false); got != "besteffort burstable" {
		t.Errorf("listed %q", got)
	}
}

// holds checks limits by the files of the version that the machine has.
func (b *bench) holds(path string, v1, v2 map[string]string) {
	b.t.Helper()
	dirs := b.everywhere(path)
	want := v1
	if len(dirs) == 1 {
		want = v2
	}
	for file, value := range want {
		found := false
		for _, dir := range dirs {
			if has(dir, file) {
				reads(b.t, dir, map[string]string{file: value})
				found = true
				break
			}
		}
		if !found {
			b.t.Errorf("%s is nowhere", file)
		}
	}
}

func TestRemoveKills(t *testing.T) {
	b := machine(t)
	pod := ownName() + "/pod"
	b.do(&world.SetCgroup{Path: pod + "/a/b"})
	inner, outer := b.inhabit(pod+"/a/b"), b.inhabit(pod)
	ended := make(chan error, 2)
	for _, cmd := range []*exec.Cmd{inner, outer} {
		go func() { ended <- cmd.Wait() }()
	}
	b.do(&world.RemoveCgroup{Path: pod})
	for range 2 {
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process ended with %v, want it killed", err)
		}
	}
	if left := b.everywhere(pod); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	b.do(&world.RemoveCgroup{Path: pod})
}

// The hybrid layout has a hierarchy of version 2 beside the others; a cgroup of its own in that
// is as good as its root, only without controllers.
func TestVersion2OfThisMachine(t *testing.T) {
	outer := machine(t)
	outer.do(&world.SetCgroup{Path: ownName()})
	for _, root := range outer.everywhere(ownName()) {
		if !has(root, "cgroup.controllers") {
			continue
		}
		b := newBench(t, root)
		b.do(&world.SetCgroup{Path: "kubepods/pod"})
		cmd := exec.Command("sleep", "300")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := write(filepath.Join(root, "kubepods/pod"), procsFile,
			strconv.Itoa(cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		b.do(&world.RemoveCgroup{Path: "kubepods"})
		if err := <-ended; err == nil || err.Error() != "signal: killed" {
			t.Errorf("the process ended with %v, want it killed", err)
		}
		if has(root, "kubepods") {
			t.Error("the cgroup is still there")
		}
	}
}
