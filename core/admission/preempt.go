package admission

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PreemptedReason and PreemptedMessage are what the status of a pod says that made room.
const (
	PreemptedReason  = "Preempting"
	PreemptedMessage = "Preempted in order to admit critical pod"
)

// systemCritical is the priority from which on a pod is critical to the cluster or to the node
// (scheduling.SystemCriticalPriority).
const systemCritical = 2_000_000_000

// Critical says whether other pods make room for a pod: static pods, and those whose priority
// says so.
func Critical(pod *v1.Pod, static bool) bool {
	return static || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// Decisive is the failure that a pod is rejected for: the first, or, of a critical pod, the first
// that is not for others to help with.
func Decisive(pod *v1.Pod, static bool, failures []Failure) Failure {
	if i := slices.IndexFunc(failures, func(f Failure) bool {
		return f.Missing.Resource == ""
	}); i >= 0 && Critical(pod, static) {
		return failures[i]
	}
	return failures[0]
}

// Candidate is a pod that may have to make room.
type Candidate struct {
	Pod    *v1.Pod
	Static bool
	QOS    v1.PodQOSClass
}

// Victims are the pods that have to end for a critical pod to fit, given everything that keeps it
// out: as few of the better classes of service as can be, and among those of one class the ones
// that come closest to what is missing. It reports false if no set of them would do, or if more
// than room is missing.
func Victims(pod *v1.Pod, static bool, failures []Failure, others []Candidate) ([]*v1.Pod, bool) {
	if !Critical(pod, static) {
		return nil, false
	}
	need := map[v1.ResourceName]int64{}
	for _, f := range failures {
		if f.Missing.Resource == "" {
			return nil, false
		}
		need[f.Missing.Resource] = f.Missing.Amount
	}
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, o := range others {
		if preemptable(pod, static, o) {
			classes[o.QOS] = append(classes[o.QOS], o.Pod)
			all = append(all, o.Pod)
		}
	}
	if len(left(need, all)) > 0 {
		return nil, false
	}
	best, burst := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable]
	guaranteed := choose(left(need, slices.Concat(best, burst)), classes[v1.PodQOSGuaranteed])
	burst = choose(left(need, slices.Concat(best, guaranteed)), burst)
	best = choose(left(need, slices.Concat(burst, guaranteed)), best)
	return slices.Concat(best, burst, guaranteed), true
}

// preemptable says whether a pod makes room for another one.
func preemptable(pod *v1.Pod, static bool, other Candidate) bool {
	if Critical(pod, static) && !Critical(other.Pod, other.Static) {
		return true
	}
	return pod.Spec.Priority != nil && other.Pod.Spec.Priority != nil &&
		*pod.Spec.Priority > *other.Pod.Spec.Priority
}

// choose takes pods until nothing is missing: at each turn the one after which least is, and of
// two such the one that asks for less.
func choose(need map[v1.ResourceName]int64, from []*v1.Pod) []*v1.Pod {
	var chosen []*v1.Pod
	from = slices.Clone(from)
	for len(need) > 0 && len(from) > 0 {
		nearest := 0
		for i := range from {
			d := cmp.Compare(distance(need, from[i]), distance(need, from[nearest]))
			if d < 0 || d == 0 && asksLess(from[i], from[nearest]) {
				nearest = i
			}
		}
		chosen = append(chosen, from[nearest])
		from = slices.Delete(from, nearest, nearest+1)
		need = left(need, chosen[len(chosen)-1:])
	}
	return chosen
}

// distance is how much of what is needed would still be missing without a pod: the sum of the
// squares of the shares.
func distance(need map[v1.ResourceName]int64, without *v1.Pod) float64 {
	sum, frees := 0.0, freed(without)
	for _, name := range inOrder(need) {
		if missing := float64(need[name] - frees[name]); missing > 0 {
			share := missing / float64(need[name])
			sum += share * share
		}
	}
	return sum
}

// left is what is still needed when pods have gone.
func left(need map[v1.ResourceName]int64, gone []*v1.Pod) map[v1.ResourceName]int64 {
	still := maps.Clone(need)
	for _, pod := range gone {
		for name, amount := range freed(pod) { //ordered: sums
			if _, needed := still[name]; needed {
				still[name] -= amount
			}
		}
	}
	maps.DeleteFunc(still, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return still
}

// freed is what a pod takes: what it asks for, and its place.
func freed(pod *v1.Pod) map[v1.ResourceName]int64 {
	frees := requests(pod)
	frees[v1.ResourcePods] = 1
	return frees
}

// asksLess compares two pods by memory, then by CPU.
func asksLess(x, y *v1.Pod) bool {
	a, b := requests(x), requests(y)
	return cmp.Or(cmp.Compare(a[v1.ResourceMemory], b[v1.ResourceMemory]),
		cmp.Compare(a[v1.ResourceCPU], b[v1.ResourceCPU])) < 0
}

// inOrder is the names of resources: CPU, memory and storage first, as they are told.
func inOrder(list map[v1.ResourceName]int64) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceEphemeralStorage, v1.ResourceMemory, v1.ResourceCPU,
		v1.ResourcePods}
	return slices.SortedFunc(maps.Keys(list), func(x, y v1.ResourceName) int {
		return cmp.Or(cmp.Compare(slices.Index(first, y), slices.Index(first, x)),
			cmp.Compare(x, y))
	})
}

// value is an amount of a resource in its unit.
func value(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
