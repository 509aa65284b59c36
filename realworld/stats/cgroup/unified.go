package cgroup

import (
	"path/filepath"

	"github.com/google/cadvisor/lib/model"
)

// unifiedUsage reads a v2 cgroup. The root has only some of the files.
func (r *Reader) unifiedUsage(path string, s *model.ContainerStats) error {
	d, err := openDir(r, r.dirOf("", path))
	if err != nil {
		return err
	}
	defer d.close()
	s.Cpu = d.unifiedCPU()
	s.Memory = d.unifiedMemory()
	if isRoot(path) && d.read("memory.current") == nil {
		if s.Memory == nil {
			s.Memory = &model.MemoryStats{}
		}
		r.machineMemory(s.Memory)
	}
	if s.Memory != nil {
		d.pairs("memory.events", func(key string, n uint64) {
			switch key {
			case "high":
				s.Memory.Events.High = n
			case "max":
				s.Memory.Events.Max, s.Memory.Failcnt = n, n
			}
		})
		d.ownOOMKills(&s.OOMEvents)
	}
	s.DiskIo = &model.DiskIoStats{}
	d.pressure("io.pressure", &s.DiskIo.PSI)
	d.threads(s)
	return nil
}

func (d *dir) unifiedCPU() *model.CpuStats {
	c := &model.CpuStats{}
	const microsecond = 1000
	known := d.pairs("cpu.stat", func(key string, n uint64) {
		switch key {
		case "usage_usec":
			c.Usage.Total = n * microsecond
		case "user_usec":
			c.Usage.User = n * microsecond
		case "system_usec":
			c.Usage.System = n * microsecond
		case "nr_periods":
			c.CFS.Periods = n
		case "nr_throttled":
			c.CFS.ThrottledPeriods = n
		case "throttled_usec":
			c.CFS.ThrottledTime = n * microsecond
		case "nr_bursts":
			c.CFS.BurstsPeriods = n
		case "burst_usec":
			c.CFS.BurstTime = n * microsecond
		}
	})
	if !known {
		return nil
	}
	d.pressure("cpu.pressure", &c.PSI)
	return c
}

func (d *dir) unifiedMemory() *model.MemoryStats {
	m := &model.MemoryStats{}
	known := d.pairs("memory.stat", func(key string, n uint64) {
		switch key {
		case "file":
			m.Cache = n
		case "anon":
			m.RSS = n
		case "file_mapped":
			m.MappedFile = n
		case "kernel":
			m.KernelUsage = n
		case "inactive_file":
			m.TotalInactiveFile = n
		case "active_file":
			m.TotalActiveFile = n
		case "file_dirty":
			m.FileDirty = n
		case "file_writeback":
			m.FileWriteback = n
		case "pgfault":
			m.ContainerData.Pgfault, m.HierarchicalData.Pgfault = n, n
		case "pgmajfault":
			m.ContainerData.Pgmajfault, m.HierarchicalData.Pgmajfault = n, n
		case "pgscan":
			m.Pgscan = n
		case "pgsteal":
			m.Pgsteal = n
		case "workingset_refault_file":
			m.WorkingsetRefaultFile = n
		case "workingset_refault_anon":
			m.WorkingsetRefaultAnon = n
		}
	})
	usage, has := d.number("memory.current")
	if !known && !has {
		return nil
	}
	m.Usage = usage
	m.MaxUsage = d.numberOr("memory.peak", 0)
	m.Swap = d.numberOr("memory.swap.current", 0)
	d.pressure("memory.pressure", &m.PSI)
	return m
}

// ownOOMKills reads how many processes of the cgroup itself the kernel has killed, as cAdvisor
// counts them: memory.events counts those of the cgroups below too. memory.events.local is there
// since Linux 5.2.
func (d *dir) ownOOMKills(kills *uint64) {
	count := func(key string, n uint64) {
		if key == "oom_kill" {
			*kills = n
		}
	}
	if !d.pairs("memory.events.local", count) {
		d.pairs("memory.events", count)
	}
}

// machineMemory returns the memory usage of the machine, which the v2 root cgroup does not have:
// what the v1 one has, processes and page cache, and not slab, page tables and huge pages
// (upstream: rootStatsFromMeminfo in github.com/opencontainers/cgroups). On a node that runs in a
// container, the visible root is an ordinary cgroup and has it.
func (r *Reader) machineMemory(m *model.MemoryStats) {
	info, err := ReadMemInfo(r.roots.Proc)
	if err != nil {
		return
	}
	if m.Usage = m.RSS + m.Cache; m.Usage == 0 { // the root has no memory.stat
		m.Usage = info.Total - min(info.Total, info.Free)
	}
	m.Swap = info.SwapTotal - min(info.SwapTotal, info.SwapFree)
}

func (d *dir) threads(s *model.ContainerStats) {
	if n, ok := d.number("pids.current"); ok {
		s.Processes = &model.ProcessStats{ThreadsCurrent: n}
		if limit := d.numberOr("pids.max", 0); limit < 1<<62 { // cAdvisor reports zero for no limit
			s.Processes.ThreadsMax = limit
		}
	}
}

// MemInfo is the memory of the machine in bytes.
type MemInfo struct {
	Total, Free, Available, SwapTotal, SwapFree uint64
}

// ReadMemInfo reads PROC/meminfo.
func ReadMemInfo(proc string) (MemInfo, error) {
	var m MemInfo
	lines, err := fields(filepath.Join(proc, "meminfo"))
	if err != nil {
		return m, err
	}
	for _, line := range lines {
		if len(line) < 2 {
			continue
		}
		kib, ok := parseNumber([]byte(line[1]))
		if !ok {
			continue
		}
		switch line[0] {
		case "MemTotal:":
			m.Total = kib << 10
		case "MemFree:":
			m.Free = kib << 10
		case "MemAvailable:":
			m.Available = kib << 10
		case "SwapTotal:":
			m.SwapTotal = kib << 10
		case "SwapFree:":
			m.SwapFree = kib << 10
		}
	}
	return m, nil
}
