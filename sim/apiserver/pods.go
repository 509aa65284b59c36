package apiserver

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/manifest"
)

// preparePod is what the server makes of a new pod: whatever status it had, it has its first.
func preparePod(pod *v1.Pod) {
	manifest.SetDefaults(pod)
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; !mirror &&
		pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // the admission plugin ServiceAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	pod.Generation = 1
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: qos(pod)}
}

// preparePodStatus keeps what the status subresource does not change, and in the status what
// must not be lost.
func preparePodStatus(pod, old *v1.Pod) {
	pod.Spec = old.Spec
	pod.OwnerReferences = old.OwnerReferences
	s, was := &pod.Status, &old.Status
	if s.QOSClass == "" {
		s.QOSClass = was.QOSClass
	}
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = was.ObservedGeneration
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if before := condition(was.Conditions, c.Type); before != nil && c.ObservedGeneration == 0 {
			c.ObservedGeneration = before.ObservedGeneration
		}
	}
	addresses(s)
}

// addresses has the two fields agree that a pod's address is in: the older one decides.
func addresses(s *v1.PodStatus) {
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
	}
	if s.PodIP == "" && len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func condition(all []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// qos is the class of a pod by its requests and limits of CPU and memory.
func qos(pod *v1.Pod) v1.PodQOSClass {
	var all []*v1.ResourceRequirements
	if pod.Spec.Resources != nil {
		all = append(all, pod.Spec.Resources)
	} else {
		for i := range pod.Spec.InitContainers {
			all = append(all, &pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			all = append(all, &pod.Spec.Containers[i].Resources)
		}
	}
	any, guaranteed := false, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := amount(r.Requests, name), amount(r.Limits, name)
			any = any || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
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

func amount(list v1.ResourceList, name v1.ResourceName) resource.Quantity { return list[name] }
