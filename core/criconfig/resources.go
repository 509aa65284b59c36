package criconfig

import (
	"maps"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/world"
)

// QOS returns the quality of service class of a pod: Guaranteed if every container has limits for
// CPU and memory that equal its requests, BestEffort if no container has a request or limit,
// Burstable otherwise. If the pod has requests or limits at pod level, only those count (KEP-2837).
func QOS(pod *v1.Pod) v1.PodQOSClass {
	hasAny, guaranteed := false, true
	check := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			hasAny = hasAny || !request.IsZero() || !limit.IsZero()
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	if podresources.IsPodLevelResourcesSet(pod) {
		check(pod.Spec.Resources)
	} else {
		for i := range pod.Spec.InitContainers {
			check(&pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			check(&pod.Spec.Containers[i].Resources)
		}
	}
	switch {
	case !hasAny:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// sandboxResources returns the requests and limits of all containers together. Runtimes that run a
// pod in a virtual machine size the machine by them.
func (p *Pod) sandboxResources() *runtimeapi.LinuxContainerResources {
	without := podresources.PodResourcesOptions{ExcludeOverhead: true}
	requests := podresources.PodRequests(p.Spec, without)
	limits := podresources.PodLimits(p.Spec, without)
	cpu, found := requests["cpu"]
	if !found {
		cpu = *limits.Cpu()
	}
	return p.linuxResources(cpu.MilliValue(), limits.Cpu().MilliValue(), limits.Memory().Value())
}

// SandboxResourcesUpdate returns the request that tells the runtime of other resources of the
// pod's containers together.
func (p *Pod) SandboxResourcesUpdate(
	sandboxID string) *runtimeapi.UpdatePodSandboxResourcesRequest {
	return &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sandboxID,
		Overhead: p.overhead(), Resources: p.sandboxResources()}
}

// overhead returns the resources that the sandbox has besides those of its containers.
func (p *Pod) overhead() *runtimeapi.LinuxContainerResources {
	o := p.Spec.Spec.Overhead
	if o == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return p.linuxResources(o.Cpu().MilliValue(), o.Cpu().MilliValue(), o.Memory().Value())
}

// ContainerResources returns the requests and limits of a container. A limit without a request is
// the request too: the API server has that default for a container, and not for a limit at pod
// level.
func (p *Pod) ContainerResources(container *v1.Container) *runtimeapi.LinuxContainerResources {
	cpu := p.containerLimit(container, v1.ResourceCPU)
	memory := p.containerLimit(container, v1.ResourceMemory)
	request, found := container.Resources.Requests[v1.ResourceCPU]
	if !found {
		request = cpu
	}
	r := p.linuxResources(request.MilliValue(), cpu.MilliValue(), memory.Value())
	r.OomScoreAdj = p.oomScoreAdj(container)
	r.HugepageLimits = p.hugePageLimits(container)
	p.limitSwap(container, r)
	p.protectMemory(container, r)
	return r
}

// linuxResources returns milli-CPUs and bytes of memory as the CRI's fields. In cgroup v2
// the kernel ends all processes of a container that exceeds its memory, unless it is to end one: a
// container that has lost one process seldom works on.
func (p *Pod) linuxResources(cpuRequest, cpuLimit,
	memory int64) *runtimeapi.LinuxContainerResources {
	policy := &p.Node.Cgroups.Policy
	r := &runtimeapi.LinuxContainerResources{
		CpuShares: cgroup.MilliCPUToShares(cpuRequest), MemoryLimitInBytes: memory,
	}
	r.CpuQuota, r.CpuPeriod = policy.Quota(cpuLimit)
	if policy.Unified && !policy.KillProcess {
		setUnified(r, "memory.oom.group", 1)
	}
	return r
}

// setUnified sets a file of the container's cgroup, which cgroup v2 has.
func setUnified(r *runtimeapi.LinuxContainerResources, file string, value int64) {
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified[file] = strconv.FormatInt(value, 10)
	if value == unlimited {
		r.Unified[file] = "max"
	}
}

// hugePageLimits returns the limits of a container for huge pages of every size of the machine: its
// own, or else those of the pod, or else zero.
func (p *Pod) hugePageLimits(container *v1.Container) []*runtimeapi.HugepageLimit {
	limits := v1.ResourceList{}
	if podresources.IsPodLevelResourcesSet(p.Spec) {
		maps.Copy(limits, p.Spec.Spec.Resources.Limits)
	}
	maps.Copy(limits, container.Resources.Limits)
	var all []*runtimeapi.HugepageLimit
	for _, l := range p.Node.Cgroups.HugePageLimits(limits) {
		all = append(all, &runtimeapi.HugepageLimit{
			PageSize: world.HugePageSizeName(l.SizeBytes), Limit: uint64(l.MaxBytes)})
	}
	return all
}

// containerLimit returns the limit of a container; without one, the limit at pod level (KEP-2837).
func (p *Pod) containerLimit(c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if pod := p.Spec.Spec.Resources; limit.IsZero() && pod != nil {
		limit = pod.Limits[name]
	}
	return limit
}

// The least and greatest oom_score_adj of containers. Those between are of burstable pods.
const (
	oomScoreGuaranteed = -997
	oomScoreBestEffort = 1000
)

// systemNodeCritical is the priority class of pods that the node cannot do without
// (scheduling.SystemNodeCritical).
const systemNodeCritical = "system-node-critical"

// oomScoreAdj returns the kubelet's value (kubelet/qos/policy.go): the larger the share of the
// node's memory that a burstable container requests, the later the kernel kills it. The containers
// of a node-critical pod are killed last, whatever they request. A sidecar is not killed before
// every regular container of its pod, because they depend on it (KEP-753).
func (p *Pod) oomScoreAdj(container *v1.Container) int64 {
	qos := QOS(p.Spec)
	isNodeCritical := p.Spec.Spec.PriorityClassName == systemNodeCritical &&
		admission.IsCritical(p.Spec, p.Static)
	switch {
	case isNodeCritical || qos == v1.PodQOSGuaranteed:
		return oomScoreGuaranteed
	case qos == v1.PodQOSBestEffort:
		return oomScoreBestEffort
	}
	if p.Node.MemoryBytes <= 0 {
		return oomScoreBestEffort - 1
	}
	request := container.Resources.Requests.Memory().Value()
	if isSidecar(&p.Spec.Spec, container) {
		request = max(request, leastMemoryRequest(p.Spec.Spec.Containers))
	}
	adj := oomScoreBestEffort - 1000*(request+p.unallocatedMemory())/p.Node.MemoryBytes
	return min(oomScoreBestEffort-1, max(oomScoreBestEffort+oomScoreGuaranteed, adj))
}

// isSidecar reports whether a container is an init container that runs as long as the pod.
func isSidecar(spec *v1.PodSpec, container *v1.Container) bool {
	isAlways := container.RestartPolicy != nil &&
		*container.RestartPolicy == v1.ContainerRestartPolicyAlways
	return isAlways && slices.ContainsFunc(spec.InitContainers, func(c v1.Container) bool {
		return c.Name == container.Name
	})
}

// leastMemoryRequest returns the least memory that one of the containers requests.
func leastMemoryRequest(containers []v1.Container) int64 {
	least := int64(math.MaxInt64)
	for i := range containers {
		least = min(least, containers[i].Resources.Requests.Memory().Value())
	}
	return least
}

// unallocatedMemory returns each container's share of the memory that the pod requests at pod level
// and that no container requests.
func (p *Pod) unallocatedMemory() int64 {
	spec := &p.Spec.Spec
	if !podresources.IsPodLevelRequestsSet(p.Spec) || spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requests := podresources.AggregateContainerRequests(p.Spec, podresources.PodResourcesOptions{})
	containers := int64(len(spec.Containers) + len(spec.InitContainers))
	return (spec.Resources.Requests.Memory().Value() - requests.Memory().Value()) / containers
}
