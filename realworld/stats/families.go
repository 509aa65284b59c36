package stats

import (
	"strconv"

	"github.com/google/cadvisor/lib/model"
)

// family is one metric of the page for dashboards: its name, and what a cgroup has of it. The
// names, labels and units are cAdvisor's. Its own collectors would make a descriptor and a message
// of every number first, tens of thousands of them; a test holds the page against theirs.
type family struct {
	name, help string
	gauge      bool // else it is a counter
	timeless   bool // it is no sample, but what has been so since the cgroup exists
	of         func(c *shown, put put)
}

// put takes a value, and its labels beside those that say whose it is: names and values.
type put func(value float64, labels ...string)

// families are all metrics of cgroups.
var families = concat(specFamilies, cpuFamilies, memoryFamilies, diskFamilies, networkFamilies,
	processFamilies, pressureFamilies)

func concat(all ...[]family) (joined []family) {
	for _, some := range all {
		joined = append(joined, some...)
	}
	return joined
}

const nano = 1e9 // nanoseconds in a second

var specFamilies = []family{
	{"container_creation_time_seconds", "When the cgroup was made, since the Unix epoch.", true, true,
		func(c *shown, put put) {
			put(float64(c.spec.CreationTime.Unix()))
		}},
	{"container_start_time_seconds", "When the container was started, since the Unix epoch.", true,
		true, func(c *shown, put put) {
			began := c.spec.StartTime
			if began.IsZero() {
				began = c.spec.CreationTime
			}
			put(float64(began.Unix()))
		}},
	cpuSpec("period", "In how many microseconds the quota may be used.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Period, true }),
	cpuSpec("quota", "How many microseconds of processors each period has.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Quota, c.Quota != 0 }),
	cpuSpec("shares", "The share of the processors when they are short.",
		func(c *model.CpuSpec) (uint64, bool) { return c.Limit, true }),
	memorySpec("limit", "How much memory may be used; zero is as much as there is.",
		func(m *model.MemorySpec) uint64 { return m.Limit }),
	memorySpec("swap_limit", "How much swap may be used; zero is as much as there is.",
		func(m *model.MemorySpec) uint64 { return m.SwapLimit }),
	memorySpec("reservation_limit", "How much memory is not reclaimed.",
		func(m *model.MemorySpec) uint64 { return m.Reservation }),
}

func cpuSpec(name, help string, of func(*model.CpuSpec) (uint64, bool)) family {
	return family{"container_spec_cpu_" + name, help, true, true,
		func(c *shown, put put) {
			if n, has := of(&c.spec.Cpu); has && c.spec.HasCpu {
				put(float64(n))
			}
		}}
}

func memorySpec(name, help string, of func(*model.MemorySpec) uint64) family {
	return family{"container_spec_memory_" + name + "_bytes", help, true, true,
		func(c *shown, put put) {
			n := of(&c.spec.Memory)
			if n > unlimited {
				n = 0
			}
			if c.spec.HasMemory {
				put(float64(n))
			}
		}}
}

var cpuFamilies = []family{
	{"container_cpu_usage_seconds_total", "How long processors have worked for it in all.", false,
		false, func(c *shown, put put) {
			if c.Cpu != nil && c.Cpu.Usage.Total > 0 {
				put(float64(c.Cpu.Usage.Total)/nano, "cpu", "total")
			}
		}},
	cpuTime("user_seconds_total", "How long processors have worked for it in its own code.", false,
		func(c *model.CpuStats) float64 { return float64(c.Usage.User) / nano }),
	cpuTime("system_seconds_total", "How long processors have worked for it in the kernel.", false,
		func(c *model.CpuStats) float64 { return float64(c.Usage.System) / nano }),
	cpuTime("cfs_periods_total", "Periods of its quota that have passed.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.Periods) }),
	cpuTime("cfs_throttled_periods_total", "Periods in which it used up its quota.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.ThrottledPeriods) }),
	cpuTime("cfs_throttled_seconds_total", "How long it waited for its next period.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.ThrottledTime) / nano }),
	cpuTime("cfs_burst_periods_total", "Periods in which it used more than its quota.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.BurstsPeriods) }),
	cpuTime("cfs_burst_seconds_total", "How long it used more than its quota.", true,
		func(c *model.CpuStats) float64 { return float64(c.CFS.BurstTime) / nano }),
}

// cpuTime is a counter; that of a quota is only of those that have one.
func cpuTime(name, help string, quota bool, of func(*model.CpuStats) float64) family {
	return family{"container_cpu_" + name, help, false, false,
		func(c *shown, put put) {
			if c.Cpu != nil && (!quota || c.spec.Cpu.Quota != 0) {
				put(of(c.Cpu))
			}
		}}
}

var memoryFamilies = []family{
	memoryOfKind("usage_bytes", "Memory that is used, what could be freed at once included.", true,
		func(m *model.MemoryStats) uint64 { return m.Usage }),
	memoryOfKind("max_usage_bytes", "The most memory that was ever used.", true,
		func(m *model.MemoryStats) uint64 { return m.MaxUsage }),
	memoryOfKind("working_set_bytes", "Memory that is used but for old pages of files.", true,
		func(m *model.MemoryStats) uint64 { return m.WorkingSet }),
	memoryOfKind("cache", "Bytes of files that are in memory.", true,
		func(m *model.MemoryStats) uint64 { return m.Cache }),
	memoryOfKind("rss", "Bytes that are of no file.", true,
		func(m *model.MemoryStats) uint64 { return m.RSS }),
	memoryOfKind("kernel_usage", "Bytes that the kernel needs for it.", true,
		func(m *model.MemoryStats) uint64 { return m.KernelUsage }),
	memoryOfKind("mapped_file", "Bytes of files that are mapped.", true,
		func(m *model.MemoryStats) uint64 { return m.MappedFile }),
	memoryOfKind("swap", "Bytes that are swapped out.", true,
		func(m *model.MemoryStats) uint64 { return m.Swap }),
	memoryOfKind("failcnt", "How often the limit was hit.", false,
		func(m *model.MemoryStats) uint64 { return m.Failcnt }),
	memoryOfKind("total_active_file_bytes", "Pages of files that were used of late.", true,
		func(m *model.MemoryStats) uint64 { return m.TotalActiveFile }),
	memoryOfKind("total_inactive_file_bytes", "Old pages of files.", true,
		func(m *model.MemoryStats) uint64 { return m.TotalInactiveFile }),
	memoryOfKind("file_dirty_bytes", "Pages of files that are to be written.", true,
		func(m *model.MemoryStats) uint64 { return m.FileDirty }),
	memoryOfKind("file_writeback_bytes", "Pages of files that are being written.", true,
		func(m *model.MemoryStats) uint64 { return m.FileWriteback }),
	memoryOfKind("pgscan_total", "Pages that were looked at to be reclaimed.", false,
		func(m *model.MemoryStats) uint64 { return m.Pgscan }),
	memoryOfKind("pgsteal_total", "Pages that were reclaimed.", false,
		func(m *model.MemoryStats) uint64 { return m.Pgsteal }),
	memoryOfKind("workingset_refault_file_total", "Pages of files that were reclaimed too soon.",
		false, func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultFile }),
	memoryOfKind("workingset_refault_anon_total", "Pages of no file that were reclaimed too soon.",
		false, func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultAnon }),
	memoryOfKind("events_high_total", "How often it was slowed down at memory.high.", false,
		func(m *model.MemoryStats) uint64 { return m.Events.High }),
	memoryOfKind("events_max_total", "How often it was about to exceed memory.max.", false,
		func(m *model.MemoryStats) uint64 { return m.Events.Max }),
	{"container_memory_failures_total", "Page faults, by whether they needed a disk.", false, false,
		func(c *shown, put put) {
			if c.Memory == nil {
				return
			}
			const failure, scope, minor, major = "failure_type", "scope", "pgfault", "pgmajfault"
			own, all := c.Memory.ContainerData, c.Memory.HierarchicalData
			put(float64(own.Pgfault), failure, minor, scope, "container")
			put(float64(own.Pgmajfault), failure, major, scope, "container")
			put(float64(all.Pgfault), failure, minor, scope, "hierarchy")
			put(float64(all.Pgmajfault), failure, major, scope, "hierarchy")
		}},
	{"container_oom_events_total", "Processes that were killed for want of memory.", false, false,
		func(c *shown, put put) {
			put(float64(c.OOMEvents))
		}},
}

func memoryOfKind(name, help string, gauge bool, of func(*model.MemoryStats) uint64) family {
	return family{"container_memory_" + name, help, gauge, false,
		func(c *shown, put put) {
			if c.Memory != nil {
				put(float64(of(c.Memory)))
			}
		}}
}

var processFamilies = []family{
	processes("processes", "Processes in it.",
		func(p *model.ProcessStats) uint64 { return p.ProcessCount }),
	processes("file_descriptors", "Files that its processes have open.",
		func(p *model.ProcessStats) uint64 { return p.FdCount }),
	processes("sockets", "Sockets that its processes have open.",
		func(p *model.ProcessStats) uint64 { return p.SocketCount }),
	processes("threads", "Threads in it and below.",
		func(p *model.ProcessStats) uint64 { return p.ThreadsCurrent }),
	processes("threads_max", "How many threads there may be; zero is as many as it likes.",
		func(p *model.ProcessStats) uint64 { return p.ThreadsMax }),
}

func processes(name, help string, of func(*model.ProcessStats) uint64) family {
	return family{"container_" + name, help, true, false,
		func(c *shown, put put) {
			if c.Processes != nil {
				put(float64(of(c.Processes)))
			}
		}}
}

var networkFamilies = []family{
	carried("receive_bytes_total", "Bytes received.",
		func(i *model.InterfaceStats) uint64 { return i.RxBytes }),
	carried("receive_packets_total", "Packets received.",
		func(i *model.InterfaceStats) uint64 { return i.RxPackets }),
	carried("receive_packets_dropped_total", "Packets dropped that came in.",
		func(i *model.InterfaceStats) uint64 { return i.RxDropped }),
	carried("receive_errors_total", "Errors while receiving.",
		func(i *model.InterfaceStats) uint64 { return i.RxErrors }),
	carried("transmit_bytes_total", "Bytes sent.",
		func(i *model.InterfaceStats) uint64 { return i.TxBytes }),
	carried("transmit_packets_total", "Packets sent.",
		func(i *model.InterfaceStats) uint64 { return i.TxPackets }),
	carried("transmit_packets_dropped_total", "Packets dropped that should have gone out.",
		func(i *model.InterfaceStats) uint64 { return i.TxDropped }),
	carried("transmit_errors_total", "Errors while sending.",
		func(i *model.InterfaceStats) uint64 { return i.TxErrors }),
}

func carried(name, help string, of func(*model.InterfaceStats) uint64) family {
	return family{"container_network_" + name, help, false, false,
		func(c *shown, put put) {
			if c.Network == nil {
				return
			}
			for i := range c.Network.Interfaces {
				one := &c.Network.Interfaces[i]
				put(float64(of(one)), "interface", one.Name)
			}
		}}
}

var diskFamilies = []family{
	onDisk("reads_bytes_total", "Bytes read.", volume, "Read", nil),
	onDisk("writes_bytes_total", "Bytes written.", volume, "Write", nil),
	onDisk("reads_total", "Reads that were completed.", count, "Read",
		func(fs *model.FsStats) float64 { return float64(fs.ReadsCompleted) }),
	onDisk("writes_total", "Writes that were completed.", count, "Write",
		func(fs *model.FsStats) float64 { return float64(fs.WritesCompleted) }),
	onDisk("reads_merged_total", "Reads that were made part of others.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.ReadsMerged) }),
	onDisk("writes_merged_total", "Writes that were made part of others.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WritesMerged) }),
	onDisk("sector_reads_total", "Sectors read.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.SectorsRead) }),
	onDisk("sector_writes_total", "Sectors written.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.SectorsWritten) }),
	onDisk("read_seconds_total", "How long reads have taken together.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.ReadTime) / nano }),
	onDisk("write_seconds_total", "How long writes have taken together.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WriteTime) / nano }),
	onDisk("io_time_seconds_total", "How long the disk was busy.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.IoTime) / nano }),
	onDisk("io_time_weighted_seconds_total", "How long requests have waited together.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.WeightedIoTime) / nano }),
	asGauge(onDisk("io_current", "Requests under way.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.IoInProgress) })),
	asGauge(onDisk("limit_bytes", "The size of the file system.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Limit) })),
	asGauge(onDisk("usage_bytes", "What is used of the file system.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Usage) })),
	asGauge(onDisk("inodes_total", "Inodes of the file system.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.Inodes) })),
	asGauge(onDisk("inodes_free", "Inodes that are free.", nil, "",
		func(fs *model.FsStats) float64 { return float64(fs.InodesFree) })),
	{"container_blkio_device_usage_total", "Bytes by device and what was done with them.", false,
		false, func(c *shown, put put) {
			for _, disk := range volume(c.DiskIo) {
				for operation, n := range disk.Stats { //ordered: samples of a page have no order
					put(float64(n), "device", disk.Device, "major", number(disk.Major),
						"minor", number(disk.Minor), "operation", operation)
				}
			}
		}},
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func asGauge(f family) family {
	f.gauge = true
	return f
}

// perDisk are the numbers of one kind.
type perDisk func(*model.DiskIoStats) []model.PerDiskStats

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

// onDisk is what the cgroup has done to devices, and what the file systems have that it shows.
func onDisk(name, help string, disks perDisk, operation string,
	of func(*model.FsStats) float64) family {
	return family{"container_fs_" + name, help, false, false,
		func(c *shown, put put) {
			if disks != nil {
				for _, disk := range disks(c.DiskIo) {
					put(float64(disk.Stats[operation]), "device", disk.Device)
				}
			}
			for i := 0; of != nil && i < len(c.Filesystem); i++ {
				put(of(&c.Filesystem[i]), "device", c.Filesystem[i].Device)
			}
		}}
}

var pressureFamilies = []family{
	waitedFor("cpu_waiting", "How long some tasks have waited for processors.",
		func(c *shown) uint64 { return c.Cpu.PSI.Some.Total }),
	waitedFor("cpu_stalled", "How long all tasks have waited for processors.",
		func(c *shown) uint64 { return c.Cpu.PSI.Full.Total }),
	waitedFor("memory_waiting", "How long some tasks have waited for memory.",
		func(c *shown) uint64 { return c.Memory.PSI.Some.Total }),
	waitedFor("memory_stalled", "How long all tasks have waited for memory.",
		func(c *shown) uint64 { return c.Memory.PSI.Full.Total }),
	waitedFor("io_waiting", "How long some tasks have waited for disks.",
		func(c *shown) uint64 { return c.DiskIo.PSI.Some.Total }),
	waitedFor("io_stalled", "How long all tasks have waited for disks.",
		func(c *shown) uint64 { return c.DiskIo.PSI.Full.Total }),
}

// waitedFor is a counter of those cgroups where the kernel counts it, which have all of them.
func waitedFor(name, help string, of func(*shown) uint64) family {
	return family{"container_pressure_" + name + "_seconds_total", help, false, false,
		func(c *shown, put put) {
			if c.psi && c.Cpu != nil && c.Memory != nil && c.DiskIo != nil {
				put(float64(of(c)) / 1e6) // of microseconds
			}
		}}
}
