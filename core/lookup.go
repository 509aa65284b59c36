package core

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
	"seedlet.dev/world"
)

// What the clients of the HTTP API mean by names.

// meant answers what in the runtime is meant by the names of a pod and a container.
func (a *Agent) meant(r *world.ContainerRequest) *world.ContainerAnswer {
	answer := &world.ContainerAnswer{Request: r.Request}
	spec, p := a.find(r.Namespace, r.Pod, r.UID)
	if spec == nil {
		answer.Err = world.Errorf(world.KindNotFound, "ContainerRequest",
			"pod %q does not exist", r.Pod)
		return answer
	}
	if r.Container != "" {
		c := pod.FindContainer(spec, r.Container)
		if c == nil && p != nil {
			c = pod.FindContainer(p.Spec, r.Container) // as it was before
		}
		if c == nil {
			answer.Err = world.Errorf(world.KindNotFound, "ContainerRequest",
				"container %q not found in pod %q", r.Container, r.Pod)
			return answer
		}
		answer.TTY = c.TTY
	}
	answer.UID = string(spec.UID)
	if p == nil {
		answer.Phase = string(a.phaseBefore(spec))
		return answer
	}
	shown := a.show(p.UID)
	answer.Phase, answer.SandboxID = string(shown.Status.Phase), p.SandboxID()
	if r.Container != "" {
		answer.ContainerID = p.ContainerID(r.Container)
		answer.Status = statusOf(shown, r.Container)
	}
	return answer
}

// find is the pod that is called so, and what the agent knows of it; nil if there is none, or if
// nothing has been begun for it yet. A name means the pod that is wanted under it now, whatever is
// left of one before it; else one that is being ended. With a UID, its own or that of its mirror,
// only that pod is meant.
func (a *Agent) find(namespace, name, uid string) (*v1.Pod, *pod.Pod) {
	full := namespace + "/" + name
	if is := a.boundPod(full); is != nil && uid == string(is.UID) && mirror.Is(is) {
		uid = mirror.UID(is)
	}
	var found *v1.Pod
	var known *pod.Pod
	for _, spec := range a.wanted(namespace, name) {
		p := a.called(full, string(spec.UID))
		if (uid == "" || uid == string(spec.UID)) && (found == nil || rank(p) > rank(known)) {
			found, known = spec, p
		}
	}
	if found != nil {
		return found, known
	}
	for _, old := range a.names[full] {
		p := a.called(full, old)
		if p != nil && (uid == "" || uid == old) && (known == nil || rank(p) > rank(known) ||
			rank(p) == rank(known) && p.Seen.After(known.Seen)) {
			found, known = p.Spec, p
		}
	}
	return found, known
}

// wanted are the pods that are to be run under a name: that of the API server, and the static ones.
// More than one run one after the other.
func (a *Agent) wanted(namespace, name string) []*v1.Pod {
	var wanted []*v1.Pod
	if is := a.boundPod(namespace + "/" + name); is != nil && !mirror.Is(is) {
		wanted = append(wanted, is)
	}
	for _, spec := range a.state.Manifests.Pods() {
		if spec.Name == name && spec.Namespace == namespace {
			wanted = append(wanted, spec)
		}
	}
	return wanted
}

// called is what is known of a pod; nil if it has another name, or only the runtime knows it.
func (a *Agent) called(full, uid string) *pod.Pod {
	if p := a.state.Pods[uid]; p != nil && p.Spec != nil && p.FullName() == full {
		return p
	}
	return nil
}

// rank orders pods of one name: before others comes the one that has the name now.
func rank(p *pod.Pod) int {
	switch {
	case p == nil:
		return 0
	case p.Holds():
		return 2
	}
	return 1
}

// phaseBefore is the phase of a pod for which nothing has been begun, as it is shown.
func (a *Agent) phaseBefore(spec *v1.Pod) v1.PodPhase {
	if why, is := a.state.Refused[string(spec.UID)]; is {
		return why.Phase
	}
	if _, is := a.state.Rejected[string(spec.UID)]; is {
		return v1.PodPending
	}
	if status.Terminal(&spec.Status) {
		return spec.Status.Phase
	}
	return v1.PodUnknown
}

// statusOf is what is shown of a container; nil if nothing is.
func statusOf(shown *v1.Pod, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{shown.Status.InitContainerStatuses,
		shown.Status.ContainerStatuses, shown.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// running is the pods of which anything runs, by namespace, name and UID.
func (a *Agent) running() []*v1.Pod {
	pods := []*v1.Pod{}
	for _, uid := range a.uids {
		if is := a.state.Pods[uid].Running(); is != nil {
			pods = append(pods, is)
		}
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return pods
}
