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

// resourceUsage is the use of resources by a node, pod or container. A nil field is unknown.
type resourceUsage struct {
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	swap   *statsapi.SwapStats
	io     *statsapi.IOStats
}

// fillFrom sets the unknown fields of the usage from another source.
func (u *resourceUsage) fillFrom(other resourceUsage) {
	u.cpu = cmp.Or(u.cpu, other.cpu)
	u.memory = cmp.Or(u.memory, other.memory)
	u.swap = cmp.Or(u.swap, other.swap)
	u.io = cmp.Or(u.io, other.io)
}

// unlimitedFrom is the limit in bytes from which on a cgroup counts as unlimited: the kernel rounds
// its largest value to pages.
const unlimitedFrom = 1 << 62

// cgroupUsage returns the usage of a cgroup. key identifies the consumer whose CPU rate is
// computed; an empty key computes none.
func (l *sampler) cgroupUsage(key, path string) resourceUsage {
	if l.cgroups == nil || path == "" {
		return resourceUsage{}
	}
	s, err := l.cgroups.Usage(path)
	if err != nil {
		return resourceUsage{} // the cgroup was removed meanwhile
	}
	at := metav1.NewTime(l.at)
	var u resourceUsage
	if s.Cpu != nil {
		u.cpu = &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: &s.Cpu.Usage.Total,
			PSI: l.psiStats(path, &s.Cpu.PSI)}
		if key != "" {
			u.cpu.UsageNanoCores = l.source.rates.rate(key, l.at, s.Cpu.Usage.Total)
		}
	}
	if s.Memory != nil {
		limit, swapLimit := l.cgroups.Limits(path)
		u.memory = memoryOf(s.Memory, limit, at)
		u.memory.PSI = l.psiStats(path, &s.Memory.PSI)
		u.swap = &statsapi.SwapStats{Time: at, SwapUsageBytes: &s.Memory.Swap}
		if swapLimit < unlimitedFrom {
			u.swap.SwapAvailableBytes = nonNegative(swapLimit, s.Memory.Swap)
		}
	}
	if s.DiskIo != nil {
		if psi := l.psiStats(path, &s.DiskIo.PSI); psi != nil {
			u.io = &statsapi.IOStats{Time: at, PSI: psi}
		}
	}
	return u
}

func memoryOf(m *model.MemoryStats, limit uint64, at metav1.Time) *statsapi.MemoryStats {
	memory := &statsapi.MemoryStats{Time: at, UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet,
		RSSBytes: &m.RSS, PageFaults: &m.HierarchicalData.Pgfault,
		MajorPageFaults: &m.HierarchicalData.Pgmajfault}
	if limit < unlimitedFrom {
		memory.AvailableBytes = nonNegative(limit, m.WorkingSet)
	}
	return memory
}

// psiStats returns the pressure stall information of a cgroup; nil where the kernel keeps none.
// With cgroup v1 it exists for the machine only.
func (l *sampler) psiStats(path string, psi *model.PSIStats) *statsapi.PSIStats {
	if !l.hasPressure || !l.cgroups.IsUnified() && path != "/" {
		return nil
	}
	return &statsapi.PSIStats{Full: statsapi.PSIData(psi.Full), Some: statsapi.PSIData(psi.Some)}
}

// runtimeUsage returns the usage that the runtime reports for a sandbox or container. key
// identifies the consumer whose CPU rate is computed.
func (l *sampler) runtimeUsage(key string, cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage,
	swap *runtimeapi.SwapUsage, io *runtimeapi.IoUsage) resourceUsage {
	var u resourceUsage
	if total := cpu.GetUsageCoreNanoSeconds(); total != nil {
		at := l.sampleTime(cpu.Timestamp)
		rate := l.source.rates.rate(key, at.Time, total.Value)
		if reported := cpu.GetUsageNanoCores().GetValue(); reported > 0 {
			rate = &reported // containerd reports zero while it has a single sample
		}
		u.cpu = &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: &total.Value,
			UsageNanoCores: rate, PSI: pressureOf(cpu.Psi)}
	}
	if memory.GetWorkingSetBytes() != nil {
		u.memory = &statsapi.MemoryStats{Time: l.sampleTime(memory.Timestamp),
			WorkingSetBytes: value(memory.WorkingSetBytes), UsageBytes: value(memory.UsageBytes),
			RSSBytes: value(memory.RssBytes), PageFaults: value(memory.PageFaults),
			MajorPageFaults: value(memory.MajorPageFaults), PSI: pressureOf(memory.Psi)}
		if left := memory.GetAvailableBytes().GetValue(); left > 0 {
			u.memory.AvailableBytes = &left // containerd reports zero without a limit
		}
	}
	if swap != nil {
		u.swap = &statsapi.SwapStats{Time: l.sampleTime(swap.Timestamp),
			SwapUsageBytes:     value(swap.SwapUsageBytes),
			SwapAvailableBytes: value(swap.SwapAvailableBytes)}
	}
	if psi := pressureOf(io.GetPsi()); psi != nil {
		u.io = &statsapi.IOStats{Time: l.sampleTime(io.Timestamp), PSI: psi}
	}
	return u
}

// sampleTime converts a timestamp of the runtime in nanoseconds. A missing one, or one in the
// future, is replaced by the time of the sample.
func (l *sampler) sampleTime(ns int64) metav1.Time {
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

// finite replaces a number that JSON cannot express by zero.
func finite(n float64) float64 {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}
