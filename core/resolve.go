package core

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/world"
)

// Names of pods and containers in requests of the HTTP API, and the pods that they resolve to.

// resolveContainer returns the pod, sandbox and container of the runtime that a request names.
func (a *Agent) resolveContainer(r *world.ContainerRequest) *world.ContainerAnswer {
	answer := &world.ContainerAnswer{Request: r.Request}
	spec, p := a.findPod(r.Namespace, r.Pod, r.UID)
	if spec == nil {
		answer.Err = world.Errorf(world.KindNotFound, "ContainerRequest",
			"pod %q does not exist", r.Pod)
		return answer
	}
	answer.UID = string(spec.UID)
	if r.Container != "" {
		c := criconfig.FindContainer(spec, r.Container)
		if c == nil && p != nil {
			c = criconfig.FindContainer(p.Spec, r.Container) // the spec before the change
		}
		if c == nil {
			answer.Err = world.Errorf(world.KindNotFound, "ContainerRequest",
				"container %q not found in pod %q", r.Container, r.Pod)
			return answer
		}
		answer.TTY = c.TTY
	}
	if p == nil {
		answer.Phase = string(a.unstartedPhase(spec))
		return answer
	}
	served := a.servedPod(p.UID)
	answer.Phase, answer.SandboxID = string(served.Status.Phase), p.SandboxID()
	if r.Container != "" {
		answer.ContainerID = p.ContainerID(r.Container)
		answer.Status = servedContainerStatus(served, r.Container)
	}
	return answer
}

// findPod returns the spec of the pod that has a name, and the known pod; the latter is nil if the
// pod has not been started. The name resolves to the desired pod of that name, even while an
// earlier pod of the name still runs; if there is none, to a pod that is terminating. A UID, of the
// pod or of its mirror, selects that pod only.
func (a *Agent) findPod(namespace, name, uid string) (*v1.Pod, *pod.Pod) {
	full := namespace + "/" + name
	object := a.apiPod(full)
	if object != nil && uid == string(object.UID) && mirror.IsMirror(object) {
		uid = mirror.StaticUID(object)
	}
	var found *v1.Pod
	var known *pod.Pod
	for _, spec := range a.desiredPodsNamed(namespace, name) {
		p := a.podNamed(full, string(spec.UID))
		if (uid == "" || uid == string(spec.UID)) && (found == nil ||
			namePrecedence(p) > namePrecedence(known)) {
			found, known = spec, p
		}
	}
	if found != nil {
		return found, known
	}
	for _, old := range a.podUIDsByName[full] {
		p := a.podNamed(full, old)
		if p != nil && (uid == "" || uid == old) && (known == nil ||
			namePrecedence(p) > namePrecedence(known) ||
			namePrecedence(p) == namePrecedence(known) && p.StartTime.After(known.StartTime)) {
			found, known = p.Spec, p
		}
	}
	return found, known
}

// desiredPodsNamed returns the desired pods of a name: the one of the API server, and the static
// ones. If there are several, they run one after the other.
func (a *Agent) desiredPodsNamed(namespace, name string) []*v1.Pod {
	var desired []*v1.Pod
	if object := a.apiPod(namespace + "/" + name); object != nil && !mirror.IsMirror(object) {
		desired = append(desired, object)
	}
	for _, spec := range a.state.Manifests.Pods() {
		if spec.Name == name && spec.Namespace == namespace {
			desired = append(desired, spec)
		}
	}
	return desired
}

// podNamed returns the known pod with a UID; nil if it has another name or only the runtime has it.
func (a *Agent) podNamed(full, uid string) *pod.Pod {
	if p := a.state.Pods[uid]; p != nil && p.Spec != nil && p.FullName() == full {
		return p
	}
	return nil
}

// namePrecedence orders pods of one name. The pod that holds the name has the highest value.
func namePrecedence(p *pod.Pod) int {
	switch {
	case p == nil:
		return 0
	case p.HoldsNameOrPorts():
		return 2
	}
	return 1
}

// unstartedPhase returns the phase that is served for a pod that has not been started.
func (a *Agent) unstartedPhase(spec *v1.Pod) v1.PodPhase {
	if rejection, isRejected := a.state.StaticRejections[string(spec.UID)]; isRejected {
		return rejection.Phase
	}
	if _, isRejected := a.state.APIRejections[string(spec.UID)]; isRejected {
		return v1.PodPending
	}
	if statuswriter.IsTerminal(&spec.Status) {
		return spec.Status.Phase
	}
	return v1.PodUnknown
}

// servedContainerStatus returns the served status of a container; nil if it has none.
func servedContainerStatus(served *v1.Pod, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{served.Status.InitContainerStatuses,
		served.Status.ContainerStatuses, served.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
