package cgroup

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/google/cadvisor/lib/model"
)

// newReader writes files, by their paths below a new root, and returns a reader of them.
func newReader(t *testing.T, files map[string]string) *Reader {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(Roots{Cgroup: filepath.Join(root, "cgroup"), Proc: filepath.Join(root, "proc"),
		Sys: filepath.Join(root, "sys")})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const v2Pressure = "some avg10=1.50 avg60=2.50 avg300=3.50 total=400\n" +
	"full avg10=0.10 avg60=0.20 avg300=0.30 total=40"

// unified is a v2 machine with one pod of one container.
var unified = map[string]string{
	"cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids",
	"cgroup/cpu.stat":           "usage_usec 9000000\nuser_usec 6000000\nsystem_usec 3000000",
	"cgroup/memory.stat":        "anon 1000\nfile 3000\nslab 900\ninactive_file 2048",
	"cgroup/io.stat":            "253:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0",
	"proc/meminfo":              "MemTotal: 16 kB\nMemFree: 6 kB\nSwapTotal: 8 kB\nSwapFree: 5 kB",
	"proc/stat":                 "cpu 1 2 3\nbtime 1700000000",
	"proc/pressure/cpu":         v2Pressure,
	"proc/pressure/memory":      v2Pressure,
	"proc/pressure/io":          v2Pressure,
	"cgroup/kubepods/a/cpu.stat": "usage_usec 10\nuser_usec 6\nsystem_usec 4\nnr_periods 7\n" +
		"nr_throttled 3\nthrottled_usec 5\nnr_bursts 2\nburst_usec 1",
	"cgroup/kubepods/a/cpu.pressure":        v2Pressure,
	"cgroup/kubepods/a/cpu.max":             "50000 100000",
	"cgroup/kubepods/a/cpu.weight":          "39",
	"cgroup/kubepods/a/memory.current":      "10000",
	"cgroup/kubepods/a/memory.peak":         "20000",
	"cgroup/kubepods/a/memory.max":          "65536",
	"cgroup/kubepods/a/memory.min":          "0",
	"cgroup/kubepods/a/memory.swap.current": "300",
	"cgroup/kubepods/a/memory.swap.max":     "max",
	"cgroup/kubepods/a/memory.stat": "anon 4000\nfile 5000\nkernel 700\nfile_mapped 60\n" +
		"inactive_file 3000\nactive_file 2000\nfile_dirty 8\nfile_writeback 9\npgfault 11\n" +
		"pgmajfault 2\npgscan 3\npgsteal 4\nworkingset_refault_file 5\nworkingset_refault_anon 6",
	"cgroup/kubepods/a/memory.events":       "low 0\nhigh 5\nmax 6\noom 2\noom_kill 7",
	"cgroup/kubepods/a/memory.events.local": "low 0\nhigh 5\nmax 6\noom 2\noom_kill 1",
	"cgroup/kubepods/a/memory.pressure":     v2Pressure,
	"cgroup/kubepods/a/io.pressure":         v2Pressure,
	"cgroup/kubepods/a/io.stat": "8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n" +
		"8:0\n9:1 rbytes=7 wbytes=8 rios=9 wios=10",
	"cgroup/kubepods/a/pids.current": "12",
	"cgroup/kubepods/a/pids.max":     "max",
	"cgroup/kubepods/a/cgroup.procs": "41\n42",
}

var waited = model.PSIStats{Some: model.PSIData{Avg10: 1.5, Avg60: 2.5, Avg300: 3.5, Total: 400},
	Full: model.PSIData{Avg10: .1, Avg60: .2, Avg300: .3, Total: 40}}

func same(t *testing.T, got, want *model.ContainerStats) {
	t.Helper()
	if diff := cmp.Diff(want, got,
		cmpopts.IgnoreFields(model.ContainerStats{}, "Timestamp")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if age := time.Since(got.Timestamp); age < 0 || age > time.Minute {
		t.Errorf("the sample is of %s", got.Timestamp)
	}
}

func TestUnified(t *testing.T) {
	got, err := newReader(t, unified).Usage("/kubepods/a")
	if err != nil {
		t.Fatal(err)
	}
	want := &model.ContainerStats{
		Cpu: &model.CpuStats{PSI: waited,
			Usage: model.CpuUsage{Total: 10000, User: 6000, System: 4000},
			CFS: model.CpuCFS{Periods: 7, ThrottledPeriods: 3, ThrottledTime: 5000,
				BurstsPeriods: 2, BurstTime: 1000}},
		Memory: &model.MemoryStats{PSI: waited, Usage: 10000, MaxUsage: 20000, Cache: 5000,
			RSS: 4000, Swap: 300, MappedFile: 60, WorkingSet: 7000, TotalActiveFile: 2000,
			TotalInactiveFile: 3000, FileDirty: 8, FileWriteback: 9, Pgscan: 3, Pgsteal: 4,
			WorkingsetRefaultFile: 5, WorkingsetRefaultAnon: 6, Failcnt: 6, KernelUsage: 700,
			ContainerData:    model.MemoryStatsMemoryData{Pgfault: 11, Pgmajfault: 2},
			HierarchicalData: model.MemoryStatsMemoryData{Pgfault: 11, Pgmajfault: 2},
			Events:           model.MemoryEvents{High: 5, Max: 6}},
		DiskIo:    &model.DiskIoStats{PSI: waited},
		Processes: &model.ProcessStats{ThreadsCurrent: 12},
		OOMEvents: 1,
	}
	same(t, got, want)
}

// The v2 root has no memory.current and the like: its usage is the machine's.
func TestUnifiedRoot(t *testing.T) {
	got, err := newReader(t, unified).Usage("/")
	if err != nil {
		t.Fatal(err)
	}
	second := uint64(time.Second)
	want := &model.ContainerStats{
		Cpu: &model.CpuStats{PSI: waited,
			Usage: model.CpuUsage{Total: 9 * second, User: 6 * second, System: 3 * second}},
		Memory: &model.MemoryStats{PSI: waited, Usage: 4000, WorkingSet: 4000 - 2<<10, RSS: 1000,
			Cache: 3000, TotalInactiveFile: 2 << 10, Swap: 3 << 10},
		DiskIo: &model.DiskIoStats{PSI: waited},
	}
	same(t, got, want)
}

// On a node that runs in a container the root is the container's cgroup and has all files.
func TestUnifiedRootOfAContainer(t *testing.T) {
	r := newReader(t, map[string]string{"cgroup/cgroup.controllers": "memory",
		"cgroup/memory.current": "5000", "cgroup/memory.stat": "inactive_file 1000",
		"proc/meminfo": "MemTotal: 16 kB\nMemFree: 6 kB"})
	got, err := r.Usage("/")
	if err != nil || got.Memory.Usage != 5000 || got.Memory.WorkingSet != 4000 {
		t.Errorf("%+v, %v", got.Memory, err)
	}
}

// The creation time of a cgroup is the oldest time of its files, and not before the boot.
func TestCreated(t *testing.T) {
	r := newReader(t, map[string]string{"cgroup/cgroup.controllers": "", "cgroup/a/cgroup.events": "",
		"cgroup/b/cgroup.events": "", "proc/stat": "btime 1700000000"})
	for name, seconds := range map[string]int64{"a": 1750000000, "b": 1600000000} {
		at := time.Unix(seconds, 0)
		path := filepath.Join(r.roots.Cgroup, name, "cgroup.events")
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]time.Time{"/": time.Unix(1700000000, 0), "c": {},
		"a": time.Unix(1750000000, 0), "b": time.Unix(1700000000, 0)} {
		if got := r.Created(path); !got.Equal(want) {
			t.Errorf("%s was made at %s, want %s", path, got, want)
		}
	}
}

func TestUnifiedSpecAndDetail(t *testing.T) {
	files := map[string]string{"proc/41/fd/0": "", "proc/41/fd/1": ""}
	for path, text := range unified {
		files[path] = text
	}
	r := newReader(t, files)
	for name, target := range map[string]string{
		"sys/dev/block/8:16": "../../devices/pci/block/sdb", "proc/41/fd/3": "socket:[9]",
	} {
		path := filepath.Join(filepath.Dir(r.roots.Proc), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	spec := r.Spec("/kubepods/a")
	if spec.Cpu.Limit != 998 || spec.Cpu.Quota != 50000 || spec.Cpu.Period != 100000 ||
		spec.Memory.Limit != 65536 || spec.Memory.SwapLimit != math.MaxUint64 ||
		time.Since(spec.CreationTime) > time.Hour {
		t.Errorf("spec %+v", spec)
	}
	if root := r.Spec("/"); root.Memory.Limit != 16<<10 || root.CreationTime.Unix() != 1700000000 {
		t.Errorf("spec of the root %+v", root)
	}
	var s model.ContainerStats
	r.Detail("/kubepods/a", &s)
	want := model.ContainerStats{
		Processes: &model.ProcessStats{ProcessCount: 2, FdCount: 3, SocketCount: 1},
		DiskIo: &model.DiskIoStats{
			IoServiceBytes: []model.PerDiskStats{
				{Device: "/dev/sdb", Major: 8, Minor: 16,
					Stats: map[string]uint64{"Read": 1, "Write": 2, "Discard": 5}},
				{Device: "9:1", Major: 9, Minor: 1, Stats: map[string]uint64{"Read": 7, "Write": 8}}},
			IoServiced: []model.PerDiskStats{
				{Device: "/dev/sdb", Major: 8, Minor: 16,
					Stats: map[string]uint64{"Read": 3, "Write": 4, "Discard": 6}},
				{Device: "9:1", Major: 9, Minor: 1, Stats: map[string]uint64{"Read": 9, "Write": 10}}},
		}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if memory, swap := r.Limits("/kubepods/a"); memory != 65536 || swap != math.MaxUint64 {
		t.Errorf("limits %d, %d", memory, swap)
	}
}

// legacy is a v1 machine. The hybrid layout has "unified" as well, without any controller.
var legacy = map[string]string{
	"cgroup/unified/cgroup.controllers":           "",
	"cgroup/unified/a/cpu.stat":                   "usage_usec 1",
	"cgroup/cpuacct/a/cpuacct.usage":              "10000",
	"cgroup/cpuacct/a/cpuacct.stat":               "user 6\nsystem 4",
	"cgroup/cpuacct/a/cgroup.procs":               "41",
	"cgroup/cpu/a/cpu.stat":                       "nr_periods 7\nnr_throttled 3\nthrottled_time 5",
	"cgroup/cpu/a/cpu.shares":                     "1024",
	"cgroup/cpu/a/cpu.cfs_quota_us":               "-1",
	"cgroup/cpu/a/cpu.cfs_period_us":              "100000",
	"cgroup/memory/a/memory.usage_in_bytes":       "10000",
	"cgroup/memory/a/memory.max_usage_in_bytes":   "20000",
	"cgroup/memory/a/memory.failcnt":              "2",
	"cgroup/memory/a/memory.kmem.usage_in_bytes":  "700",
	"cgroup/memory/a/memory.limit_in_bytes":       "65536",
	"cgroup/memory/a/memory.memsw.limit_in_bytes": "70000",
	"cgroup/memory/a/memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
	"cgroup/memory/a/memory.stat": "cache 1\nrss 2\ntotal_cache 5000\ntotal_rss 4000\n" +
		"total_swap 300\ntotal_mapped_file 60\ntotal_inactive_file 30000\n" +
		"total_active_file 2000\npgfault 1\npgmajfault 1\ntotal_pgfault 11\ntotal_pgmajfault 2",
	"cgroup/pids/a/pids.current": "12",
	"cgroup/pids/a/pids.max":     "100",
	"cgroup/blkio/a/blkio.throttle.io_service_bytes": "8:0 Read 1\n8:0 Write 2\n" +
		"8:16 Read 3\nTotal 6",
	"cgroup/blkio/a/blkio.throttle.io_serviced":           "8:0 Read 100\nTotal 100",
	"cgroup/blkio/a/blkio.throttle.io_serviced_recursive": "8:0 Read 5\nTotal 5",
}

func TestLegacy(t *testing.T) {
	r := newReader(t, legacy)
	got, err := r.Usage("a")
	if err != nil {
		t.Fatal(err)
	}
	r.Detail("a", got)
	want := &model.ContainerStats{
		Cpu: &model.CpuStats{
			Usage: model.CpuUsage{Total: 10000, User: 60_000_000, System: 40_000_000},
			CFS:   model.CpuCFS{Periods: 7, ThrottledPeriods: 3, ThrottledTime: 5}},
		Memory: &model.MemoryStats{Usage: 10000, MaxUsage: 20000, Cache: 5000, RSS: 4000,
			Swap: 300, MappedFile: 60, WorkingSet: 0, TotalActiveFile: 2000,
			TotalInactiveFile: 30000, Failcnt: 2, KernelUsage: 700,
			ContainerData:    model.MemoryStatsMemoryData{Pgfault: 1, Pgmajfault: 1},
			HierarchicalData: model.MemoryStatsMemoryData{Pgfault: 11, Pgmajfault: 2}},
		Processes: &model.ProcessStats{ThreadsCurrent: 12, ThreadsMax: 100, ProcessCount: 1},
		OOMEvents: 3,
		DiskIo: &model.DiskIoStats{
			IoServiceBytes: []model.PerDiskStats{
				{Device: "8:0", Major: 8, Stats: map[string]uint64{"Read": 1, "Write": 2}},
				{Device: "8:16", Major: 8, Minor: 16, Stats: map[string]uint64{"Read": 3}}},
			IoServiced: []model.PerDiskStats{
				{Device: "8:0", Major: 8, Stats: map[string]uint64{"Read": 5}}}},
	}
	same(t, got, want)
	spec := r.Spec("a")
	if spec.Cpu.Limit != 1024 || spec.Cpu.Quota != 0 || spec.Memory.Limit != 65536 {
		t.Errorf("spec %+v", spec)
	}
	if memory, swap := r.Limits("a"); memory != 65536 || swap != 70000-65536 {
		t.Errorf("limits %d, %d", memory, swap)
	}
}

// A malformed file leaves its numbers zero; a cgroup that does not exist is an error.
func TestBadFiles(t *testing.T) {
	r := newReader(t, map[string]string{
		"cgroup/cgroup.controllers": "cpu memory",
		"cgroup/a/cpu.stat":         "usage_usec -5\nuser_usec lots\n\nsystem_usec",
		"cgroup/a/memory.current":   "99999999999999999999999",
		"cgroup/a/memory.stat":      "anon 5\nfile",
		"cgroup/a/memory.pressure":  "some avg10=x total=y\nnone\nfull\n",
		"cgroup/a/io.stat":          "a:b rbytes=1\n8:0 rbytes",
		"cgroup/a/cgroup.procs":     "0\nx\n-1",
		"cgroup/b/cpu.stat":         "usage_usec 5\n" + strings.Repeat("x 1\n", fileBytesMax),
		"cgroup/c/nothing":          "",
	})
	got, err := r.Usage("a")
	if err != nil || got.Cpu != nil || got.Memory == nil || got.Memory.RSS != 5 ||
		got.Memory.Usage != 0 || got.Memory.WorkingSet != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	r.Detail("a", got)
	if len(got.DiskIo.IoServiceBytes) != 1 || got.Processes.ProcessCount != 0 {
		t.Errorf("%+v, %+v", got.DiskIo, got.Processes)
	}
	if got, err := r.Usage("b"); err != nil || got.Cpu != nil {
		t.Errorf("a file without an end: %+v, %v", got, err)
	}
	if got, err := r.Usage("c"); err != nil || got.Cpu != nil || got.Memory != nil {
		t.Errorf("a cgroup without controllers: %+v, %v", got, err)
	}
	for _, path := range []string{"d", "../../../etc", ""} {
		got, err := r.Usage("/x/" + path)
		if !errors.Is(err, fs.ErrNotExist) && path != "../../../etc" {
			t.Errorf("%q: %+v, %v", path, got, err)
		}
	}
	if _, err := New(Roots{Cgroup: t.TempDir()}); err == nil {
		t.Error("no error where there are no cgroups")
	}
}

func TestTree(t *testing.T) {
	for _, test := range []struct {
		name, of string
		files    []string
		pods     map[string]string
		groups   []string
		uid      string
		inside   map[string]string
	}{
		{"cgroupfs", "/a/kubepods",
			[]string{"a/kubepods/pod1-2/c1", "a/kubepods/pod1-2/c2", "a/kubepods/burstable/pod3",
				"a/kubepods/besteffort/podab-c", "a/kubepods/other/pod4"},
			map[string]string{"1-2": "/a/kubepods/pod1-2", "3": "/a/kubepods/burstable/pod3",
				"ab-c": "/a/kubepods/besteffort/podab-c"},
			[]string{"/a/kubepods", "/a/kubepods/besteffort", "/a/kubepods/burstable"},
			"1-2", map[string]string{"c1": "/a/kubepods/pod1-2/c1", "c2": "/a/kubepods/pod1-2/c2"}},
		{"systemd", "/kubepods.slice",
			[]string{"kubepods.slice/kubepods-pod1_2.slice/cri-containerd-c1.scope",
				"kubepods.slice/kubepods-pod1_2.slice/crio-c2.scope",
				"kubepods.slice/kubepods-pod1_2.slice/crio-conmon-c2.scope",
				"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3.slice"},
			map[string]string{"1-2": "/kubepods.slice/kubepods-pod1_2.slice",
				"3": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3.slice"},
			[]string{"/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"},
			"1-2", map[string]string{
				"c1": "/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-c1.scope",
				"c2": "/kubepods.slice/kubepods-pod1_2.slice/crio-c2.scope"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{"cgroup/cgroup.controllers": ""}
			for _, at := range test.files {
				files["cgroup/"+at+"/cgroup.procs"] = ""
			}
			r := newReader(t, files)
			pods, groups := r.Pods(test.of)
			if diff := cmp.Diff(test.pods, pods) + cmp.Diff(test.groups, groups); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.inside, r.Containers(pods[PodKey(test.uid)])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestKubepods(t *testing.T) {
	for _, test := range []struct{ root, there, want string }{
		{"", "kubepods/pod1", "/kubepods"}, {"/", "kubepods.slice/kubepods-pod1.slice",
			"/kubepods.slice"}, {"a-b/c", "a-b/c/kubepods/burstable/pod1", "/a-b/c/kubepods"},
		{"/a-b/c", "a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-pod1.slice",
			"/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice"},
		{"", "kubepods.slice/kubepods-burstable.slice", "/kubepods.slice"}, {"", "x", "/kubepods"},
	} {
		r := newReader(t, map[string]string{"cgroup/cgroup.controllers": "",
			"cgroup/" + test.there + "/cgroup.procs": ""})
		if got := r.Kubepods(test.root); got != test.want {
			t.Errorf("below %q with %s: %s, want %s", test.root, test.there, got, test.want)
		}
	}
}

func TestOf(t *testing.T) {
	const v1 = "5:memory:/m/deep\n4:cpu,cpuacct:/c\n1:name=systemd:/longer/than/others\n0::/unified"
	old := newReader(t, map[string]string{"cgroup/memory/x": "", "proc/7/cgroup": v1,
		"proc/8/cgroup": "4:memory:/\n0::/", "proc/9/cgroup": "nonsense"})
	for pid, want := range map[int]string{7: "/m/deep", 8: "", 9: "", 10: ""} {
		if got := old.CgroupOfProcess(pid); got != want {
			t.Errorf("process %d is in %q, want %q", pid, got, want)
		}
	}
	unified := newReader(t, map[string]string{"cgroup/cgroup.controllers": "", "proc/7/cgroup": v1})
	if got := unified.CgroupOfProcess(7); got != "/unified" {
		t.Errorf("with version 2 it is in %q", got)
	}
}

// FuzzUsage reads files of any content: reading does not panic, and its result can be encoded as
// JSON.
func FuzzUsage(f *testing.F) {
	f.Add("usage_usec 1\nuser_usec 2", "anon 1\ninactive_file 5", v2Pressure, "8:0 rbytes=1", true)
	f.Add("user 1", "total_rss 18446744073709551615", "some avg10=nan avg60=inf total=-1", ":", false)
	f.Fuzz(func(t *testing.T, cpu, memory, pressure, io string, unified bool) {
		files := map[string]string{"cgroup/memory/a/memory.stat": memory,
			"cgroup/memory/a/memory.usage_in_bytes": cpu, "cgroup/cpuacct/a/cpuacct.usage": "1",
			"cgroup/cpuacct/a/cpuacct.stat":                  cpu,
			"cgroup/blkio/a/blkio.throttle.io_service_bytes": io}
		if unified {
			files = map[string]string{"cgroup/cgroup.controllers": "", "cgroup/a/cpu.stat": cpu,
				"cgroup/a/memory.stat": memory, "cgroup/a/cpu.pressure": pressure,
				"cgroup/a/io.stat": io, "cgroup/a/memory.current": io, "cgroup/a/cpu.max": io,
				"cgroup/a/cgroup.procs": memory}
		}
		r := newReader(t, files)
		s, err := r.Usage("a")
		if err != nil {
			t.Fatal(err)
		}
		r.Detail("a", s)
		if _, err := json.Marshal([]any{s, r.Spec("a")}); err != nil {
			t.Error(err)
		}
		if s.Memory != nil && s.Memory.WorkingSet > s.Memory.Usage {
			t.Errorf("the working set %d of %d", s.Memory.WorkingSet, s.Memory.Usage)
		}
	})
}
