package criconfig

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/admission"
)

// Files of the memory controller in cgroup v2.
const (
	fileSwapMax    = "memory.swap.max"
	fileMemoryMin  = "memory.min"
	fileMemoryLow  = "memory.low"
	fileMemoryHigh = "memory.high"
)

// unlimited stands for "max" in such a file.
const unlimited = -1

// limitSwap limits the swap of a container (KEP-2400). In cgroup v1 the limit is that of memory and
// swap together, and without a limit of memory the runtime ignores it. Without swap limits of the
// machine none is sent: the runtime could not set it. Upstream: configureContainerSwapResources in
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
func (p *Pod) limitSwap(container *v1.Container, r *runtimeapi.LinuxContainerResources) {
	policy := &p.Node.Cgroups.Policy
	switch {
	case !policy.SwapLimits:
	case !policy.Unified:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	case p.MaySwap(&container.Resources):
		setUnified(r, fileSwapMax, p.swapShare(container))
	default:
		setUnified(r, fileSwapMax, 0)
	}
}

// MaySwap reports whether a container with some resources may have swap: the node limits swap, the
// container is in a Burstable pod that is not critical, and its memory is neither unbounded on both
// sides nor guaranteed.
func (p *Pod) MaySwap(r *v1.ResourceRequirements) bool {
	policy := &p.Node.Cgroups.Policy
	return policy.SwapLimits && policy.Unified && policy.LimitedSwap &&
		QOS(p.Spec) == v1.PodQOSBurstable && !admission.IsCritical(p.Spec, p.Static) &&
		r.Requests.Memory().Cmp(*r.Limits.Memory()) != 0
}

// swapShare returns how much of the machine's swap a container may have: the share that it requests
// of the machine's memory. A request of more than the machine has leads to no swap.
func (p *Pod) swapShare(container *v1.Container) int64 {
	request, memory := container.Resources.Requests.Memory().Value(), p.Node.MemoryBytes
	if memory <= 0 || request < 0 || request > memory {
		return 0
	}
	return int64(float64(request) / float64(memory) * float64(p.Node.Cgroups.Policy.SwapBytes))
}

// protectMemory sets what of the memory of a container is not reclaimed, and from where on the
// container is throttled (KEP-2570). Upstream: generateLinuxContainerResources in
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
func (p *Pod) protectMemory(container *v1.Container, r *runtimeapi.LinuxContainerResources) {
	policy := &p.Node.Cgroups.Policy
	if !policy.ProtectsMemory() {
		return
	}
	request := container.Resources.Requests.Memory().Value()
	limit := container.Resources.Limits.Memory().Value()
	switch {
	case request == 0 || !policy.ReserveMemory:
		setUnified(r, fileMemoryMin, 0)
		setUnified(r, fileMemoryLow, 0)
	case QOS(p.Spec) == v1.PodQOSGuaranteed:
		setUnified(r, fileMemoryMin, request)
	default:
		setUnified(r, fileMemoryLow, request)
	}
	setUnified(r, fileMemoryHigh, p.throttledFrom(request, limit))
}

// throttledFrom returns the usage from which a container is throttled: between its request and its
// limit by memoryThrottlingFactor, in whole pages. It is unlimited if the two leave nothing between
// them: a runtime that updates a container keeps what a request leaves out.
func (p *Pod) throttledFrom(request, limit int64) int64 {
	if request == limit {
		return unlimited
	}
	if limit == 0 {
		limit = p.Node.UnreservedMemory
	}
	policy := &p.Node.Cgroups.Policy
	page := max(policy.PageBytes, 1)
	// Rounded by itself, so that all processors choose the same.
	above := float64((float64(limit) - float64(request)) * policy.ThrottlingFactor)
	high := int64(float64(request)+above) / page * page
	if limit <= 0 || high <= request {
		return unlimited
	}
	return high
}
