package cgroup

import (
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/world"
)

// Constants of the kernel's CPU scheduler.
const (
	SharesMin   = 2
	SharesMax   = 1 << 18
	QuotaPeriod = 100_000 // of a quota, in microseconds

	sharesPerCPU = 1024
	quotaMin     = 1000 // in microseconds
)

// MilliCPUToShares returns the CPU shares for a request in milli-CPUs.
func MilliCPUToShares(milli int64) int64 {
	return min(SharesMax, max(SharesMin, milli*sharesPerCPU/1000))
}

// MilliCPUToQuota returns the CPU quota for a limit in milli-CPUs: microseconds in each period.
// Zero is unlimited.
func MilliCPUToQuota(milli int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(quotaMin, milli*QuotaPeriod/1000)
}

// Limits returns the limits of a pod's cgroup. The CPU shares are those of all its requests. CPU or
// memory is limited if each container has a limit, or the pod as a whole has one.
func (l *Layout) Limits(pod *v1.Pod, class v1.PodQOSClass, path string) world.SetCgroup {
	set := world.SetCgroup{
		Path: path, Systemd: l.Systemd, CPUShares: SharesMin, PidsMax: l.PidsMax,
	}
	if class == v1.PodQOSBestEffort {
		return set
	}
	sum := TotalsOf(pod)
	set.CPUShares = uint64(MilliCPUToShares(sum.CPURequest))
	if sum.CPULimited {
		if set.CPUQuota = MilliCPUToQuota(sum.CPULimit); set.CPUQuota > 0 {
			set.CPUPeriod = QuotaPeriod
		}
	}
	if sum.MemoryLimited {
		set.MemoryBytes = sum.MemoryLimit
	}
	return set
}

// ResourceTotals are the sums over a pod, including its overhead. CPU is in milli-CPUs, memory in
// bytes.
type ResourceTotals struct {
	CPURequest, CPULimit, MemoryLimit int64
	CPULimited, MemoryLimited         bool // the pod has a limit
}

// TotalsOf returns the totals of a pod. An init container counts as far as it needs more than the
// containers that run later (KEP-753). Requests and limits of the pod as a whole replace the sums
// over its containers (KEP-2837).
func TotalsOf(pod *v1.Pod) ResourceTotals {
	sum := ResourceTotals{CPULimited: true, MemoryLimited: true}
	requests := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	limits := podresources.PodLimits(pod, podresources.PodResourcesOptions{
		ContainerFn: func(limits v1.ResourceList, _ podresources.ContainerType) {
			sum.CPULimited = sum.CPULimited && !limits.Cpu().IsZero()
			sum.MemoryLimited = sum.MemoryLimited && !limits.Memory().IsZero()
		},
	})
	if podresources.IsPodLevelResourcesSet(pod) {
		own := pod.Spec.Resources.Limits
		sum.CPULimited = sum.CPULimited || !own.Cpu().IsZero()
		sum.MemoryLimited = sum.MemoryLimited || !own.Memory().IsZero()
	}
	sum.CPURequest = requests.Cpu().MilliValue()
	sum.CPULimit, sum.MemoryLimit = limits.Cpu().MilliValue(), limits.Memory().Value()
	return sum
}
