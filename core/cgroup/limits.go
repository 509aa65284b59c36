package cgroup

import (
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/world"
)

// The numbers of the kernel's scheduler.
const (
	SharesMin = 2
	SharesMax = 1 << 18
	Period    = 100_000 // microseconds, in which a quota may be used

	sharesPerCPU = 1024
	quotaMin     = 1000 // microseconds
)

// Shares is the weight of thousandths of a CPU that are asked for.
func Shares(milli int64) int64 {
	return min(SharesMax, max(SharesMin, milli*sharesPerCPU/1000))
}

// Quota is how long of each Period thousandths of a CPU may run; zero is unlimited.
func Quota(milli int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(quotaMin, milli*Period/1000)
}

// Limits is the cgroup of a pod: as many shares as all of it asks for, and a limit of what every
// one of its containers, or the pod as a whole, has a limit of.
func (l *Layout) Limits(pod *v1.Pod, class v1.PodQOSClass, path string) world.SetCgroup {
	set := world.SetCgroup{
		Path: path, Systemd: l.Systemd, CPUShares: SharesMin, PidsMax: l.PidsMax,
	}
	if class == v1.PodQOSBestEffort {
		return set
	}
	sum := SumOf(pod)
	set.CPUShares = uint64(Shares(sum.CPURequest))
	if sum.CPULimited {
		if set.CPUQuota = Quota(sum.CPULimit); set.CPUQuota > 0 {
			set.CPUPeriod = Period
		}
	}
	if sum.MemoryLimited {
		set.MemoryBytes = sum.MemoryLimit
	}
	return set
}

// Sum is what all of a pod asks for and may use, its overhead included. CPU is in thousandths,
// memory in bytes.
type Sum struct {
	CPURequest, CPULimit, MemoryLimit int64
	CPULimited, MemoryLimited         bool // nothing in it is without a limit
}

// SumOf adds up a pod. A container that only runs at first counts as far as it needs more than
// those that run later (KEP-753); what the pod as a whole asks for goes before the sum of its
// containers (KEP-2837).
func SumOf(pod *v1.Pod) Sum {
	sum := Sum{CPULimited: true, MemoryLimited: true}
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
