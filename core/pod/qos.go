package pod

import v1 "k8s.io/api/core/v1"

// qos is the quality of service class of a pod: Guaranteed if every container has limits for CPU
// and memory that equal its requests, BestEffort if none has any, Burstable otherwise.
func qos(pod *v1.Pod) v1.PodQOSClass {
	any, guaranteed := false, true
	check := func(c *v1.Container) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			any = any || !request.IsZero() || !limit.IsZero()
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		check(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		check(&pod.Spec.Containers[i])
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
