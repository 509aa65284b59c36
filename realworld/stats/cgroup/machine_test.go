package cgroup

import (
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/container/libcontainer"
	"github.com/google/cadvisor/lib/model"
)

// The usage of this machine's cgroups equals what cAdvisor reads: of the root, and of the cgroup of
// this process.
func TestAsCadvisor(t *testing.T) {
	roots := Roots{Cgroup: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys"}
	r, err := New(roots)
	if err != nil {
		t.Skipf("no cgroups here: %v", err)
	}
	for _, path := range []string{"/", r.CgroupOfProcess(os.Getpid())} {
		if path == "" {
			continue
		}
		t.Run(path, func(t *testing.T) {
			compare(t, r, path)
		})
	}
}

func compare(t *testing.T, r *Reader, path string) {
	kinds := container.MetricSet{container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}}
	subsystems, err := libcontainer.GetCgroupSubsystems(kinds)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for name, at := range common.MakeCgroupPaths(subsystems, path) {
		if _, err := os.Stat(at); err == nil {
			paths[name] = at
		}
	}
	manager, err := libcontainer.NewCgroupManager(path, paths)
	if err != nil {
		t.Fatal(err)
	}
	handler := libcontainer.NewHandler(manager, "/", 0, kinds)
	theirs, err := handler.GetStats()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := r.Usage(path)
	if err != nil {
		t.Fatal(err)
	}
	if ours.Memory == nil {
		t.Fatal("nothing is known of memory")
	}
	near(t, "memory.usage", ours.Memory.Usage, theirs.Memory.Usage)
	near(t, "memory.workingSet", ours.Memory.WorkingSet, theirs.Memory.WorkingSet)
	near(t, "memory.rss", ours.Memory.RSS, theirs.Memory.RSS)
	near(t, "memory.cache", ours.Memory.Cache, theirs.Memory.Cache)
	near(t, "memory.swap", ours.Memory.Swap, theirs.Memory.Swap)
	near(t, "memory.mappedFile", ours.Memory.MappedFile, theirs.Memory.MappedFile)
	near(t, "memory.kernel", ours.Memory.KernelUsage, theirs.Memory.KernelUsage)
	if ours.Cpu == nil { // the process is deeper in one hierarchy than in the other
		ours.Cpu = &model.CpuStats{}
	}
	near(t, "cpu.total", ours.Cpu.Usage.Total, theirs.Cpu.Usage.Total)
	near(t, "cpu.user", ours.Cpu.Usage.User, theirs.Cpu.Usage.User)
	near(t, "cpu.system", ours.Cpu.Usage.System, theirs.Cpu.Usage.System)
}

// near tolerates what changed between two readings.
func near(t *testing.T, name string, ours, theirs uint64) {
	t.Helper()
	difference := math.Abs(float64(ours) - float64(theirs))
	if difference > 0.1*float64(theirs)+64<<20 {
		t.Errorf("%s is %s here and %s with cAdvisor", name, strconv.FormatUint(ours, 10),
			strconv.FormatUint(theirs, 10))
	}
}
