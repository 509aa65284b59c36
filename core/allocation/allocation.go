// Package allocation keeps the resources that are allocated to pods, and those that their
// containers were last given: what an in-place resize changes (KEP-1287).
//
// What a pod asks for in its spec is desired. It is allocated once it was admitted, and a resize
// once it fits. It is actuated once the runtime has taken it. The first and the last may differ for
// long: a resize waits for room, and a limit of memory for the container to use less.
//
// Facts: both for each pod, and how much of them is on the disk, in the kubelet's two checkpoint
// files. Plan: one read of each file when the agent starts, then one write at a time. Start reading
// at Store in store.go; Of and Resources.Apply convert between pods and what is kept of them.
package allocation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are those of one pod, in the kubelet's format (PodResourceInfo in
// pkg/kubelet/allocation/state/state.go).
type Resources struct {
	Containers map[string]v1.ResourceRequirements `json:"ContainerResources"`
	Pod        *v1.ResourceRequirements           `json:"PodLevelResources"`
}

// Of returns the resources that a pod asks for, for its containers whose resources can change.
func Of(pod *v1.Pod) Resources {
	r := Resources{Containers: make(map[string]v1.ResourceRequirements, len(pod.Spec.Containers)),
		Pod: pod.Spec.Resources}
	visitResizable(pod, func(c *v1.Container) { r.Containers[c.Name] = c.Resources })
	return r
}

// OfAmounts returns the resources of a pod whose containers have other amounts than the pod asks
// for, as far as amounts knows them.
func OfAmounts(pod *v1.Pod, amounts func(container string) (Amounts, bool)) Resources {
	r := Of(pod)
	for name, own := range r.Containers { //ordered: each by itself
		if has, known := amounts(name); known {
			r.Containers[name] = has.Over(own)
		}
	}
	return r
}

// visitResizable calls visit for each container whose resources can change: all but the ephemeral
// ones, which have none.
func visitResizable(pod *v1.Pod, visit func(*v1.Container)) {
	for i := range pod.Spec.InitContainers {
		visit(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i])
	}
}

// Apply returns the pod with these resources instead of those that it asks for: the pod itself if
// they are the same, or else a copy. A container without an entry keeps its own.
func (r *Resources) Apply(pod *v1.Pod) *v1.Pod {
	if r.areOf(pod) {
		return pod
	}
	changed := *pod
	spec := &changed.Spec
	spec.Containers = append([]v1.Container(nil), spec.Containers...)
	spec.InitContainers = append([]v1.Container(nil), spec.InitContainers...)
	spec.Resources = r.Pod
	visitResizable(&changed, func(c *v1.Container) {
		if own, known := r.Containers[c.Name]; known {
			c.Resources = own
		}
	})
	return &changed
}

func (r *Resources) areOf(pod *v1.Pod) bool {
	same := equality.Semantic.DeepEqual(r.Pod, pod.Spec.Resources)
	visitResizable(pod, func(c *v1.Container) {
		own, known := r.Containers[c.Name]
		same = same && (!known || equality.Semantic.DeepEqual(own, c.Resources))
	})
	return same
}

// Amounts are the resources of a container that can be changed while it runs. CPU is in milli-CPUs,
// memory in bytes. Zero is none.
type Amounts struct {
	CPURequest    int64 `json:"cpuRequest,omitempty"`
	CPULimit      int64 `json:"cpuLimit,omitempty"`
	MemoryRequest int64 `json:"memoryRequest,omitempty"`
	MemoryLimit   int64 `json:"memoryLimit,omitempty"`
}

// AmountsOf returns the amounts of a container of a pod. Without a limit of its own it has that of
// the pod as a whole (KEP-2837).
func AmountsOf(pod *v1.Pod, c *v1.Container) Amounts {
	a := amountsOf(&c.Resources)
	if all := pod.Spec.Resources; all != nil {
		if a.CPULimit == 0 {
			a.CPULimit = all.Limits.Cpu().MilliValue()
		}
		if a.MemoryLimit == 0 {
			a.MemoryLimit = all.Limits.Memory().Value()
		}
	}
	return a
}

func amountsOf(r *v1.ResourceRequirements) Amounts {
	return Amounts{
		CPURequest: r.Requests.Cpu().MilliValue(), CPULimit: r.Limits.Cpu().MilliValue(),
		MemoryRequest: r.Requests.Memory().Value(), MemoryLimit: r.Limits.Memory().Value(),
	}
}

// requirements returns the amounts as the API has them.
func (a *Amounts) requirements() v1.ResourceRequirements {
	list := func(milli, bytes int64) v1.ResourceList {
		l := v1.ResourceList{}
		if milli > 0 {
			l[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		}
		if bytes > 0 {
			l[v1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
		if len(l) == 0 {
			return nil
		}
		return l
	}
	return v1.ResourceRequirements{Requests: list(a.CPURequest, a.MemoryRequest),
		Limits: list(a.CPULimit, a.MemoryLimit)}
}

// Over returns the resources of a container with these amounts instead of its own. A container
// without a limit of its own gets none.
func (a *Amounts) Over(r v1.ResourceRequirements) v1.ResourceRequirements {
	own := a.requirements()
	replace := func(list, by v1.ResourceList, add bool) v1.ResourceList {
		replaced := v1.ResourceList{}
		for name, q := range list { //ordered: into a map
			replaced[name] = q
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			q, exists := by[name]
			if _, had := list[name]; exists && (had || add) {
				replaced[name] = q
			} else {
				delete(replaced, name)
			}
		}
		return replaced
	}
	r.Requests = replace(r.Requests, own.Requests, true)
	r.Limits = replace(r.Limits, own.Limits, false)
	return r
}

// Max returns amounts that bound both. Without a limit nothing is bounded.
func (a Amounts) Max(b Amounts) Amounts {
	limit := func(x, y int64) int64 {
		if x == 0 || y == 0 {
			return 0
		}
		return max(x, y)
	}
	return Amounts{
		CPURequest: max(a.CPURequest, b.CPURequest), CPULimit: limit(a.CPULimit, b.CPULimit),
		MemoryRequest: max(a.MemoryRequest, b.MemoryRequest),
		MemoryLimit:   limit(a.MemoryLimit, b.MemoryLimit),
	}
}

// The least amounts of CPU that the kernel has, in milli-CPUs: less has the same effect
// (MinShares and MinMilliCPULimit in pkg/kubelet/cm).
const (
	CPURequestMin = 2
	CPULimitMin   = 10
)

// Known returns the amounts that a runtime has reported, and others for those that it has not, or
// that are the least ones.
func (a Amounts) Known(others Amounts) Amounts {
	if a.CPURequest <= CPURequestMin {
		a.CPURequest = others.CPURequest
	}
	if a.CPULimit <= CPULimitMin {
		a.CPULimit = others.CPULimit
	}
	a.MemoryRequest = others.MemoryRequest // no runtime knows it
	if a.MemoryLimit == 0 {
		a.MemoryLimit = others.MemoryLimit
	}
	return a
}

// LowersMemory reports whether a container that has amounts a may use less memory with b.
func (a Amounts) LowersMemory(b Amounts) bool {
	return b.MemoryLimit != 0 && (a.MemoryLimit == 0 || b.MemoryLimit < a.MemoryLimit)
}

// MustRestart reports whether the policies of a container demand that it restarts for a change of
// its amounts.
func MustRestart(c *v1.Container, from, to Amounts) bool {
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy != v1.RestartContainer {
			continue
		}
		if p.ResourceName == v1.ResourceCPU &&
			(from.CPURequest != to.CPURequest || from.CPULimit != to.CPULimit) ||
			p.ResourceName == v1.ResourceMemory &&
				(from.MemoryRequest != to.MemoryRequest || from.MemoryLimit != to.MemoryLimit) {
			return true
		}
	}
	return false
}

// Recall returns the amounts of a running container after a restart of the agent: those that it was
// created with, and of the resources that may change while it runs, those that were recorded last.
func Recall(c *v1.Container, created, recorded Amounts) Amounts {
	a := recorded
	for _, p := range c.ResizePolicy {
		switch {
		case p.RestartPolicy != v1.RestartContainer:
		case p.ResourceName == v1.ResourceCPU:
			a.CPURequest, a.CPULimit = created.CPURequest, created.CPULimit
		case p.ResourceName == v1.ResourceMemory:
			a.MemoryRequest, a.MemoryLimit = created.MemoryRequest, created.MemoryLimit
		}
	}
	return a
}
