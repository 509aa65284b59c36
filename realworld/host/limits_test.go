package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestLimits(t *testing.T) {
	all := &world.SetCgroup{CPUShares: 1024, CPUQuota: 5000, CPUPeriod: 10000, MemoryBytes: 4096,
		PidsMax: 7}
	cases := []struct {
		name string
		got  []limit
		want string
	}{
		{"v1", limitsV1(all), "[{cpu.shares 1024 false} {cpu.cfs_period_us 10000 false} " +
			"{cpu.cfs_quota_us 5000 false} {memory.limit_in_bytes 4096 false} {pids.max 7 false}]"},
		{"v1, none", limitsV1(&world.SetCgroup{}), "[{cpu.cfs_quota_us -1 true} " +
			"{memory.limit_in_bytes -1 true} {pids.max max true}]"},
		{"v2", limitsV2(all), "[{cpu.weight 100 false} {cpu.max 5000 10000 false} " +
			"{memory.max 4096 false} {pids.max 7 false}]"},
		{"v2, none", limitsV2(&world.SetCgroup{}),
			"[{cpu.max max 100000 true} {memory.max max true} {pids.max max true}]"},
	}
	for _, c := range cases {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{
		1: 1, 2: 1, 102: 17, 512: 59, 1024: 100, 2048: 174, 262144: 10000, 1 << 40: 10000,
	} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
	}
}

// v2Root returns a directory with the files of a v2 root.
func v2Root(t *testing.T) string {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "memory",
		"cgroup.procs": "1"})
	return root
}

// kernel returns a callback that adds the kernel's files to a new cgroup, as far as its parent has
// the controllers enabled.
func kernel(t *testing.T) func(dir string) {
	files := map[string]map[string]string{
		"cpu":    {"cpu.weight": "100", "cpu.max": "max 100000"},
		"memory": {"memory.max": "max"},
		"pids":   {"pids.max": "max"},
	}
	return func(dir string) {
		enabled := readFields(filepath.Dir(dir), "cgroup.subtree_control")
		writeFiles(t, dir, map[string]string{"cgroup.procs": "", "cgroup.subtree_control": "",
			"cgroup.controllers": ""})
		for controller, all := range files {
			if slices.Contains(enabled, controller) || slices.Contains(enabled, "+"+controller) {
				writeFiles(t, dir, all)
			}
		}
	}
}

func TestSetCgroupV2(t *testing.T) {
	root := v2Root(t)
	h := newHarness(t, root)
	h.port.onCreate = func(dir string) {
		writeFiles(t, filepath.Dir(dir),
			map[string]string{"cgroup.subtree_control": "+cpu +memory +pids"})
		kernel(t)(dir)
		writeFiles(t, dir, map[string]string{"cgroup.controllers": "cpu memory pids"})
	}
	h.must(&world.SetCgroup{Path: "kubepods/burstable", CPUShares: 512, CPUQuota: 20000,
		MemoryBytes: 1 << 20, PidsMax: 99})
	checkFiles(t, root, map[string]string{
		"kubepods/burstable/cpu.weight": "59", "kubepods/burstable/cpu.max": "20000 100000",
		"kubepods/burstable/memory.max": "1048576", "kubepods/burstable/pids.max": "99",
		"kubepods/cpu.max": "max 100000", "kubepods/memory.max": "max"})
	h.must(&world.SetCgroup{Path: "kubepods/burstable"})
	checkFiles(t, root, map[string]string{
		"kubepods/burstable/cpu.weight": "59", "kubepods/burstable/cpu.max": "max 100000",
		"kubepods/burstable/memory.max": "max", "kubepods/burstable/pids.max": "max"})
	if got := h.list("kubepods", false); got != "burstable" {
		t.Errorf("listed %q", got)
	}
	if got := h.list("kubepods/besteffort", false); got != "" {
		t.Errorf("below a missing cgroup: %q", got)
	}
}

func TestControllersAreEnabled(t *testing.T) {
	root := v2Root(t)
	enableControllers(root)
	checkFiles(t, root, map[string]string{"cgroup.subtree_control": "+cpu +pids"})
}

// A missing controller is an error only for a limit that needs it.
func TestMissingController(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{"cgroup.controllers": "", "cgroup.procs": ""})
	h := newHarness(t, root)
	h.must(&world.SetCgroup{Path: "kubepods"})
	_, err := h.try(&world.SetCgroup{Path: "kubepods", PidsMax: 5}, porttest.Patience)
	if !err.Has(world.KindInternal) {
		t.Errorf("error %v, want Internal", err)
	}
}

func TestInvalidRequests(t *testing.T) {
	h := newHarness(t, v2Root(t))
	for _, path := range []string{"", ".", "/", "/kubepods", "kubepods/", "a/../b", "..", "a//b"} {
		for _, body := range []any{&world.SetCgroup{Path: path}, &world.RemoveCgroup{Path: path},
			&world.ListCgroups{Path: path}} {
			if _, err := h.try(body, porttest.Patience); !err.Has(world.KindInvalid) {
				t.Errorf("%s of %q: %v, want Invalid", world.CallName(body), path, err)
			}
		}
	}
	for _, body := range []any{
		&world.SetCgroup{Path: "a", CPUQuota: -1}, &world.SetCgroup{Path: "a", MemoryBytes: -1},
		&world.SetCgroup{Path: "a", PidsMax: -1}, &world.SetCgroup{Path: "a b", Systemd: true},
	} {
		if _, err := h.try(body, porttest.Patience); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v, want Invalid", body, err)
		}
	}
	if _, err := h.try(&world.SetCgroup{Path: "a"}, -1); !err.Has(world.KindCanceled) {
		t.Errorf("past its deadline: %v, want Canceled", err)
	}
}

// A cgroup that cannot be removed, here because of a regular file in it, is an error at the
// deadline.
func TestRemoveEndsAtItsDeadline(t *testing.T) {
	root := v2Root(t)
	writeFiles(t, root, map[string]string{"kubepods/pod/stuck": ""})
	h := newHarness(t, root)
	_, err := h.try(&world.RemoveCgroup{Path: "kubepods"}, 50*time.Millisecond)
	if !err.Has(world.KindTimeout) || !hasFile(root, "kubepods/pod/stuck") {
		t.Errorf("error %v, want Timeout, and the file unchanged", err)
	}
}

func TestNoCgroups(t *testing.T) {
	h := newHarness(t, t.TempDir())
	_, err := h.try(&world.SetCgroup{Path: "a"}, porttest.Patience)
	if !err.Has(world.KindInternal) {
		t.Errorf("error %v, want Internal", err)
	}
}
