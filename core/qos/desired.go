package qos

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/world"
)

// NodeLimits are the limits of all pods together. Zero: unlimited.
type NodeLimits struct {
	CPU         int64                 `json:"cpu"` // in milli-CPUs
	MemoryBytes int64                 `json:"memoryBytes,omitempty"`
	PidsMax     int64                 `json:"pidsMax,omitempty"`
	HugePages   []world.HugePageLimit `json:"hugePages,omitempty"` // of every size of the machine
	// UnreservedMemory is what of the machine's memory is not reserved, in bytes.
	UnreservedMemory int64 `json:"unreservedMemory,omitempty"`
}

// desired returns the desired settings of the cgroups, parents first.
func (c *Cgroups) desired(l *cgroup.Layout) []world.SetCgroup {
	all := world.SetCgroup{
		Path: l.QOSParent(v1.PodQOSGuaranteed), Systemd: l.Systemd,
		CPUShares:   uint64(cgroup.MilliCPUToShares(c.Limits.CPU)),
		MemoryBytes: c.Limits.MemoryBytes, PidsMax: c.Limits.PidsMax,
		HugePages: c.Limits.HugePages, AboveUsage: true,
	}
	burstable := world.SetCgroup{
		Path: l.QOSParent(v1.PodQOSBurstable), Systemd: l.Systemd,
		CPUShares: uint64(cgroup.MilliCPUToShares(c.Sums.Burstable.CPU)),
		HugePages: c.unlimitedHugePages(), AboveUsage: true,
	}
	bestEffort := world.SetCgroup{
		Path: l.QOSParent(v1.PodQOSBestEffort), Systemd: l.Systemd, CPUShares: cgroup.SharesMin,
		HugePages: burstable.HugePages, AboveUsage: true,
	}
	c.reserveMemory(&burstable, &bestEffort)
	if l.Policy.ProtectsMemory() && l.Policy.ReserveMemory {
		// What children have protected is protected only as far as it is of their parent.
		all.MemoryMin = c.Sums.Guaranteed.MemoryBytes + c.Sums.Burstable.MemoryBytes
		burstable.MemoryLow = c.Sums.Burstable.MemoryBytes
	}
	desired := []world.SetCgroup{all, burstable, bestEffort}
	for i := range c.Reserved {
		desired = withReserved(desired, c.Reserved[i].desired(l))
	}
	return desired
}

// reserveMemory limits the memory of the tiers, so that the memory which the pods of higher classes
// request is left for them (qosReserved). Upstream: setMemoryReserve in
// pkg/kubelet/cm/qos_container_manager_linux.go.
func (c *Cgroups) reserveMemory(burstable, bestEffort *world.SetCgroup) {
	if c.MemoryPercent == 0 || c.Limits.UnreservedMemory == 0 {
		return
	}
	left := c.Limits.UnreservedMemory - percentOf(c.Sums.Guaranteed.MemoryBytes, c.MemoryPercent)
	burstable.MemoryBytes = max(left, memoryLimitMin)
	left -= percentOf(c.Sums.Burstable.MemoryBytes, c.MemoryPercent)
	bestEffort.MemoryBytes = max(left, memoryLimitMin)
}

// percentOf returns a percentage of an amount, rounded down, without an overflow.
func percentOf(amount, percent int64) int64 {
	return amount/100*percent + amount%100*percent/100
}

// memoryLimitMin is the limit of a tier of which all memory is reserved: zero would be no limit.
const memoryLimitMin = 4096

// unlimitedHugePages returns that huge pages of every size are unlimited: in the tiers they are
// limited by kubepods and by the pods.
func (c *Cgroups) unlimitedHugePages() []world.HugePageLimit {
	var limits []world.HugePageLimit
	for _, pages := range c.Limits.HugePages {
		limits = append(limits, world.HugePageLimit{SizeBytes: pages.SizeBytes, MaxBytes: -1})
	}
	return limits
}
