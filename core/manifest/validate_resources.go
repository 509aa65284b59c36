package manifest

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresources "k8s.io/component-helpers/resource"
)

// checkResources checks requests and limits.
func (v *validator) checkResources(r *v1.ResourceRequirements, p *field.Path) {
	v.checkQuantities(r.Limits, p.Child("limits"))
	v.checkQuantities(r.Requests, p.Child("requests"))
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, limit := r.Requests[name], r.Limits[name]
		q := p.Child("requests").Key(string(name))
		_, limited := r.Limits[name]
		switch {
		case limited && request.Cmp(limit) > 0:
			v.invalid(q, request.String(), "must not be more than the limit, "+limit.String())
		case !overcommits(name) && (!limited || request.Cmp(limit) != 0):
			v.invalid(q, request.String(), "must be the limit, for "+string(name)+
				" cannot be shared")
		}
	}
}

// overcommits reports whether a resource may have a request below its limit.
func overcommits(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return true
	}
	return false // huge pages and extended resources
}

func (v *validator) checkQuantities(list v1.ResourceList, p *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q, amount := p.Key(string(name)), list[name]
		v.addInvalid(q, string(name), validation.IsQualifiedName(string(name)))
		native := overcommits(name) || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !native && !strings.Contains(string(name), "/") {
			v.invalid(q, string(name), "must be a resource of Kubernetes or have a domain")
		}
		if amount.Sign() < 0 {
			v.invalid(q, amount.String(), "must not be negative")
		}
		if !native && amount.MilliValue()%1000 != 0 {
			v.invalid(q, amount.String(), "must be a whole number")
		}
	}
}

// checkPodResources checks the pod-level requests and limits (KEP-2837).
func (v *validator) checkPodResources(spec *v1.PodSpec, p *field.Path) {
	v.checkQuantities(spec.Overhead, p.Child("overhead"))
	if spec.Resources == nil {
		return
	}
	q := p.Child("resources")
	v.checkResources(spec.Resources, q)
	v.forbidReference(q.Child("claims"), len(spec.Resources.Claims) > 0, "resource claims")
	for _, name := range slices.Sorted(maps.Keys(spec.Resources.Requests)) {
		huge := strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
		if name != v1.ResourceCPU && name != v1.ResourceMemory && !huge {
			v.add(field.NotSupported(q.Child("requests").Key(string(name)), name,
				[]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "hugepages-SIZE"}))
		}
	}
	sum := podresources.AggregateContainerRequests(&v1.Pod{Spec: *spec},
		podresources.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(spec.Resources.Requests)) {
		whole, all := spec.Resources.Requests[name], sum[name]
		if whole.Cmp(all) < 0 {
			v.invalid(q.Child("requests").Key(string(name)), whole.String(),
				"must not be less than what the containers ask for, "+all.String())
		}
	}
	for i := range spec.Containers {
		v.checkLimitsWithinPod(&spec.Containers[i], spec.Resources, p.Child("containers").Index(i))
	}
}

// checkLimitsWithinPod checks that no limit of a container exceeds the limit of its pod.
func (v *validator) checkLimitsWithinPod(c *v1.Container, pod *v1.ResourceRequirements,
	p *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		limit := c.Resources.Limits[name]
		if most, limited := pod.Limits[name]; limited && limit.Cmp(most) > 0 {
			v.invalid(p.Child("resources", "limits").Key(string(name)), limit.String(),
				"must not be more than the limit of the pod, "+most.String())
		}
	}
}
