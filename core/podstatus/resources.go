package podstatus

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/pod"
)

// The resources in the status: what is allocated, and of what runs, what it really has. An in-place
// resize shows there (KEP-1287, KEP-5419).

// resources returns the resources of a container: the allocated ones, and of one that runs those
// that it really has, as far as that is known. An agent that has just started does not know that,
// and what is allocated may be new: the stored status stays. A container without a limit has that
// of its pod. Upstream: convertContainerStatusResources in pkg/kubelet/kubelet_pods.go.
func resources(p *pod.Pod, c *pod.Container, container *v1.Container) *v1.ResourceRequirements {
	r := &container.Resources
	has := v1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
	reported := c.Actuation.Reported
	switch {
	case c.State != pod.Running:
		return &has
	case c.Actuation.Last == nil && reported == nil:
		return cmp.Or(storedResources(p, c), &has)
	}
	last := allocation.Amounts{}
	if c.Actuation.Last != nil {
		last = *c.Actuation.Last
	}
	cpuRequest, cpuLimit, memoryLimit := last.CPURequest, last.CPULimit, last.MemoryLimit
	if reported != nil {
		cpuRequest = cmp.Or(reported.CPURequest, cpuRequest)
		cpuLimit = cmp.Or(reported.CPULimit, cpuLimit)
		memoryLimit = cmp.Or(reported.MemoryLimit, memoryLimit)
	}
	if r.Requests != nil {
		has.Requests = withCPU(has.Requests, cpuRequest, allocation.CPURequestMin)
		has.Requests = withAmount(has.Requests, v1.ResourceMemory, last.MemoryRequest)
	}
	if r.Limits != nil {
		has.Limits = withCPU(has.Limits, cpuLimit, allocation.CPULimitMin)
		has.Limits = withAmount(has.Limits, v1.ResourceMemory, memoryLimit)
	}
	return &has
}

// storedResources returns the resources that the stored status has of a container; nil if none.
func storedResources(p *pod.Pod, c *pod.Container) *v1.ResourceRequirements {
	stored := &p.Spec.Status
	for _, list := range [][]v1.ContainerStatus{stored.InitContainerStatuses,
		stored.ContainerStatuses} {
		for i := range list {
			if id := pod.RunID(list[i].ContainerID); id == c.ID && id != "" {
				return list[i].Resources
			}
		}
	}
	return nil
}

// podResources returns the resources of a pod as a whole: of one that runs, those of its cgroup. An
// agent that has just started does not know the cgroup: the stored status stays.
// Upstream: convertToAPIPodLevelResourcesStatus in pkg/kubelet/kubelet_pods.go.
func podResources(p *pod.Pod, requests v1.ResourceList) *v1.ResourceRequirements {
	without := podresources.PodResourcesOptions{}
	stored := &p.Spec.Status
	switch {
	case p.Status.Phase == v1.PodRunning && p.Cgroup.Applied != nil:
	case p.Status.Phase == v1.PodRunning && stored.Phase == v1.PodRunning && stored.Resources != nil:
		return stored.Resources
	default:
		return &v1.ResourceRequirements{Requests: requests,
			Limits: podresources.PodLimits(p.Spec, without)}
	}
	has := v1.ResourceRequirements{}
	if own := p.Spec.Spec.Resources; own != nil {
		has.Requests, has.Limits = own.Requests, own.Limits
	}
	set := &p.Cgroup.Applied.Cgroup
	has.Requests = withCPU(has.Requests, cgroup.SharesToMilliCPU(set.CPUShares),
		allocation.CPURequestMin)
	has.Requests = withAmount(has.Requests, v1.ResourceMemory, requests.Memory().Value())
	if set.CPUPeriod > 0 {
		has.Limits = withCPU(has.Limits, set.CPUQuota*1000/int64(set.CPUPeriod),
			allocation.CPULimitMin)
	}
	has.Limits = withAmount(has.Limits, v1.ResourceMemory, set.MemoryBytes)
	if stored.Phase == v1.PodRunning && stored.Resources != nil {
		has.Limits = withReported(has.Limits, stored.Resources.Limits)
	}
	return &has
}

// withReported returns limits with those of a stored status that are not among them: a kubelet
// keeps the limit that it has reported before the pod ran, although a container without a limit
// takes it from the cgroup.
func withReported(limits, stored v1.ResourceList) v1.ResourceList {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, isReported := stored[name]
		if _, exists := limits[name]; isReported && !exists {
			if limits = maps.Clone(limits); limits == nil {
				limits = v1.ResourceList{}
			}
			limits[name] = q
		}
	}
	return limits
}

// withCPU returns a list of resources with an amount of CPU, in milli-CPUs, unless that and the
// one that it has are among those that the kernel does not tell apart.
func withCPU(list v1.ResourceList, milli, least int64) v1.ResourceList {
	if milli <= least && list.Cpu().MilliValue() <= least {
		return list
	}
	return withAmount(list, v1.ResourceCPU, milli)
}

// withAmount returns a list of resources with an amount of one: in milli-CPUs for CPU, in bytes
// for memory. A list that has the amount stays as it is, and so does each if nothing is known.
func withAmount(list v1.ResourceList, name v1.ResourceName, amount int64) v1.ResourceList {
	q := list[name]
	isCPU := name == v1.ResourceCPU
	if amount == 0 || isCPU && q.MilliValue() == amount || !isCPU && q.Value() == amount {
		return list
	}
	if list = maps.Clone(list); list == nil {
		list = v1.ResourceList{}
	}
	if isCPU {
		list[name] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
	} else {
		list[name] = *resource.NewQuantity(amount, resource.BinarySI)
	}
	return list
}
