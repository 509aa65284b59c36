package kubelet

import (
	"encoding/json"
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// Resizes (pkg/kubelet/allocation, doPodResizeAction in pkg/kubelet/kuberuntime): what a pod asks
// for is allocated if it fits, and then the pod's cgroup grows, its containers get it, and the
// cgroup shrinks. A kubelet that ends meanwhile has that in its two checkpoints.

// resources are those of the containers of a pod, by name.
type resources map[string]v1.ResourceRequirements

// resizable returns the resources of the containers that can be resized.
func resizable(p *v1.Pod) resources {
	all := resources{}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			if isSidecar(&c) || !isInit(&p.Spec, &c) {
				all[c.Name] = c.Resources
			}
		}
	}
	return all
}

// with returns a pod with resources instead of those that it asks for.
func (r resources) with(p *v1.Pod) *v1.Pod {
	if equality.Semantic.DeepEqual(resizable(p), r) {
		return p
	}
	p = p.DeepCopy()
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if own, exists := r[list[i].Name]; exists {
				list[i].Resources = own
			}
		}
	}
	return p
}

// recordedResources returns what a checkpoint has of a pod; nil if nothing.
func (k *Kubelet) recordedResources(file string, p *v1.Pod) resources {
	var c checkpoint
	var content struct {
		Entries map[string]resourcesOfPod `json:"entries"`
	}
	data, _ := k.opts.Disk.Read(path.Join(k.opts.RootDir, file))
	if json.Unmarshal(data, &c) != nil || json.Unmarshal([]byte(c.Data), &content) != nil {
		return nil
	}
	recorded := content.Entries[string(p.UID)].ContainerResources
	if recorded == nil {
		return nil
	}
	all := resizable(p)
	for name := range all { //ordered: each by itself
		if own, exists := recorded[name]; exists {
			all[name] = own
		}
	}
	return all
}

// allocate decides about what a pod asks for, and has the kubelet use what is allocated to it.
func (k *Kubelet) allocate(p *pod, object *v1.Pod) {
	wanted := resizable(object)
	if p.allocated == nil {
		if p.allocated = k.recordedResources("allocated_pods_state", object); p.allocated == nil {
			p.allocated = wanted
		}
		if p.actuated = k.recordedResources("actuated_pods_state", object); p.actuated == nil {
			p.actuated = p.allocated
		}
		p.resizes = !equality.Semantic.DeepEqual(p.allocated, p.actuated)
	}
	p.pending, p.pendingMessage = "", ""
	if !equality.Semantic.DeepEqual(p.allocated, wanted) {
		if p.pending, p.pendingMessage = k.refusal(p, object); p.pending == "" {
			p.allocated, p.resizes = wanted, true
			delete(p.done, "grown")
		}
	}
	p.object = p.allocated.with(object)
}

// refusal returns why what a pod asks for is not allocated: the reason of its condition, with a
// message; empty if it is (canResizePod in pkg/kubelet/allocation).
func (k *Kubelet) refusal(p *pod, object *v1.Pod) (reason, message string) {
	options := podresources.PodResourcesOptions{}
	wanted := podresources.PodRequests(object, options)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		most := int64(k.opts.CPUs) * 1000
		if name == v1.ResourceMemory {
			most = k.opts.MemoryBytes * 1000
		}
		amount := wanted[name]
		if amount.MilliValue() > most {
			return v1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s", name)
		}
		sum := amount.MilliValue()
		for _, other := range k.pods { //ordered: a sum
			if other != p && !other.endedBefore && other.object.DeletionTimestamp == nil {
				has := podresources.PodRequests(other.object, options)[name]
				sum += has.MilliValue()
			}
		}
		if sum > most {
			return v1.PodReasonDeferred, "Node didn't have enough resource: " + string(name)
		}
	}
	return "", ""
}

// resizeStep returns what gives a pod what is allocated to it; nil if it has it.
func (k *Kubelet) resizeStep(p *pod, s *state) *step {
	if !p.resizes {
		return nil
	}
	spec := &p.object.Spec
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			now, _ := s.newest(c.Name)
			_, isResizable := p.allocated[c.Name]
			if !isResizable || !isRunning(now) ||
				equality.Semantic.DeepEqual(p.actuated[c.Name], p.allocated[c.Name]) {
				continue
			}
			if w := p.once(k.growStep(p)); w != nil {
				return w
			}
			return k.updateStep(p, c, now)
		}
	}
	w := k.cgroupStep(p)
	w.key = "resized"
	return w
}

func (k *Kubelet) updateStep(p *pod, c *v1.Container, now *runtime.Container) *step {
	return &step{"update " + c.Name, world.PortCRI, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: now.ID, Linux: k.containerResources(p.object, c)}}
}

// growStep has the cgroup of a pod allow what its containers have and what they are to get.
func (k *Kubelet) growStep(p *pod) *step {
	w := k.cgroupStep(p)
	set := w.body.(*world.SetCgroup)
	had := podResources(p.actuated.with(p.object))
	most := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	set.CPUShares = max(set.CPUShares, uint64(had.CpuShares))
	set.CPUQuota = most(set.CPUQuota, had.CpuQuota)
	set.MemoryBytes = most(set.MemoryBytes, had.MemoryLimitInBytes)
	w.key = "grown"
	return w
}

// noteResized notes a step of a resize.
func (p *pod) noteResized(kind, container string) {
	switch kind {
	case "update", "create":
		actuated := resources{}
		for name, r := range p.actuated { //ordered: into a map
			actuated[name] = r
		}
		actuated[container] = p.allocated[container]
		p.actuated = actuated
	case "resized":
		p.actuated, p.resizes = p.allocated, false
	}
}
