package cgroup

import (
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/world"
)

// Policy is how the requests and limits of pods become those of their cgroups and containers. The
// first part follows from the configuration, the second from the machine.
type Policy struct {
	NoQuota       bool          `json:"noQuota,omitempty"`       // CPU limits are not enforced
	QuotaPeriod   time.Duration `json:"quotaPeriod,omitempty"`   // of CPU quotas; zero: 100 ms
	KillProcess   bool          `json:"killProcess,omitempty"`   // singleProcessOOMKill
	LimitedSwap   bool          `json:"limitedSwap,omitempty"`   // else containers have no swap
	MemoryQoS     bool          `json:"memoryQoS,omitempty"`     // the feature gate; KEP-2570
	ReserveMemory bool          `json:"reserveMemory,omitempty"` // TieredReservation
	// ThrottlingFactor is memoryThrottlingFactor.
	ThrottlingFactor float64 `json:"throttlingFactor,omitempty"`

	Unified    bool  `json:"unified,omitempty"`    // cgroup v2
	SwapLimits bool  `json:"swapLimits,omitempty"` // cgroups can limit swap
	SwapBytes  int64 `json:"swapBytes,omitempty"`
	PageBytes  int64 `json:"pageBytes,omitempty"`
}

// PolicyFromConfig returns the policy of a configuration.
func PolicyFromConfig(c *kubeletconfig.KubeletConfiguration) Policy {
	p := Policy{
		NoQuota:     c.CPUCFSQuota != nil && !*c.CPUCFSQuota,
		KillProcess: c.SingleProcessOOMKill != nil && *c.SingleProcessOOMKill,
		LimitedSwap: c.MemorySwap.SwapBehavior == "LimitedSwap",
		MemoryQoS:   config.MemoryQoSEnabled(c),
		ReserveMemory: c.MemoryReservationPolicy ==
			kubeletconfig.TieredReservationMemoryReservationPolicy,
	}
	if c.CPUCFSQuotaPeriod != nil {
		p.QuotaPeriod = c.CPUCFSQuotaPeriod.Duration
	}
	if c.MemoryThrottlingFactor != nil {
		p.ThrottlingFactor = *c.MemoryThrottlingFactor
	}
	return p
}

// SetMachine sets what follows from the machine.
func (p *Policy) SetMachine(m *world.Machine) {
	p.Unified, p.SwapLimits, p.SwapBytes, p.PageBytes = !m.CgroupV1, m.SwapLimits, m.SwapBytes,
		m.PageBytes
}

// ProtectsMemory reports whether memory is protected from reclaim, or throttled: cgroup v1 cannot.
func (p *Policy) ProtectsMemory() bool { return p.MemoryQoS && p.Unified }

// quotaPeriod returns the period of quotas, in microseconds.
func (p *Policy) quotaPeriod() int64 {
	if p.QuotaPeriod == 0 {
		return quotaPeriodDefault
	}
	return p.QuotaPeriod.Microseconds()
}

// Quota returns the CPU quota for a limit in milli-CPUs, and its period, in microseconds. A quota
// of zero is unlimited, and a period of zero says that quotas are not used.
func (p *Policy) Quota(milli int64) (quota, period int64) {
	switch {
	case p.NoQuota:
		return 0, 0
	case milli <= 0:
		return 0, p.quotaPeriod()
	}
	return max(quotaMin, milli*p.quotaPeriod()/1000), p.quotaPeriod()
}
