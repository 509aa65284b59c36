package stats

import (
	"cmp"
	"math"
	"time"

	"github.com/google/cadvisor/lib/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// used is what something uses; nil is not known.
type used struct {
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	swap   *statsapi.SwapStats
	io     *statsapi.IOStats
}

// or takes what is not known from elsewhere.
func (u *used) or(other used) {
	u.cpu = cmp.Or(u.cpu, other.cpu)
	u.memory = cmp.Or(u.memory, other.memory)
	u.swap = cmp.Or(u.swap, other.swap)
	u.io = cmp.Or(u.io, other.io)
}

// unlimited is from where on a limit is none: the kernel's own largest is rounded to pages.
const unlimited = 1 << 62

// read is what a cgroup uses. key is whose it is, for the rate; empty for none.
func (l *look) read(key, path string) used {
	if l.cgroups == nil || path == "" {
		return used{}
	}
	s, err := l.cgroups.Usage(path)
	if err != nil {
		return used{} // it has just gone
	}
	at := metav1.NewTime(l.at)
	var u used
	if s.Cpu != nil {
		u.cpu = &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: &s.Cpu.Usage.Total,
			PSI: l.pressure(path, &s.Cpu.PSI)}
		if key != "" {
			u.cpu.UsageNanoCores = l.source.rates.of(key, l.at, s.Cpu.Usage.Total)
		}
	}
	if s.Memory != nil {
		limit, swapLimit := l.cgroups.Limits(path)
		u.memory = memoryOf(s.Memory, limit, at)
		u.memory.PSI = l.pressure(path, &s.Memory.PSI)
		u.swap = &statsapi.SwapStats{Time: at, SwapUsageBytes: &s.Memory.Swap}
		if swapLimit < unlimited {
			u.swap.SwapAvailableBytes = positive(swapLimit, s.Memory.Swap)
		}
	}
	if s.DiskIo != nil {
		if psi := l.pressure(path, &s.DiskIo.PSI); psi != nil {
			u.io = &statsapi.IOStats{Time: at, PSI: psi}
		}
	}
	return u
}

func memoryOf(m *model.MemoryStats, limit uint64, at metav1.Time) *statsapi.MemoryStats {
	memory := &statsapi.MemoryStats{Time: at, UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet,
		RSSBytes: &m.RSS, PageFaults: &m.HierarchicalData.Pgfault,
		MajorPageFaults: &m.HierarchicalData.Pgmajfault}
	if limit < unlimited {
		memory.AvailableBytes = positive(limit, m.WorkingSet)
	}
	return memory
}

// pressure is how long tasks have waited, where the kernel counts it. With version 1 of cgroups it
// does so for the machine only.
func (l *look) pressure(path string, psi *model.PSIStats) *statsapi.PSIStats {
	if !l.psi || !l.cgroups.Unified() && path != "/" {
		return nil
	}
	return &statsapi.PSIStats{Full: statsapi.PSIData(psi.Full), Some: statsapi.PSIData(psi.Some)}
}

// told is what the runtime tells of something. key is whose it is, for the rate.
func (l *look) told(key string, cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage,
	swap *runtimeapi.SwapUsage, io *runtimeapi.IoUsage) used {
	var u used
	if total := cpu.GetUsageCoreNanoSeconds(); total != nil {
		at := l.time(cpu.Timestamp)
		rate := l.source.rates.of(key, at.Time, total.Value)
		if told := cpu.GetUsageNanoCores().GetValue(); told > 0 {
			rate = &told // zero is what containerd says as long as it has one sample
		}
		u.cpu = &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: &total.Value,
			UsageNanoCores: rate, PSI: pressureOf(cpu.Psi)}
	}
	if memory.GetWorkingSetBytes() != nil {
		u.memory = &statsapi.MemoryStats{Time: l.time(memory.Timestamp),
			WorkingSetBytes: value(memory.WorkingSetBytes), UsageBytes: value(memory.UsageBytes),
			RSSBytes: value(memory.RssBytes), PageFaults: value(memory.PageFaults),
			MajorPageFaults: value(memory.MajorPageFaults), PSI: pressureOf(memory.Psi)}
		if left := memory.GetAvailableBytes().GetValue(); left > 0 {
			u.memory.AvailableBytes = &left // zero is what containerd says without a limit
		}
	}
	if swap != nil {
		u.swap = &statsapi.SwapStats{Time: l.time(swap.Timestamp),
			SwapUsageBytes:     value(swap.SwapUsageBytes),
			SwapAvailableBytes: value(swap.SwapAvailableBytes)}
	}
	if psi := pressureOf(io.GetPsi()); psi != nil {
		u.io = &statsapi.IOStats{Time: l.time(io.Timestamp), PSI: psi}
	}
	return u
}

// time is a time that the runtime tells, in nanoseconds. One that is not there, or that has not
// come yet, is that of the sample.
func (l *look) time(ns int64) metav1.Time {
	at := time.Unix(0, ns)
	if ns <= 0 || at.After(l.at) {
		at = l.at
	}
	return metav1.NewTime(at)
}

func value(n *runtimeapi.UInt64Value) *uint64 {
	if n == nil {
		return nil
	}
	return &n.Value
}

func pressureOf(psi *runtimeapi.PsiStats) *statsapi.PSIStats {
	if psi == nil {
		return nil
	}
	return &statsapi.PSIStats{Full: pressureData(psi.Full), Some: pressureData(psi.Some)}
}

func pressureData(d *runtimeapi.PsiData) statsapi.PSIData {
	return statsapi.PSIData{Total: d.GetTotal(), Avg10: finite(d.GetAvg10()),
		Avg60: finite(d.GetAvg60()), Avg300: finite(d.GetAvg300())}
}

// finite is a number that JSON has a word for.
func finite(n float64) float64 {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}
