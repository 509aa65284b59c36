package apiserver

import (
	"encoding/json"
	"maps"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// ResizePod changes the requests and limits of a pod and its containers through the subresource
// resize, by a patch that has nothing else. The QoS class of a pod stays, and so do limits of
// memory that a container has.
func (s *Server) ResizePod(by, namespace, name string, patch []byte) *world.Error {
	const call = "PatchObject"
	k := key{world.ResourcePods, namespace, name}
	old, exists := s.store.objects[k]
	if !exists {
		return world.Errorf(world.KindNotFound, call, "%s %q not found", k.resource, name)
	}
	if _, mirror := old.Pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return world.Errorf(world.KindInvalid, call, "static pods cannot be resized")
	}
	var wanted v1.Pod
	if err := json.Unmarshal(patch, &wanted); err != nil {
		return world.Errorf(world.KindInvalid, call, "the patch: %v", err)
	}
	o := clone(old)
	replaceResources(o.Pod.Spec.InitContainers, wanted.Spec.InitContainers)
	replaceResources(o.Pod.Spec.Containers, wanted.Spec.Containers)
	if w, own := wanted.Spec.Resources, o.Pod.Spec.Resources; w != nil && own != nil {
		o.Pod.Spec.Resources = &v1.ResourceRequirements{Requests: replaced(own.Requests, w.Requests),
			Limits: replaced(own.Limits, w.Limits)}
		if name := beyondLimit(o.Pod.Spec.Resources); name != "" {
			return world.Errorf(world.KindInvalid, call,
				"spec.resources.requests: must be less than or equal to %s limit", name)
		}
	}
	for _, list := range [][]v1.Container{o.Pod.Spec.InitContainers, o.Pod.Spec.Containers} {
		for i := range list {
			if name := beyondLimit(&list[i].Resources); name != "" {
				return world.Errorf(world.KindInvalid, call,
					"container %s: resources.requests: must be less than or equal to %s limit", list[i].Name,
					name)
			}
		}
	}
	if name := beyondPod(o.Pod); name != "" {
		return world.Errorf(world.KindInvalid, call,
			"spec.resources: must be greater than or equal to aggregate container %s", name)
	}
	if qosClass(o.Pod) != qosClass(old.Pod) {
		return world.Errorf(world.KindInvalid, call, "spec: Pod QOS Class may not change as a result of "+
			"resizing")
	}
	o.Pod.Generation++
	s.put(requester{name: by}, clone(o), false)
	return nil
}

// replaceResources replaces the requests and limits of containers by those of others of the same
// names.
func replaceResources(list, by []v1.Container) {
	for i := range by {
		w := &by[i]
		for j := range list {
			if c := &list[j]; c.Name == w.Name {
				c.Resources.Requests = replaced(c.Resources.Requests, w.Resources.Requests)
				c.Resources.Limits = replaced(c.Resources.Limits, w.Resources.Limits)
			}
		}
	}
}

// beyondLimit returns a resource of which more is requested than the limit; empty if there is none.
func beyondLimit(r *v1.ResourceRequirements) v1.ResourceName {
	for name, limit := range r.Limits { //ordered: whether there is one
		if request := r.Requests[name]; request.Cmp(limit) > 0 {
			return name
		}
	}
	return ""
}

// beyondPod returns the resource of which the containers of a pod have more than the pod as a whole
// has; empty if there is none, or the pod as a whole has no resources.
func beyondPod(pod *v1.Pod) v1.ResourceName {
	all := pod.Spec.Resources
	if all == nil {
		return ""
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		requested, limit := all.Requests[name], all.Limits[name]
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				r := &list[i].Resources
				requested.Sub(r.Requests[name])
				if own := r.Limits[name]; !limit.IsZero() && own.Cmp(limit) > 0 {
					return name
				}
			}
		}
		if _, exists := all.Requests[name]; exists && requested.Sign() < 0 {
			return name
		}
	}
	return ""
}

func replaced(list, by v1.ResourceList) v1.ResourceList {
	if len(by) == 0 {
		return list
	}
	list = maps.Clone(list)
	if list == nil {
		list = v1.ResourceList{}
	}
	maps.Copy(list, by)
	return list
}
