package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
		if got := weightOf(shares); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
	}
}

// v2Root is a directory with what the kernel shows at the root of version 2.
func v2Root(t *testing.T) string {
	root := t.TempDir()
	lay(t, root, map[string]string{
		"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "memory",
		"cgroup.procs": "1"})
	return root
}

// kernel adds what the kernel would to a new cgroup, as far as its parent lets it.
func kernel(t *testing.T) func(dir string) {
	files := map[string]map[string]string{
		"cpu":    {"cpu.weight": "100", "cpu.max": "max 100000"},
		"memory": {"memory.max": "max"},
		"pids":   {"pids.max": "max"},
	}
	return func(dir string) {
		enabled := words(filepath.Dir(dir), "cgroup.subtree_control")
		lay(t, dir, map[string]string{"cgroup.procs": "", "cgroup.subtree_control": "",
			"cgroup.controllers": ""})
		for controller, all := range files {
			if slices.Contains(enabled, controller) || slices.Contains(enabled, "+"+controller) {
				lay(t, dir, all)
			}
		}
	}
}

func TestSetCgroupV2(t *testing.T) {
	root := v2Root(t)
	b := newBench(t, root)
	b.port.made = func(dir string) {
		lay(t, filepath.Dir(dir), map[string]string{"cgroup.subtree_control": "+cpu +memory +pids"})
		kernel(t)(dir)
		lay(t, dir, map[string]string{"cgroup.controllers": "cpu memory pids"})
	}
	b.do(&world.SetCgroup{Path: "kubepods/burstable", CPUShares: 512, CPUQuota: 20000,
		MemoryBytes: 1 << 20, PidsMax: 99})
	reads(t, root, map[string]string{
		"kubepods/burstable/cpu.weight": "59", "kubepods/burstable/cpu.max": "20000 100000",
		"kubepods/burstable/memory.max": "1048576", "kubepods/burstable/pids.max": "99",
		"kubepods/cpu.max": "max 100000", "kubepods/memory.max": "max"})
	b.do(&world.SetCgroup{Path: "kubepods/burstable"})
	reads(t, root, map[string]string{
		"kubepods/burstable/cpu.weight": "59", "kubepods/burstable/cpu.max": "max 100000",
		"kubepods/burstable/memory.max": "max", "kubepods/burstable/pids.max": "max"})
	if got := b.list("kubepods", false); got != "burstable" {
		t.Errorf("listed %q", got)
	}
	if got := b.list("kubepods/besteffort", false); got != "" {
		t.Errorf("below what is not there: %q", got)
	}
}

func TestControllersAreEnabled(t *testing.T) {
	root := v2Root(t)
	enableControllers(root)
	reads(t, root, map[string]string{"cgroup.subtree_control": "+cpu +pids"})
}

// A controller that is not there is missed by a limit, and only by that.
func TestMissingController(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"cgroup.controllers": "", "cgroup.procs": ""})
	b := newBench(t, root)
	b.do(&world.SetCgroup{Path: "kubepods"})
	_, err := b.try(&world.SetCgroup{Path: "kubepods", PidsMax: 5}, 5*time.Second)
	if !err.Has(world.KindInternal) {
		t.Errorf("error %v, want Internal", err)
	}
}

func TestBadRequests(t *testing.T) {
	b := newBench(t, v2Root(t))
	for _, path := range []string{"", ".", "/", "/kubepods", "kubepods/", "a/../b", "..", "a//b"} {
		for _, body := range []any{&world.SetCgroup{Path: path}, &world.RemoveCgroup{Path: path},
			&world.ListCgroups{Path: path}} {
			if _, err := b.try(body, 5*time.Second); !err.Has(world.KindInvalid) {
				t.Errorf("%s of %q: %v, want Invalid", world.Call(body), path, err)
			}
		}
	}
	for _, body := range []any{
		&world.SetCgroup{Path: "a", CPUQuota: -1}, &world.SetCgroup{Path: "a", MemoryBytes: -1},
		&world.SetCgroup{Path: "a", PidsMax: -1}, &world.SetCgroup{Path: "a b", Systemd: true},
	} {
		if _, err := b.try(body, 5*time.Second); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v, want Invalid", body, err)
		}
	}
	if _, err := b.try(&world.SetCgroup{Path: "a"}, -1); !err.Has(world.KindCanceled) {
		t.Errorf("past its deadline: %v, want Canceled", err)
	}
}

// What cannot be removed, here because the files in it are no kernel's, is given up in the end.
func TestRemoveGivesUpAtItsDeadline(t *testing.T) {
	root := v2Root(t)
	lay(t, root, map[string]string{"kubepods/pod/stuck": ""})
	b := newBench(t, root)
	_, err := b.try(&world.RemoveCgroup{Path: "kubepods"}, 50*time.Millisecond)
	if !err.Has(world.KindTimeout) || !has(root, "kubepods/pod/stuck") {
		t.Errorf("error %v, want Timeout, and the file left alone", err)
	}
}

func TestNoCgroups(t *testing.T) {
	b := newBench(t, t.TempDir())
	_, err := b.try(&world.SetCgroup{Path: "a"}, 5*time.Second)
	if !err.Has(world.KindInternal) {
		t.Errorf("error %v, want Internal", err)
	}
}
