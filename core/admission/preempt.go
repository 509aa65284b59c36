package admission

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PreemptedReason and PreemptedMessage are in the status of a pod that was preempted.
const (
	PreemptedReason  = "Preempting"
	PreemptedMessage = "Preempted in order to admit critical pod"
)

// systemCriticalPriority is the least priority of pods that are critical to the cluster or the node
// (scheduling.SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// IsCritical reports whether a pod may preempt others: static pods, and pods of a critical
// priority.
func IsCritical(pod *v1.Pod, static bool) bool {
	return static || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// DecisiveFailure returns the failure that a pod is rejected for: the first one, or for a critical
// pod the first one that preemption cannot resolve.
func DecisiveFailure(pod *v1.Pod, static bool, failures []Failure) Failure {
	if i := slices.IndexFunc(failures, func(f Failure) bool {
		return f.Shortage.Resource == ""
	}); i >= 0 && IsCritical(pod, static) {
		return failures[i]
	}
	return failures[0]
}

// Candidate is a pod that may be preempted.
type Candidate struct {
	Pod    *v1.Pod
	Static bool
	QOS    v1.PodQOSClass
}

// Victims returns the pods to preempt so that a critical pod fits, given all its failures. Pods of
// a better QoS class are spared if possible; within a class the pods closest to the shortage are
// chosen. It returns false if no set of pods would do, or if a failure is not a shortage.
func Victims(pod *v1.Pod, static bool, failures []Failure, others []Candidate) ([]*v1.Pod, bool) {
	if !IsCritical(pod, static) {
		return nil, false
	}
	need := map[v1.ResourceName]int64{}
	for _, f := range failures {
		if f.Shortage.Resource == "" {
			return nil, false
		}
		need[f.Shortage.Resource] = f.Shortage.Amount
	}
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, o := range others {
		if isPreemptable(pod, static, o) {
			classes[o.QOS] = append(classes[o.QOS], o.Pod)
			all = append(all, o.Pod)
		}
	}
	if len(remainingAfter(need, all)) > 0 {
		return nil, false
	}
	bestEffort, burstable := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable]
	guaranteed := chooseVictims(
		remainingAfter(need, slices.Concat(bestEffort, burstable)), classes[v1.PodQOSGuaranteed])
	burstable = chooseVictims(remainingAfter(need, slices.Concat(bestEffort, guaranteed)), burstable)
	bestEffort = chooseVictims(remainingAfter(need, slices.Concat(burstable, guaranteed)), bestEffort)
	return slices.Concat(bestEffort, burstable, guaranteed), true
}

// isPreemptable reports whether a pod may preempt another one.
func isPreemptable(pod *v1.Pod, static bool, other Candidate) bool {
	if IsCritical(pod, static) && !IsCritical(other.Pod, other.Static) {
		return true
	}
	return pod.Spec.Priority != nil && other.Pod.Spec.Priority != nil &&
		*pod.Spec.Priority > *other.Pod.Spec.Priority
}

// chooseVictims returns the pods whose end covers the needed amounts. It takes one pod after the
// other: the one that leaves the least distance, and of two such pods the one that requests less.
func chooseVictims(need map[v1.ResourceName]int64, candidates []*v1.Pod) []*v1.Pod {
	var chosen []*v1.Pod
	candidates = slices.Clone(candidates)
	for len(need) > 0 && len(candidates) > 0 {
		nearest := 0
		for i := range candidates {
			d := cmp.Compare(distance(need, candidates[i]), distance(need, candidates[nearest]))
			if d < 0 || d == 0 && requestsLess(candidates[i], candidates[nearest]) {
				nearest = i
			}
		}
		chosen = append(chosen, candidates[nearest])
		candidates = slices.Delete(candidates, nearest, nearest+1)
		need = remainingAfter(need, chosen[len(chosen)-1:])
	}
	return chosen
}

// distance returns how far a victim is from what is needed: the sum over the resources of the
// squared share that would still be missing.
func distance(need map[v1.ResourceName]int64, victim *v1.Pod) float64 {
	sum, freed := 0.0, freedBy(victim)
	for _, name := range sortedNames(need) {
		if missing := float64(need[name] - freed[name]); missing > 0 {
			share := missing / float64(need[name])
			sum += float64(share * share) // rounded by itself, so that all processors choose the same
		}
	}
	return sum
}

// remainingAfter returns what is still needed when the victims have ended.
func remainingAfter(need map[v1.ResourceName]int64, victims []*v1.Pod) map[v1.ResourceName]int64 {
	remaining := maps.Clone(need)
	for _, pod := range victims {
		for name, amount := range freedBy(pod) { //ordered: sums
			if _, needed := remaining[name]; needed {
				remaining[name] -= amount
			}
		}
	}
	maps.DeleteFunc(remaining, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return remaining
}

// freedBy returns what the end of a pod frees: its requests, and one pod.
func freedBy(pod *v1.Pod) map[v1.ResourceName]int64 {
	freed := requests(pod)
	freed[v1.ResourcePods] = 1
	return freed
}

// requestsLess reports whether x requests less memory than y, or as much memory and less CPU.
func requestsLess(x, y *v1.Pod) bool {
	a, b := requests(x), requests(y)
	return cmp.Or(cmp.Compare(a[v1.ResourceMemory], b[v1.ResourceMemory]),
		cmp.Compare(a[v1.ResourceCPU], b[v1.ResourceCPU])) < 0
}

// sortedNames returns the names of resources in the order of messages: pods, CPU, memory, ephemeral
// storage, then the others by name.
func sortedNames(list map[v1.ResourceName]int64) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceEphemeralStorage, v1.ResourceMemory, v1.ResourceCPU,
		v1.ResourcePods}
	return slices.SortedFunc(maps.Keys(list), func(x, y v1.ResourceName) int {
		return cmp.Or(cmp.Compare(slices.Index(first, y), slices.Index(first, x)),
			cmp.Compare(x, y))
	})
}

// amountOf returns a quantity in the unit of Shortage.
func amountOf(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
