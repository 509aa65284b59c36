package host

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestLimits(t *testing.T) {
	all := &world.SetCgroup{CPUShares: 1024, CPUQuota: 5000, CPUPeriod: 10000, MemoryBytes: 4096,
		PidsMax: 7}
	pages := &world.SetCgroup{MemoryMin: 8192, MemoryLow: 4096, HugePages: []world.HugePageLimit{
		{SizeBytes: 2 << 20, MaxBytes: 4 << 20}, {SizeBytes: 1 << 30},
		{SizeBytes: 64 << 10, MaxBytes: -1}}}
	theirs := &world.SetCgroup{Existing: true, MemoryBytes: 4096}
	cases := []struct {
		name string
		got  []limit
		want string // a star for the value of a new cgroup
	}{
		{"v1", limitsOf(all, false), "cpu.shares 1024, cpu.cfs_period_us 10000, " +
			"cpu.cfs_quota_us 5000, memory.limit_in_bytes 4096, pids.max 7"},
		{"v1, none", limitsOf(&world.SetCgroup{}, false),
			"cpu.cfs_quota_us -1*, memory.limit_in_bytes -1*, pids.max max*"},
		{"v2", limitsOf(all, true), "cpu.weight 100, cpu.max 5000 10000, memory.min 0*, " +
			"memory.low 0*, memory.max 4096, pids.max 7"},
		{"v2, none", limitsOf(&world.SetCgroup{}, true), "cpu.max max 100000*, memory.min 0*, " +
			"memory.low 0*, memory.max max*, pids.max max*"},
		{"v2, pages", limitsOf(pages, true), "cpu.max max 100000*, memory.min 8192, " +
			"memory.low 4096, memory.max max*, pids.max max*, hugetlb.2MB.max 4194304, " +
			"hugetlb.2MB.rsvd.max 4194304, hugetlb.1GB.max 0, hugetlb.1GB.rsvd.max 0, " +
			"hugetlb.64KB.max max*, hugetlb.64KB.rsvd.max max*"},
		{"v1, pages", hugePageLimits(pages, false), "hugetlb.2MB.limit_in_bytes 4194304, " +
			"hugetlb.2MB.rsvd.limit_in_bytes 4194304, hugetlb.1GB.limit_in_bytes 0, " +
			"hugetlb.1GB.rsvd.limit_in_bytes 0, hugetlb.64KB.limit_in_bytes -1*, " +
			"hugetlb.64KB.rsvd.limit_in_bytes -1*"},
		{"v2, of others", limitsOf(theirs, true), "memory.max 4096"},
		{"v1, of others", limitsOf(theirs, false), "memory.limit_in_bytes 4096"},
	}
	for _, c := range cases {
		var got []string
		for _, l := range c.got {
			text := l.file + " " + l.value
			if l.isDefault {
				text += "*"
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != c.want {
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
		"memory": {"memory.max": "max", "memory.min": "0", "memory.low": "0"},
		"pids":   {"pids.max": "max"},
		"hugetlb": {"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max",
			"hugetlb.1GB.max": "max"}, // as before Linux 5.7
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
			map[string]string{"cgroup.subtree_control": "+cpu +memory +pids +hugetlb"})
		kernel(t)(dir)
		writeFiles(t, dir, map[string]string{"cgroup.controllers": "cpu memory pids hugetlb"})
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
	h.must(&world.SetCgroup{Path: "kubepods/burstable", MemoryMin: 4096, MemoryLow: 8192,
		HugePages: []world.HugePageLimit{{SizeBytes: 2 << 20, MaxBytes: 4 << 20}, {SizeBytes: 1 << 30},
			{SizeBytes: 64 << 10}}})
	checkFiles(t, root, map[string]string{
		"kubepods/burstable/memory.min": "4096", "kubepods/burstable/memory.low": "8192",
		"kubepods/burstable/hugetlb.2MB.max":      "4194304",
		"kubepods/burstable/hugetlb.2MB.rsvd.max": "4194304",
		"kubepods/burstable/hugetlb.1GB.max":      "0", "kubepods/memory.min": "0"})
	h.must(&world.SetCgroup{Path: "kubepods/burstable",
		HugePages: []world.HugePageLimit{{SizeBytes: 2 << 20, MaxBytes: -1}}})
	checkFiles(t, root, map[string]string{
		"kubepods/burstable/memory.min": "0", "kubepods/burstable/memory.low": "0",
		"kubepods/burstable/hugetlb.2MB.max":      "max",
		"kubepods/burstable/hugetlb.2MB.rsvd.max": "max"})
	if got := h.list("kubepods", false); got != "burstable" {
		t.Errorf("listed %q", got)
	}
	if got := h.list("kubepods/besteffort", false); got != "" {
		t.Errorf("below a missing cgroup: %q", got)
	}
}

// A limit below the usage is set to the usage, which kills no process; all other limits are set.
func TestLimitAboveUsage(t *testing.T) {
	root := v2Root(t)
	h := newHarness(t, root)
	usage := map[string]string{"cgroup.procs": "", "cgroup.controllers": "", "cpu.weight": "100",
		"cpu.max": "max 100000", "memory.max": "max", "memory.current": "8192", "pids.max": "max"}
	writeFiles(t, filepath.Join(root, "kubepods"), usage)
	body, err := h.try(&world.SetCgroup{Path: "kubepods", MemoryBytes: 4096, PidsMax: 9,
		AboveUsage: true}, porttest.Patience)
	above, _ := body.(*world.CgroupAboveLimit)
	if err != nil || above == nil || above.UsageBytes != 8192 {
		t.Errorf("completed with %+v, %v", body, err)
	}
	checkFiles(t, root, map[string]string{"kubepods/memory.max": "8192", "kubepods/pids.max": "9"})
	writeFiles(t, root, map[string]string{"kubepods/memory.current": "100"})
	h.must(&world.SetCgroup{Path: "kubepods", MemoryBytes: 4096, PidsMax: 9, AboveUsage: true})
	checkFiles(t, root, map[string]string{"kubepods/memory.max": "4096"})
}

// A limit that would be lowered to the usage, or below, stays as it is, and all other limits are
// set. A limit that is not lowered is set whatever the usage is.
func TestLimitNotBelowUsage(t *testing.T) {
	for _, test := range []struct {
		has, usage, want string
		limit            int64
	}{
		{"16384", "8192", "16384", 16384}, {"max", "4096", "max", 0}, {"16384", "4095", "4096", -1},
		{"4096", "4096", "4096", -1}, {"2048", "8192", "4096", -1}, {"max", "100", "4096", -1},
	} {
		root := v2Root(t)
		h := newHarness(t, root)
		writeFiles(t, filepath.Join(root, "kubepods/pod1"), map[string]string{"cgroup.procs": "",
			"cgroup.controllers": "", "cpu.weight": "100", "cpu.max": "max 100000",
			"memory.max": test.has, "memory.current": test.usage, "pids.max": "max"})
		body, err := h.try(&world.SetCgroup{Path: "kubepods/pod1", MemoryBytes: 4096, PidsMax: 9,
			NotBelowUsage: true}, porttest.Patience)
		above, isAbove := body.(*world.CgroupAboveLimit)
		if err != nil || isAbove != (test.limit >= 0) || isAbove && above.LimitBytes != test.limit {
			t.Errorf("%+v: completed with %+v, %v", test, body, err)
		}
		checkFiles(t, root, map[string]string{"kubepods/pod1/memory.max": test.want,
			"kubepods/pod1/pids.max": "9"})
	}
	v1 := []hierarchy{{root: t.TempDir()}}
	writeFiles(t, filepath.Join(v1[0].root, "a"), map[string]string{
		"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "8192"})
	if memoryLimit(v1, "a") != 0 || memoryUsage(v1, "a") != 8192 {
		t.Errorf("in cgroup v1: %d of %d", memoryUsage(v1, "a"), memoryLimit(v1, "a"))
	}
}

// A cgroup that is to exist is not created, and keeps the limits that are not asked for.
func TestExistingCgroup(t *testing.T) {
	root := v2Root(t)
	h := newHarness(t, root)
	set := &world.SetCgroup{Path: "system", Existing: true, MemoryBytes: 4096}
	if _, err := h.try(set, porttest.Patience); !err.Has(world.KindNotFound) ||
		!strings.Contains(err.Error(), `"system"`) || hasFile(root, "system") {
		t.Errorf("error %v, want NotFound, and no cgroup", err)
	}
	writeFiles(t, root, map[string]string{"system/cpu.max": "5000 10000", "system/memory.max": "max",
		"system/pids.max": "77"})
	h.must(set)
	checkFiles(t, root, map[string]string{"system/cpu.max": "5000 10000",
		"system/memory.max": "4096", "system/pids.max": "77"})
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
