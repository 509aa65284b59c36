package qos

import (
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/admission"
)

// Share is what one pod adds to the cgroups above its own.
type Share struct {
	Class       v1.PodQOSClass `json:"class"`
	CPU         int64          `json:"cpu,omitempty"`         // requested, in milli-CPUs
	MemoryBytes int64          `json:"memoryBytes,omitempty"` // requested
}

// Sums are those of the shares of two classes. BestEffort pods request nothing.
type Sums struct {
	Guaranteed Share `json:"guaranteed"`
	Burstable  Share `json:"burstable"`
}

// The greatest share of a pod: more has no effect on a cgroup, and sums stay far below an overflow.
const (
	cpuMax    = 1 << 30
	memoryMax = 1 << 50
)

// ShareOf returns the share of a pod of a class.
func ShareOf(pod *v1.Pod, class v1.PodQOSClass) Share {
	if class == v1.PodQOSBestEffort {
		return Share{Class: class}
	}
	requests := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	return Share{Class: class,
		CPU:         min(admission.AmountOf(v1.ResourceCPU, *requests.Cpu()), cpuMax),
		MemoryBytes: min(admission.AmountOf(v1.ResourceMemory, *requests.Memory()), memoryMax)}
}

// Max returns a share with the greater amounts of both, of the class of the first.
func (s Share) Max(other Share) Share {
	s.CPU, s.MemoryBytes = max(s.CPU, other.CPU), max(s.MemoryBytes, other.MemoryBytes)
	return s
}

// Count sets the share of a pod, and reports whether that changes the sums.
func (c *Cgroups) Count(uid string, share Share) bool {
	previous, counted := c.Shares[uid]
	if counted && previous == share {
		return false
	}
	c.Drop(uid)
	if c.Shares == nil {
		c.Shares = map[string]Share{}
	}
	c.Shares[uid] = share
	c.Sums.add(share, 1)
	return true
}

// Drop removes the share of a pod, and reports whether it had one.
func (c *Cgroups) Drop(uid string) bool {
	share, counted := c.Shares[uid]
	if counted {
		delete(c.Shares, uid)
		c.Sums.add(share, -1)
	}
	return counted
}

func (s *Sums) add(share Share, sign int64) {
	sum := &s.Burstable
	switch share.Class {
	case v1.PodQOSGuaranteed:
		sum = &s.Guaranteed
	case v1.PodQOSBestEffort:
		return
	}
	sum.CPU += sign * share.CPU
	sum.MemoryBytes += sign * share.MemoryBytes
	if sum.CPU < 0 || sum.MemoryBytes < 0 {
		panic("qos: the sum of shares is below zero")
	}
}
