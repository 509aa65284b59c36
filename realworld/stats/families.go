package stats

import (
	"strconv"

	"github.com/google/cadvisor/lib/model"
)

// metricFamily is one metric of /metrics/cadvisor, and how its samples are collected from a cgroup.
// Names, labels and units are cAdvisor's. cAdvisor's own collectors would allocate a descriptor and
// a message for each of tens of thousands of samples; a test compares the page with theirs.
type metricFamily struct {
	name, help  string
	gauge       bool // otherwise a counter
	noTimestamp bool // the value is constant over the life of the cgroup
	collect     func(c *cgroupStats, emit emitFunc)
}

// emitFunc receives a value and its labels (names and values) besides the identifying ones.
type emitFunc func(value float64, labels ...string)

// metricFamilies are all metrics of cgroups.
var metricFamilies = concat(specFamilies, cpuFamilies, memoryFamilies, diskFamilies,
	networkFamilies, processFamilies, pressureFamilies)

func concat(all ...[]metricFamily) (joined []metricFamily) {
	for _, some := range all {
		joined = append(joined, some...)
	}
	return joined
}

const nano = 1e9 // nanoseconds in a second

var specFamilies = []metricFamily{
	{"container_creation_time_seconds",
		"Creation time of the cgroup in seconds since the Unix epoch.", true, true,
		func(c *cgroupStats, emit emitFunc) {
			emit(float64(c.spec.CreationTime.Unix()))
		}},
	{"container_start_time_seconds",
		"Start time of the container in seconds since the Unix epoch.", true, true,
		func(c *cgroupStats, emit emitFunc) {
			began := c.spec.StartTime
			if began.IsZero() {
				began = c.spec.CreationTime
			}
			emit(float64(began.Unix()))
		}},
	cpuSpec("period", "CPU period in microseconds.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Period, true }),
	cpuSpec("quota", "CPU quota per period in microseconds.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Quota, c.Quota != 0 }),
	cpuSpec("shares", "CPU shares.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Limit, true }),
	memorySpec("limit", "Memory limit in bytes; zero for none.",
		func(m *model.MemorySpec) uint64 { return m.Limit }),
	memorySpec("swap_limit", "Swap limit in bytes; zero for none.",
		func(m *model.MemorySpec) uint64 { return m.SwapLimit }),
	memorySpec("reservation_limit", "Memory in bytes that is protected from reclaim.",
		func(m *model.MemorySpec) uint64 { return m.Reservation }),
}

func cpuSpec(name, help string, of func(*model.CpuSpec) (uint64, bool)) metricFamily {
	return metricFamily{"container_spec_cpu_" + name, help, true, true,
		func(c *cgroupStats, emit emitFunc) {
			if n, has := of(&c.spec.Cpu); has && c.spec.HasCpu {
				emit(float64(n))
			}
		}}
}

func memorySpec(name, help string, of func(*model.MemorySpec) uint64) metricFamily {
	return metricFamily{"container_spec_memory_" + name + "_bytes", help, true, true,
		func(c *cgroupStats, emit emitFunc) {
			n := of(&c.spec.Memory)
			if n > unlimitedFrom {
				n = 0
			}
			if c.spec.HasMemory {
				emit(float64(n))
			}
		}}
}

var cpuFamilies = []metricFamily{
	{"container_cpu_usage_seconds_total", "CPU time used, in seconds.", false,
		false, func(c *cgroupStats, emit emitFunc) {
			if c.Cpu != nil && c.Cpu.Usage.Total > 0 {
				emit(float64(c.Cpu.Usage.Total)/nano, "cpu", "total")
			}
		}},
	cpuTime("user_seconds_total", "CPU time used in user mode, in seconds.", false,
		func(c *model.CpuStats) float64 { return float64(c.Usage.User) / nano }),
	cpuTime("system_seconds_total", "CPU time used in kernel mode, in seconds.", false,
		func(c *model.CpuStats) float64 { return float64(c.Usage.System) / nano }),
	cpuTime("cfs_periods_total", "Periods of the CPU quota that have elapsed.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.Periods) }),
	cpuTime("cfs_throttled_periods_total", "Periods in which the cgroup was throttled.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.ThrottledPeriods) }),
	cpuTime("cfs_throttled_seconds_total", "Time that the cgroup was throttled, in seconds.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.ThrottledTime) / nano }),
	cpuTime("cfs_burst_periods_total", "Periods in which the cgroup used CPU burst.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.BurstsPeriods) }),
	cpuTime("cfs_burst_seconds_total", "CPU time used above the quota, in seconds.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.BurstTime) / nano }),
}

// cpuTime returns a CPU counter. Counters of a quota exist only for cgroups with a quota.
func cpuTime(name, help string, quota bool, of func(*model.CpuStats) float64) metricFamily {
	return metricFamily{"container_cpu_" + name, help, false, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.Cpu != nil && (!quota || c.spec.Cpu.Quota != 0) {
				emit(of(c.Cpu))
			}
		}}
}

var memoryFamilies = []metricFamily{
	memoryOfKind("usage_bytes", "Memory used, in bytes, including the page cache.", true,
		func(m *model.MemoryStats) uint64 { return m.Usage }),
	memoryOfKind("max_usage_bytes", "Highest memory usage recorded, in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.MaxUsage }),
	memoryOfKind("working_set_bytes", "Memory used without inactive file pages, in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.WorkingSet }),
	memoryOfKind("cache", "Page cache in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.Cache }),
	memoryOfKind("rss", "Anonymous memory in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.RSS }),
	memoryOfKind("kernel_usage", "Kernel memory in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.KernelUsage }),
	memoryOfKind("mapped_file", "Memory-mapped files in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.MappedFile }),
	memoryOfKind("swap", "Swap used, in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.Swap }),
	memoryOfKind("failcnt", "Times that the memory limit was hit.", false,
		func(m *model.MemoryStats) uint64 { return m.Failcnt }),
	memoryOfKind("total_active_file_bytes", "Active file pages in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.TotalActiveFile }),
	memoryOfKind("total_inactive_file_bytes", "Inactive file pages in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.TotalInactiveFile }),
	memoryOfKind("file_dirty_bytes", "Dirty file pages in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.FileDirty }),
	memoryOfKind("file_writeback_bytes", "File pages under writeback in bytes.", true,
		func(m *model.MemoryStats) uint64 { return m.FileWriteback }),
	memoryOfKind("pgscan_total", "Pages scanned for reclaim.", false,
		func(m *model.MemoryStats) uint64 { return m.Pgscan }),
	memoryOfKind("pgsteal_total", "Pages reclaimed.", false,
		func(m *model.MemoryStats) uint64 { return m.Pgsteal }),
	memoryOfKind("workingset_refault_file_total", "Refaults of reclaimed file pages.",
		false, func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultFile }),
	memoryOfKind("workingset_refault_anon_total", "Refaults of reclaimed anonymous pages.",
		false, func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultAnon }),
	memoryOfKind("events_high_total", "Times that the cgroup was throttled at memory.high.", false,
		func(m *model.MemoryStats) uint64 { return m.Events.High }),
	memoryOfKind("events_max_total", "Times that the cgroup was about to exceed memory.max.", false,
		func(m *model.MemoryStats) uint64 { return m.Events.Max }),
	{"container_memory_failures_total", "Page faults, minor and major.", false, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.Memory == nil {
				return
			}
			const failure, scope, minor, major = "failure_type", "scope", "pgfault", "pgmajfault"
			own, all := c.Memory.ContainerData, c.Memory.HierarchicalData
			emit(float64(own.Pgfault), failure, minor, scope, "container")
			emit(float64(own.Pgmajfault), failure, major, scope, "container")
			emit(float64(all.Pgfault), failure, minor, scope, "hierarchy")
			emit(float64(all.Pgmajfault), failure, major, scope, "hierarchy")
		}},
	{"container_oom_events_total", "OOM kills in the cgroup.", false, false,
		func(c *cgroupStats, emit emitFunc) {
			emit(float64(c.OOMEvents))
		}},
}

func memoryOfKind(name, help string, gauge bool, of func(*model.MemoryStats) uint64) metricFamily {
	return metricFamily{"container_memory_" + name, help, gauge, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.Memory != nil {
				emit(float64(of(c.Memory)))
			}
		}}
}

var processFamilies = []metricFamily{
	processes("processes", "Processes in the cgroup.",
		func(p *model.ProcessStats) uint64 { return p.ProcessCount }),
	processes("file_descriptors", "Open files of the processes.",
		func(p *model.ProcessStats) uint64 { return p.FdCount }),
	processes("sockets", "Open sockets of the processes.",
		func(p *model.ProcessStats) uint64 { return p.SocketCount }),
	processes("threads", "Threads in the cgroup and its descendants.",
		func(p *model.ProcessStats) uint64 { return p.ThreadsCurrent }),
	processes("threads_max", "Limit of threads; zero for none.",
		func(p *model.ProcessStats) uint64 { return p.ThreadsMax }),
}

func processes(name, help string, of func(*model.ProcessStats) uint64) metricFamily {
	return metricFamily{"container_" + name, help, true, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.Processes != nil {
				emit(float64(of(c.Processes)))
			}
		}}
}

var networkFamilies = []metricFamily{
	networkFamily("receive_bytes_total", "Bytes received.",
		func(i *model.InterfaceStats) uint64 { return i.RxBytes }),
	networkFamily("receive_packets_total", "Packets received.",
		func(i *model.InterfaceStats) uint64 { return i.RxPackets }),
	networkFamily("receive_packets_dropped_total", "Incoming packets that were dropped.",
		func(i *model.InterfaceStats) uint64 { return i.RxDropped }),
	networkFamily("receive_errors_total", "Errors while receiving.",
		func(i *model.InterfaceStats) uint64 { return i.RxErrors }),
	networkFamily("transmit_bytes_total", "Bytes sent.",
		func(i *model.InterfaceStats) uint64 { return i.TxBytes }),
	networkFamily("transmit_packets_total", "Packets sent.",
		func(i *model.InterfaceStats) uint64 { return i.TxPackets }),
	networkFamily("transmit_packets_dropped_total", "Outgoing packets that were dropped.",
		func(i *model.InterfaceStats) uint64 { return i.TxDropped }),
	networkFamily("transmit_errors_total", "Errors while sending.",
		func(i *model.InterfaceStats) uint64 { return i.TxErrors }),
}

func networkFamily(name, help string, of func(*model.InterfaceStats) uint64) metricFamily {
	return metricFamily{"container_network_" + name, help, false, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.Network == nil {
				return
			}
			for i := range c.Network.Interfaces {
				one := &c.Network.Interfaces[i]
				emit(float64(of(one)), "interface", one.Name)
			}
		}}
}

var diskFamilies = []metricFamily{
	diskFamily("reads_bytes_total", "Bytes read.", volume, "Read", nil),
	diskFamily("writes_bytes_total", "Bytes written.", volume, "Write", nil),
	diskFamily("reads_total", "Completed reads.", count, "Read",
		func(fs *model.FsStats) float64 { return float64(fs.ReadsCompleted) }),
	diskFamily("writes_total", "Completed writes.", count, "Write",
		func(fs *model.FsStats) float64 { return float64(fs.WritesCompleted) }),
	diskFamily("reads_merged_total", "Merged reads.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.ReadsMerged) }),
	diskFamily("writes_merged_total", "Merged writes.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WritesMerged) }),
	diskFamily("sector_reads_total", "Sectors read.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.SectorsRead) }),
	diskFamily("sector_writes_total", "Sectors written.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.SectorsWritten) }),
	diskFamily("read_seconds_total", "Total time of reads, in seconds.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.ReadTime) / nano }),
	diskFamily("write_seconds_total", "Total time of writes, in seconds.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WriteTime) / nano }),
	diskFamily("io_time_seconds_total", "Time with I/O in progress, in seconds.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.IoTime) / nano }),
	diskFamily("io_time_weighted_seconds_total", "Total time of I/O requests in seconds.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WeightedIoTime) / nano }),
	asGauge(diskFamily("io_current", "I/O requests in flight.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.IoInProgress) })),
	asGauge(diskFamily("limit_bytes", "Capacity of the file system in bytes.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Limit) })),
	asGauge(diskFamily("usage_bytes", "Usage of the file system in bytes.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Usage) })),
	asGauge(diskFamily("inodes_total", "Inodes of the file system.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Inodes) })),
	asGauge(diskFamily("inodes_free", "Free inodes of the file system.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.InodesFree) })),
	{"container_blkio_device_usage_total", "I/O in bytes by device and operation.", false,
		false, func(c *cgroupStats, emit emitFunc) {
			for _, disk := range volume(c.DiskIo) {
				for operation, n := range disk.Stats { //ordered: samples of a page have no order
					emit(float64(n), "device", disk.Device, "major", number(disk.Major),
						"minor", number(disk.Minor), "operation", operation)
				}
			}
		}},
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func asGauge(f metricFamily) metricFamily {
	f.gauge = true
	return f
}

// diskMetric is a counter per device.
type diskMetric func(*model.DiskIoStats) []model.PerDiskStats

func volume(io *model.DiskIoStats) []model.PerDiskStats {
	if io == nil {
		return nil
	}
	return io.IoServiceBytes
}

func count(io *model.DiskIoStats) []model.PerDiskStats {
	if io == nil {
		return nil
	}
	return io.IoServiced
}

// diskFamily returns a metric of the I/O of a cgroup per device, and of the file systems that are
// shown with it.
func diskFamily(name, help string, disks diskMetric, operation string,
	of func(*model.FsStats) float64) metricFamily {
	return metricFamily{"container_fs_" + name, help, false, false,
		func(c *cgroupStats, emit emitFunc) {
			if disks != nil {
				for _, disk := range disks(c.DiskIo) {
					emit(float64(disk.Stats[operation]), "device", disk.Device)
				}
			}
			for i := 0; of != nil && i < len(c.Filesystem); i++ {
				emit(of(&c.Filesystem[i]), "device", c.Filesystem[i].Device)
			}
		}}
}

var pressureFamilies = []metricFamily{
	pressureFamily("cpu_waiting", "Time in which some tasks waited for CPU, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.Cpu.PSI.Some.Total }),
	pressureFamily("cpu_stalled", "Time in which all tasks waited for CPU, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.Cpu.PSI.Full.Total }),
	pressureFamily("memory_waiting", "Time in which some tasks waited for memory, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.Memory.PSI.Some.Total }),
	pressureFamily("memory_stalled", "Time in which all tasks waited for memory, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.Memory.PSI.Full.Total }),
	pressureFamily("io_waiting", "Time in which some tasks waited for I/O, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.DiskIo.PSI.Some.Total }),
	pressureFamily("io_stalled", "Time in which all tasks waited for I/O, in seconds (PSI).",
		func(c *cgroupStats) uint64 { return c.DiskIo.PSI.Full.Total }),
}

// pressureFamily returns a counter of pressure stall time. The cgroups for which the kernel keeps
// PSI have all of these counters.
func pressureFamily(name, help string, of func(*cgroupStats) uint64) metricFamily {
	return metricFamily{"container_pressure_" + name + "_seconds_total", help, false, false,
		func(c *cgroupStats, emit emitFunc) {
			if c.hasPressure && c.Cpu != nil && c.Memory != nil && c.DiskIo != nil {
				emit(float64(of(c)) / 1e6) // of microseconds
			}
		}}
}
