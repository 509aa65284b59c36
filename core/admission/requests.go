package admission

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
		amounts[name] = AmountOf(name, q)
	}
	return amounts
}

// The greatest amount of a resource that counts, and the greatest sum: no node has as much, and
// none wraps around, whatever the API server and the annotations of a runtime let pods request.
const (
	amountMax = 1 << 52
	sumMax    = 1 << 60
)

var (
	quantityMax      = *resource.NewQuantity(amountMax, resource.DecimalSI)
	milliQuantityMax = *resource.NewMilliQuantity(amountMax, resource.DecimalSI)
)

// AmountOf returns a quantity in the unit of Shortage. A negative one is none.
func AmountOf(name v1.ResourceName, q resource.Quantity) int64 {
	isCPU := name == v1.ResourceCPU
	switch {
	case q.Sign() < 0:
		return 0
	case isCPU && q.Cmp(milliQuantityMax) > 0, !isCPU && q.Cmp(quantityMax) > 0:
		return amountMax
	case isCPU:
		return q.MilliValue()
	}
	return q.Value()
}
