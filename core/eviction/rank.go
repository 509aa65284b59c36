package eviction

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/admission"
)

// Which pod is evicted first, and what its status says. Upstream: the rank functions and
// evictionMessage in pkg/kubelet/eviction/helpers.go.

// ranked is a pod with what it is ranked by.
type ranked struct {
	Candidate
	class    int   // the lowest comes first
	priority int32 // and then
	excess   int64 // of usage over request; the highest comes first
}

// first returns the pod that is evicted first for a signal. For memory and file systems those come
// first whose usage is not known, then those that use more than they request; of each by priority,
// then by usage minus request. For processes all are ranked by priority, then by their number; one
// whose number is not known comes first among those of its priority.
func (m *Manager) first(a *Attempt, candidates []Candidate, signal Signal) (Candidate, bool) {
	if len(candidates) == 0 {
		return Candidate{}, false
	}
	all := make([]ranked, len(candidates))
	for i, c := range candidates {
		all[i] = m.rank(c, a.Usage[c.UID], signal)
	}
	return slices.MinFunc(all, compare).Candidate, true
}

func (m *Manager) rank(c Candidate, usage *PodUsage, signal Signal) ranked {
	r := ranked{Candidate: c}
	if p := c.Pod.Spec.Priority; p != nil {
		r.priority = *p
	}
	if usage == nil && c.Idle {
		usage = &PodUsage{} // it has no statistics, as nothing of it runs
	}
	hasLayers := signal.isForDisk() && m.isOneDevice(m.sourceOf(signal), sourceContainerfs)
	switch {
	case usage == nil || usage.LacksStats && hasLayers && !c.Idle:
		r.class, r.excess = classUnknown, math.MaxInt64
	case signal == PIDAvailable: // no request is exceeded: priorities decide, also of unknown usage
		r.class, r.excess = classUnknown, usage.Processes
	default:
		r.class, r.excess = classWithin, m.excess(c.Pod, usage, signal)
		if r.excess > 0 {
			r.class = classExceeds
		}
	}
	return r
}

// excess returns by how much the usage of a pod exceeds its request. For a file system only what is
// on it counts: logs and directories of pods are on that of the node, writable layers on that of
// the layers. A file system that has images only has nothing of a pod (buildSignalToRankFunc in
// pkg/kubelet/eviction/helpers.go).
func (m *Manager) excess(pod *v1.Pod, u *PodUsage, signal Signal) int64 {
	if signal.condition() == v1.NodeMemoryPressure {
		return u.MemoryBytes - request(pod, v1.ResourceMemory)
	}
	used, source := DiskUsage{}, m.sourceOf(signal)
	if m.isOneDevice(source, sourceContainerfs) {
		used.add(u.Layers.Bytes, u.Layers.Inodes)
	}
	if m.isOneDevice(source, sourceNodefs) {
		used.add(u.Files.Bytes, u.Files.Inodes)
	}
	if signal.resource() == v1.ResourceEphemeralStorage {
		return used.Bytes - request(pod, v1.ResourceEphemeralStorage)
	}
	return used.Inodes
}

// The classes of pods for which usage and request are compared.
const (
	classUnknown = iota // the usage was not observed
	classExceeds
	classWithin
)

// compare orders pods by when they are evicted.
func compare(x, y ranked) int {
	return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.priority, y.priority),
		cmp.Compare(y.excess, x.excess), strings.Compare(x.UID, y.UID))
}

// request returns what a pod requests of a resource, with its overhead if it requests any.
// Upstream: GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go.
func request(pod *v1.Pod, name v1.ResourceName) int64 {
	all := podresources.PodRequests(pod, podresources.PodResourcesOptions{ExcludeOverhead: true})
	amount, overhead := all[name], pod.Spec.Overhead[name]
	if amount.IsZero() {
		return 0
	}
	return admission.AmountOf(name, amount) + admission.AmountOf(name, overhead)
}

// message returns the message of the status and the Event, and the annotations of the Event.
func (m *Manager) message(t *Threshold, pod *v1.Pod,
	usage *PodUsage) (string, map[string]string) {
	name := t.Signal.resource()
	text := &strings.Builder{}
	fmt.Fprintf(text, "The node was low on resource: %v. ", name)
	if shown, o := m.shownThreshold(name); shown != nil {
		amount := shown.Amount.Of(o.Capacity)
		fmt.Fprintf(text, "Threshold quantity: %s, available: %s. ", amount.String(),
			quantity(o.Available, name))
	}
	if usage == nil {
		return text.String(), nil
	}
	annotations := map[string]string{"starved_resource": string(name)}
	if request, found := podLevelRequest(pod, name); found {
		used := quantity(usage.MemoryBytes, name)
		fmt.Fprintf(text, "Pod %s was using %s, request is %s, has larger consumption of %v. ", pod.Name,
			used, request.String(), name)
		annotations["offending_pod"], annotations["offending_pod_usage"] = pod.Name, used
	}
	var names, amounts []string
	for _, c := range usage.Containers {
		request, found := containerRequest(pod, c.Name, name)
		if name != v1.ResourceMemory || !found || request.CmpInt64(c.MemoryBytes) >= 0 {
			continue
		}
		used := quantity(c.MemoryBytes, name)
		fmt.Fprintf(text, "Container %s was using %s, request is %s, has larger consumption of %v. ",
			c.Name, used, request.String(), name)
		names, amounts = append(names, c.Name), append(amounts, used)
	}
	annotations["offending_containers"] = strings.Join(names, ",")
	annotations["offending_containers_usage"] = strings.Join(amounts, ",")
	return text.String(), annotations
}

// shownThreshold returns the threshold that the message names: the first one of a resource that is
// met for its grace period.
func (m *Manager) shownThreshold(name v1.ResourceName) (*Threshold, Observation) {
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		if o, isObserved := m.Observed[t.Signal]; isObserved && t.MetForGrace &&
			t.Signal.resource() == name {
			return t, o
		}
	}
	return nil, Observation{}
}

func quantity(n int64, name v1.ResourceName) string {
	format := resource.BinarySI
	if name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(n, format).String()
}

// podLevelRequest returns the request that the pod has itself, not its containers.
func podLevelRequest(pod *v1.Pod, name v1.ResourceName) (resource.Quantity, bool) {
	if name != v1.ResourceMemory || !podresources.IsPodLevelResourcesSet(pod) {
		return resource.Quantity{}, false
	}
	q, found := pod.Spec.Resources.Requests[name]
	return q, found
}

// containerRequest returns what a container requests, and false if the pod has no such container
// besides ephemeral ones.
func containerRequest(pod *v1.Pod, container string,
	name v1.ResourceName) (resource.Quantity, bool) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Requests[name], true
			}
		}
	}
	return resource.Quantity{}, false
}
