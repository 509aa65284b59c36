package pod

import (
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// QOS is the quality of service class of a pod: Guaranteed if every container has limits for CPU
// and memory that equal its requests, BestEffort if none has any, Burstable otherwise. If the pod
// asks for something as a whole, only that counts (KEP-2837).
func QOS(pod *v1.Pod) v1.PodQOSClass {
	any, guaranteed := false, true
	check := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			any = any || !request.IsZero() || !limit.IsZero()
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
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
