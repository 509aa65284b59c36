package apiserver

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// AddEphemeralContainer adds an ephemeral container to a pod through the subresource
// ephemeralcontainers, as kubectl debug does. Ephemeral containers can only be added, and not to
// mirror pods.
func (s *Server) AddEphemeralContainer(by, namespace, name string,
	c v1.EphemeralContainer) *world.Error {
	const call = "PatchObject"
	k := key{world.ResourcePods, namespace, name}
	old, exists := s.store.objects[k]
	if !exists {
		return world.Errorf(world.KindNotFound, call, "%s %q not found", k.resource, name)
	}
	if _, mirror := old.Pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return world.Errorf(world.KindInvalid, call,
			"static pods do not support ephemeral containers")
	}
	if slices.Contains(containerNames(&old.Pod.Spec), c.Name) {
		return world.Errorf(world.KindInvalid, call,
			"spec.ephemeralContainers: Duplicate value: %q", c.Name)
	}
	c.ImagePullPolicy, c.TerminationMessagePath = v1.PullIfNotPresent, v1.TerminationMessagePathDefault
	c.TerminationMessagePolicy = v1.TerminationMessageReadFile // the API's defaults
	o := clone(old)
	o.Pod.Spec.EphemeralContainers = append(o.Pod.Spec.EphemeralContainers, c)
	o.Pod.Generation++
	s.put(requester{name: by}, clone(o), false)
	return nil
}

func containerNames(spec *v1.PodSpec) []string {
	var names []string
	for i := range spec.InitContainers {
		names = append(names, spec.InitContainers[i].Name)
	}
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	for i := range spec.EphemeralContainers {
		names = append(names, spec.EphemeralContainers[i].Name)
	}
	return names
}
