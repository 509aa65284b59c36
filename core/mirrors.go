package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
)

// The mirrors at the API server of the static pods.

// mirrors are the full names of the mirrors that the API server has.
func (a *Agent) mirrors() []string {
	w := a.state.Objects.Watch(boundPods)
	if w == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.Objects)), func(name string) bool {
		return w.Objects[name].Pod == nil || !mirror.Is(w.Objects[name].Pod)
	})
}

// mirrored says where the status of a static pod goes: to its mirror, if there is one.
func (a *Agent) mirrored(name string) {
	s := &a.state
	a.touched.add(mirror.Key(name))
	is, static := a.boundPod(name), a.staticPod(name)
	if is != nil && (static == nil || !mirror.Is(is)) {
		is = nil
	}
	if was := s.Mirrored[name]; was != "" && (is == nil || string(static.UID) != was) {
		delete(s.Mirrored, name)
		s.Status.Lose(was)
	}
	if is == nil {
		return
	}
	if s.Mirrored == nil {
		s.Mirrored = map[string]string{}
	}
	s.Mirrored[name] = string(static.UID)
	s.Status.Observe(string(static.UID), is)
	a.touched.add(status.Key(string(static.UID)))
}

// staticPod is the pod of the manifests with a full name; nil if there is none.
func (a *Agent) staticPod(name string) *v1.Pod {
	for _, p := range a.state.Manifests.Pods() {
		if p.Namespace+"/"+p.Name == name {
			return p
		}
	}
	return nil
}

// planMirror sees to the mirror of a static pod. What is there of a manifest that has not been
// read yet stays; those that have been read do not wait for another source.
func (a *Agent) planMirror(name string) time.Time {
	static := a.staticPod(name)
	if !a.state.API || !a.boundSeen() || static == nil && !a.state.Manifests.Ready() {
		return time.Time{}
	}
	if static != nil && a.outlived(a.state.Pods[string(static.UID)]) {
		static = nil // another mirror is made when this one has gone
	}
	return a.state.Mirrors.Plan(name, static, a.boundPod(name), a.ownNode(), &a.out)
}

// outlived says whether the mirror is of an earlier life of a static pod: what was told of the end
// of that is for good, but the pod runs.
func (a *Agent) outlived(p *pod.Pod) bool {
	if p == nil || p.Gone || p.Phase != v1.PodRunning {
		return false
	}
	object := a.boundPod(p.FullName())
	return object != nil && mirror.Is(object) && status.Terminal(&object.Status)
}
