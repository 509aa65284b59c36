package apiserver

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/manifest"
)

// preparePod sets the defaults and the initial status of a new pod, whatever status the request
// has.
func preparePod(pod *v1.Pod) {
	manifest.SetDefaults(pod)
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; !mirror &&
		pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // as the admission plugin ServiceAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	pod.Generation = 1
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: qosClass(pod)}
}

// preparePodStatus keeps the fields that the status subresource does not change, and the fields of
// the status that must not be cleared.
func preparePodStatus(pod, old *v1.Pod) {
	pod.Spec = old.Spec
	pod.OwnerReferences = old.OwnerReferences
	s, oldStatus := &pod.Status, &old.Status
	if s.QOSClass == "" {
		s.QOSClass = oldStatus.QOSClass
	}
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = oldStatus.ObservedGeneration
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		old := findCondition(oldStatus.Conditions, c.Type)
		if old != nil && c.ObservedGeneration == 0 {
			c.ObservedGeneration = old.ObservedGeneration
		}
	}
	syncPodIPs(s)
}

// syncPodIPs makes PodIP and PodIPs consistent. PodIP takes precedence.
func syncPodIPs(s *v1.PodStatus) {
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
	}
	if s.PodIP == "" && len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func findCondition(all []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// qosClass returns the QoS class of a pod from its requests and limits of CPU and memory.
func qosClass(pod *v1.Pod) v1.PodQOSClass {
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
	hasResources, guaranteed := false, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := amount(r.Requests, name), amount(r.Limits, name)
			hasResources = hasResources || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !hasResources:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

func amount(list v1.ResourceList, name v1.ResourceName) resource.Quantity { return list[name] }
