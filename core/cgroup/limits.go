package cgroup

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/world"
)

// Constants of the kernel's CPU scheduler.
const (
	SharesMin = 2
	SharesMax = 1 << 18

	sharesPerCPU       = 1024
	quotaPeriodDefault = 100_000 // in microseconds
	quotaMin           = 1000    // in microseconds
)

// MilliCPUToShares returns the CPU shares for a request in milli-CPUs.
func MilliCPUToShares(milli int64) int64 {
	return min(SharesMax, max(SharesMin, milli*sharesPerCPU/1000))
}

// SharesToMilliCPU returns the milli-CPUs that CPU shares stand for, rounded up.
func SharesToMilliCPU(shares uint64) int64 {
	return int64(min(shares, SharesMax)*1000+sharesPerCPU-1) / sharesPerCPU
}

// Limits returns the limits of a pod's cgroup. The CPU shares are those of all its requests. CPU or
// memory is limited if each container has a limit, or the pod as a whole has one.
func (l *Layout) Limits(pod *v1.Pod, class v1.PodQOSClass, path string) world.SetCgroup {
	set := world.SetCgroup{
		Path: path, Systemd: l.Systemd, CPUShares: SharesMin, PidsMax: l.PidsMax,
		HugePages: l.HugePageLimits(podresources.PodRequests(pod, podresources.PodResourcesOptions{})),
	}
	if class == v1.PodQOSBestEffort {
		return set
	}
	sum := TotalsOf(pod)
	set.CPUShares = uint64(MilliCPUToShares(sum.CPURequest))
	if sum.CPULimited {
		quota, period := l.Policy.Quota(sum.CPULimit)
		set.CPUQuota, set.CPUPeriod = quota, uint64(period)
	}
	if sum.MemoryLimited {
		set.MemoryBytes = sum.MemoryLimit
	}
	switch {
	case !l.Policy.ProtectsMemory() || !l.Policy.ReserveMemory:
	case class == v1.PodQOSGuaranteed:
		set.MemoryMin = sum.MemoryRequest
	default:
		set.MemoryLow = sum.MemoryRequest
	}
	return set
}

// ContainerLimits returns the limits of a container's cgroup, as bounds of the pod's.
func (l *Layout) ContainerLimits(milliCPURequest, milliCPU, memory int64) world.SetCgroup {
	quota, period := l.Policy.Quota(milliCPU)
	return world.SetCgroup{CPUShares: uint64(MilliCPUToShares(milliCPURequest)),
		CPUQuota: max(0, quota), CPUPeriod: uint64(period), MemoryBytes: memory}
}

// HugePageLimits returns the limits for the huge pages of every size: those in a list of resources,
// and zero for the other sizes.
func (l *Layout) HugePageLimits(list v1.ResourceList) []world.HugePageLimit {
	var limits []world.HugePageLimit
	for _, size := range l.PageSizes {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		amount := list[v1.ResourceName(name)]
		limits = append(limits, world.HugePageLimit{SizeBytes: size, MaxBytes: max(0, amount.Value())})
	}
	return limits
}

// ResourceTotals are the sums over a pod, including its overhead. CPU is in milli-CPUs, memory in
// bytes.
type ResourceTotals struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit int64
	CPULimited, MemoryLimited                        bool // the pod has a limit
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
	sum.CPURequest, sum.MemoryRequest = requests.Cpu().MilliValue(), requests.Memory().Value()
	sum.CPULimit, sum.MemoryLimit = limits.Cpu().MilliValue(), limits.Memory().Value()
	return sum
}
