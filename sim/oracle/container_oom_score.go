package oracle

import (
	"math"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// oomScore returns the oom_score_adj of a container's processes: the kernel ends those of the
// highest score first. Of a burstable pod it is the lower, the more of the node's memory the
// container requests (kubelet/qos/policy.go).
func (m *model) oomScore(p *pod, spec *v1.Pod, c *v1.Container) int64 {
	switch class := qosClass(spec); {
	case class == v1.PodQOSGuaranteed,
		p.isCritical() && spec.Spec.PriorityClassName == "system-node-critical":
		return -997
	case class == v1.PodQOSBestEffort:
		return 1000
	}
	requested := c.Resources.Requests.Memory().Value()
	for i := range spec.Spec.InitContainers {
		init := &spec.Spec.InitContainers[i]
		if init.Name == c.Name && value(init.RestartPolicy) == v1.ContainerRestartPolicyAlways {
			least := int64(math.MaxInt64) // of what the regular containers request, which depend on it
			for k := range spec.Spec.Containers {
				least = min(least, spec.Spec.Containers[k].Resources.Requests.Memory().Value())
			}
			requested = max(requested, least)
		}
	}
	if ofPod := spec.Spec.Resources; ofPod != nil && !ofPod.Requests.Memory().IsZero() {
		all := podresources.AggregateContainerRequests(spec, podresources.PodResourcesOptions{})
		rest := ofPod.Requests.Memory().Value() - all.Memory().Value()
		requested += rest / int64(len(spec.Spec.Containers)+len(spec.Spec.InitContainers))
	}
	return max(3, min(999, 1000-1000*requested/m.opts.MemoryBytes))
}

// qosClass returns the QoS class of a pod by its spec: what counts are the CPU and memory of its
// containers, or of the pod if it has its own (KEP-2837).
func qosClass(spec *v1.Pod) v1.PodQOSClass {
	all := []v1.ResourceRequirements{}
	if spec.Spec.Resources != nil && len(spec.Spec.Resources.Requests)+
		len(spec.Spec.Resources.Limits) > 0 {
		all = append(all, *spec.Spec.Resources)
	} else {
		for _, list := range [][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
			for i := range list {
				all = append(all, list[i].Resources)
			}
		}
	}
	asked, equal := 0, 0
	for i := range all {
		for _, name := range computeResources {
			request, limit := all[i].Requests[name], all[i].Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				asked++
			}
			if !limit.IsZero() && request.Cmp(limit) == 0 {
				equal++
			}
		}
	}
	switch {
	case asked == 0:
		return v1.PodQOSBestEffort
	case equal == 2*len(all):
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
