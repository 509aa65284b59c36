package admission

import (
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// Requests remembers what pods request, since adding up their containers is most of what a check
// costs, and each check needs it of all pods. It is a cache of what the pods say; the zero value is
// empty.
type Requests struct {
	amounts map[*v1.Pod]map[v1.ResourceName]int64
}

// of returns what a pod requests, including its overhead.
func (r *Requests) of(pod *v1.Pod) map[v1.ResourceName]int64 {
	if amounts, known := r.amounts[pod]; known {
		return amounts
	}
	return requests(pod)
}

// Remember replaces the pods whose requests are known.
func (r *Requests) Remember(pods []*v1.Pod) {
	amounts := make(map[*v1.Pod]map[v1.ResourceName]int64, len(pods))
	for _, pod := range pods {
		amounts[pod] = r.of(pod)
	}
	r.amounts = amounts
}

func requests(pod *v1.Pod) map[v1.ResourceName]int64 {
	amounts := map[v1.ResourceName]int64{}
	all := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	for name, q := range all { //ordered: a map
		amounts[name] = amountOf(name, q)
	}
	return amounts
}
