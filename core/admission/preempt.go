package admission

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
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

// Victims returns the pods to preempt so that the pod fits if it is critical, given all its
// failures. Pods of a better QoS class are spared if possible; within a class the pods closest to
// the shortage are chosen. It returns false if no set of pods would do, or if a failure is not a
// shortage.
func (c *Check) Victims(failures []Failure, others []Candidate) ([]*v1.Pod, bool) {
	if !IsCritical(c.Pod, c.Static) {
		return nil, false
	}
	need := map[v1.ResourceName]int64{}
	for _, f := range failures {
		if f.Shortage.Resource == "" {
			return nil, false
		}
		need[f.Shortage.Resource] = f.Shortage.Amount
	}
	classes := map[v1.PodQOSClass][]victim{}
	var all []victim
	for _, o := range others {
		if isPreemptable(c.Pod, c.Static, o) {
			v := victim{o.Pod, c.Requests.of(o.Pod)}
			classes[o.QOS], all = append(classes[o.QOS], v), append(all, v)
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
	var pods []*v1.Pod
	for _, v := range slices.Concat(bestEffort, burstable, guaranteed) {
		pods = append(pods, v.pod)
	}
	return pods, true
}

// victim is a pod that may be preempted, with what it requests.
type victim struct {
	pod      *v1.Pod
	requests map[v1.ResourceName]int64
}

// frees returns how much of a resource the end of the pod frees: what it requests, and one pod.
func (v *victim) frees(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return v.requests[name]
}

// requestsLess reports whether the pod requests less memory than another one, or as much memory and
// less CPU.
func (v *victim) requestsLess(other *victim) bool {
	return cmp.Or(cmp.Compare(v.requests[v1.ResourceMemory], other.requests[v1.ResourceMemory]),
		cmp.Compare(v.requests[v1.ResourceCPU], other.requests[v1.ResourceCPU])) < 0
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
func chooseVictims(need map[v1.ResourceName]int64, candidates []victim) []victim {
	var chosen []victim
	candidates = slices.Clone(candidates)
	for len(need) > 0 && len(candidates) > 0 {
		names := sortedNames(need)
		nearest, least := 0, 0.0
		for i := range candidates {
			d := distance(need, names, &candidates[i])
			if i == 0 || d < least || d == least && candidates[i].requestsLess(&candidates[nearest]) {
				nearest, least = i, d
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
func distance(need map[v1.ResourceName]int64, names []v1.ResourceName, v *victim) float64 {
	sum := 0.0
	for _, name := range names {
		if missing := float64(need[name] - v.frees(name)); missing > 0 {
			share := missing / float64(need[name])
			sum += float64(share * share) // rounded by itself, so that all processors choose the same
		}
	}
	return sum
}

// remainingAfter returns what is still needed when the victims have ended.
func remainingAfter(need map[v1.ResourceName]int64, victims []victim) map[v1.ResourceName]int64 {
	remaining := maps.Clone(need)
	for name := range need { //ordered: each by itself
		for i := range victims {
			remaining[name] -= victims[i].frees(name)
		}
	}
	maps.DeleteFunc(remaining, func(_ v1.ResourceName, amount int64) bool { return amount <= 0 })
	return remaining
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
