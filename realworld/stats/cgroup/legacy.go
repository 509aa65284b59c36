package cgroup

import "github.com/google/cadvisor/lib/model"

// tick is the kernel's unit of user and system time in nanoseconds. USER_HZ is 100 on every
// architecture that Kubernetes supports.
const tick = 10_000_000

// legacyUsage reads a v1 cgroup in each of its hierarchies.
func (r *Reader) legacyUsage(path string, s *model.ContainerStats) error {
	return r.eachDir(path, func(controller string, d *dir) {
		switch controller {
		case cpuacct:
			d.legacyCPU(s)
		case cpu:
			if s.Cpu != nil {
				d.legacyThrottling(&s.Cpu.CFS)
			}
		case memory:
			s.Memory = d.legacyMemory()
			d.pairs("memory.oom_control", func(key string, n uint64) {
				if key == "oom_kill" {
					s.OOMEvents = n
				}
			})
		case pids:
			d.threads(s)
		}
	})
}

func (d *dir) legacyCPU(s *model.ContainerStats) {
	total, ok := d.number("cpuacct.usage")
	if !ok {
		return
	}
	s.Cpu = &model.CpuStats{}
	s.Cpu.Usage.Total = total
	d.pairs("cpuacct.stat", func(key string, n uint64) {
		switch key {
		case "user":
			s.Cpu.Usage.User = n * tick
		case "system":
			s.Cpu.Usage.System = n * tick
		}
	})
}

func (d *dir) legacyThrottling(c *model.CpuCFS) {
	d.pairs("cpu.stat", func(key string, n uint64) {
		switch key {
		case "nr_periods":
			c.Periods = n
		case "nr_throttled":
			c.ThrottledPeriods = n
		case "throttled_time":
			c.ThrottledTime = n
		case "nr_bursts":
			c.BurstsPeriods = n
		case "burst_time":
			c.BurstTime = n
		}
	})
}

func (d *dir) legacyMemory() *model.MemoryStats {
	usage, ok := d.number("memory.usage_in_bytes")
	if !ok {
		return nil
	}
	m := &model.MemoryStats{Usage: usage}
	m.MaxUsage = d.numberOr("memory.max_usage_in_bytes", 0)
	m.Failcnt = d.numberOr("memory.failcnt", 0)
	m.KernelUsage = d.numberOr("memory.kmem.usage_in_bytes", 0)
	d.pairs("memory.stat", func(key string, n uint64) {
		switch key {
		case "total_cache":
			m.Cache = n
		case "total_rss":
			m.RSS = n
		case "total_swap":
			m.Swap = n
		case "total_mapped_file":
			m.MappedFile = n
		case "total_inactive_file":
			m.TotalInactiveFile = n
		case "total_active_file":
			m.TotalActiveFile = n
		case "pgfault":
			m.ContainerData.Pgfault = n
		case "pgmajfault":
			m.ContainerData.Pgmajfault = n
		case "total_pgfault":
			m.HierarchicalData.Pgfault = n
		case "total_pgmajfault":
			m.HierarchicalData.Pgmajfault = n
		}
	})
	return m
}
