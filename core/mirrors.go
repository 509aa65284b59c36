package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
)

// The mirror pods of the static pods at the API server.

// mirrorNames returns the full names of the mirror pods that the API server has.
func (a *Agent) mirrorNames() []string {
	w := a.state.Objects.Watch(podsWatch)
	if w == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.Objects)), func(name string) bool {
		return w.Objects[name].Pod == nil || !mirror.IsMirror(w.Objects[name].Pod)
	})
}

// updateMirror handles a change of a static pod or of its mirror. The status of a static pod is
// written to its mirror while it has one, also while the pod terminates.
func (a *Agent) updateMirror(name string) {
	s := &a.state
	a.queue.enqueue(mirror.Key(name))
	object := a.apiPod(name)
	uid := a.mirroredUID(object)
	if oldUID := s.MirroredPodUIDs[name]; oldUID != "" && oldUID != uid {
		delete(s.MirroredPodUIDs, name)
		s.StatusWriter.Remove(oldUID)
	}
	if uid == "" || a.isSilent(uid) {
		return
	}
	if s.MirroredPodUIDs == nil {
		s.MirroredPodUIDs = map[string]string{}
	}
	s.MirroredPodUIDs[name] = uid
	s.StatusWriter.Observe(uid, object)
	if p := s.Pods[uid]; p != nil && p.Spec != nil && p.ObserveReported(&object.Status) {
		a.enqueuePod(uid)
	}
	a.queue.enqueue(statuswriter.Key(uid))
}

// mirroredUID returns the UID of the static pod whose mirror an object is: of the desired static
// pod, or of one that still terminates. Empty if the object is no mirror, or that of another
// version of the pod.
func (a *Agent) mirroredUID(object *v1.Pod) string {
	if object == nil || !mirror.IsMirror(object) {
		return ""
	}
	name, uid := object.Namespace+"/"+object.Name, mirror.StaticUID(object)
	if static := a.staticPod(name); static != nil && string(static.UID) == uid {
		return uid
	}
	if p := a.state.Pods[uid]; p != nil && p.FullName() == name && p.IsStatic() {
		return uid
	}
	return ""
}

// staticPod returns the static pod that has a full name; nil if there is none.
func (a *Agent) staticPod(name string) *v1.Pod {
	for _, p := range a.state.Manifests.Pods() {
		if p.Namespace+"/"+p.Name == name {
			return p
		}
	}
	return nil
}

// planMirror plans the mirror of a static pod. The mirror of a manifest that may not have been read
// yet stays; a manifest that has been read does not wait for the other sources. While an earlier
// static pod of the name terminates, its mirror stays, and the next pod has none (the kubelet's
// IsPodForMirrorPodTerminatingByFullName in pod_workers.go).
func (a *Agent) planMirror(name string) time.Time {
	static := a.staticPod(name)
	if static != nil && a.isSilent(string(static.UID)) {
		return time.Time{}
	}
	if !a.state.HasAPIServer || !a.hasListedAPIPods() || static == nil && !a.state.Manifests.Ready() ||
		a.mayTerminate(name, static) {
		return time.Time{}
	}
	if static != nil && a.hasEarlierStatus(a.state.Pods[string(static.UID)]) {
		static = nil // the mirror is replaced: first deleted, then created
	}
	return a.state.Mirrors.Plan(name, static, a.apiPod(name), a.nodeObject(), &a.effects)
}

// mayTerminate reports whether a pod of the name other than the desired static pod runs, or may
// run. Before the first relist an agent does not know what an earlier agent has left running, so a
// mirror that is not that of the desired pod may have its pod.
func (a *Agent) mayTerminate(name string, static *v1.Pod) bool {
	if a.state.Relist.AsOf.IsZero() {
		object := a.apiPod(name)
		return object != nil && mirror.IsMirror(object) &&
			(static == nil || string(static.UID) != mirror.StaticUID(object))
	}
	for _, uid := range a.podUIDsByName[name] {
		p := a.state.Pods[uid]
		isDesired := static != nil && string(static.UID) == uid && !p.NoLongerDesired
		if !isDesired && p.HoldsNameOrPorts() {
			return true
		}
	}
	return false
}

// hasEarlierStatus reports whether the mirror of a static pod has the status of an earlier pod of
// the same manifest, which the API server does not replace: a container of it has terminated, and
// the status of the pod that runs now was refused as invalid.
func (a *Agent) hasEarlierStatus(p *pod.Pod) bool {
	if p == nil || p.NoLongerDesired || pod.IsTerminal(p.Status.Phase) {
		return false
	}
	object := a.apiPod(p.FullName())
	if object == nil || !mirror.IsMirror(object) {
		return false
	}
	entry := a.state.StatusWriter.Entries[p.UID]
	return entry != nil && entry.Refused && hasTerminated(&object.Status)
}

// hasTerminated reports whether a container has terminated. A new mirror has none.
func hasTerminated(status *v1.PodStatus) bool {
	isTerminated := func(c v1.ContainerStatus) bool { return c.State.Terminated != nil }
	return slices.ContainsFunc(status.ContainerStatuses, isTerminated) ||
		slices.ContainsFunc(status.InitContainerStatuses, isTerminated)
}
