package admission

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
)

// Requests remembers what pods request and which ports of the host they use, since adding that up
// is most of what a check costs, and each check needs it of all pods. It is a cache of what the
// pods say; the zero value is empty.
type Requests struct {
	pods  map[*v1.Pod]known
	ports map[hostPort]int // how often those pods name a port, and at any address
}

// known is what is known of a pod.
type known struct {
	amounts map[v1.ResourceName]int64
	ports   []hostPort
}

// of returns what a pod requests, including its overhead.
func (r *Requests) of(pod *v1.Pod) map[v1.ResourceName]int64 {
	if its, isKnown := r.pods[pod]; isKnown {
		return its.amounts
	}
	return requests(pod)
}

// Remember replaces the pods whose requests are known. The ports of those that stay are not looked
// at again: a pod may have thousands.
func (r *Requests) Remember(pods []*v1.Pod) {
	before := r.pods
	r.pods = make(map[*v1.Pod]known, len(pods))
	if r.ports == nil {
		r.ports = map[hostPort]int{}
	}
	for _, pod := range pods {
		its, isKnown := before[pod]
		if !isKnown {
			its = known{requests(pod), hostPorts(pod)}
		}
		if _, isTwice := r.pods[pod]; !isKnown && !isTwice {
			count(r.ports, its.ports, 1)
		}
		r.pods[pod] = its
	}
	for pod, its := range before { //ordered: a sum
		if _, stays := r.pods[pod]; !stays {
			count(r.ports, its.ports, -1)
		}
	}
}

// count adds to how often ports are named.
func count(ports map[hostPort]int, named []hostPort, add int) {
	for _, p := range named {
		for _, at := range [...]hostPort{p, p.at(anyAddress)} {
			if ports[at] += add; ports[at] == 0 {
				delete(ports, at)
			}
		}
	}
}

// portsOf returns a question that reports whether one of some pods uses a port. It costs the ports
// of those pods alone that are not remembered, and of the remembered ones that are left out.
func (r *Requests) portsOf(pods []*v1.Pod) func(hostPort) bool {
	given, difference := make(map[*v1.Pod]bool, len(pods)), map[hostPort]int{}
	for _, pod := range pods {
		if _, isKnown := r.pods[pod]; !isKnown && !given[pod] {
			count(difference, hostPorts(pod), 1)
		}
		given[pod] = true
	}
	for pod, its := range r.pods { //ordered: a sum
		if !given[pod] {
			count(difference, its.ports, -1)
		}
	}
	return func(p hostPort) bool { return r.ports[p]+difference[p] > 0 }
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
