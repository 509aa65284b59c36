package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
	"seedlet.dev/world"
)

// The pods that the API server has bound to this node, and the mirrors there of the static ones.

// boundPods are what the agent watches for its pods.
var boundPods = world.Watched{Resource: world.ResourcePods}

// watcher is the user of what the agent itself watches.
const watcher = "agent"

// watch begins to watch what the agent itself needs of the API server.
func (a *Agent) watch() {
	if a.state.API {
		a.state.Objects.Want(boundPods, watcher, &a.out)
		a.state.Objects.Want(a.nodeWatched(), watcher, &a.out)
		a.touchNode()
		a.state.Objects.Want(services, watcher, &a.out)
	}
}

// watched takes what a watch tells.
func (a *Agent) watched(body any, now time.Time) {
	listed, placed := a.boundSeen(), a.nodeListed()
	w, news := a.state.Objects.Take(body, now)
	if w == nil {
		return
	}
	switch w.About.Resource {
	case world.ResourcePods:
		_, isList := body.(*world.ObjectsListed)
		if isList {
			a.hurry()
		}
		for _, name := range a.byArrival(news) {
			a.bound(name, now)
		}
		if !listed && a.boundSeen() {
			a.reconcile(now) // what nobody wants is known only now
		}
	case world.ResourceNodes:
		a.nodeSeen()
		if !placed && a.nodeListed() {
			a.bindAll(now) // some have waited for that
		}
		a.retryAdmission() // it may be a place now for what it was none for
		for _, p := range a.state.Manifests.Pods() {
			a.touched.add(mirror.Key(p.Namespace + "/" + p.Name))
		}
	default:
		a.touchUsers(w, body)
	}
}

// boundSeen says whether the pods of the API server have been seen, if there is one.
func (a *Agent) boundSeen() bool {
	w := a.state.Objects.Watch(boundPods)
	return !a.state.API || w != nil && w.Listed
}

// boundPod is the pod of the API server with a full name; nil if there is none.
func (a *Agent) boundPod(name string) *v1.Pod {
	if w := a.state.Objects.Watch(boundPods); w != nil {
		return w.Objects[name].Pod
	}
	return nil
}

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

// hurry has everything written that waits because the API server was away.
func (a *Agent) hurry() {
	for _, uid := range slices.Sorted(maps.Keys(a.state.Status.Entries)) {
		a.state.Status.Hurry(uid)
		a.touched.add(status.Key(uid))
	}
	for _, name := range slices.Sorted(maps.Keys(a.state.Mirrors.Writes)) {
		a.state.Mirrors.Hurry(name)
		a.touched.add(mirror.Key(name))
	}
}

// bound takes that there is news of the pod that the API server has, or had, of a name.
func (a *Agent) bound(name string, now time.Time) {
	s := &a.state
	is, was := a.boundPod(name), s.Bound[name]
	a.mirrored(name)
	if is != nil && mirror.Is(is) {
		is = nil
	}
	if was != "" && (is == nil || string(is.UID) != was) {
		delete(s.Bound, name)
		a.unbind(was, now)
	}
	if is == nil {
		return
	}
	if s.Bound == nil {
		s.Bound = map[string]string{}
	}
	uid := string(is.UID)
	s.Bound[name] = uid
	s.Status.Observe(uid, is)
	a.wantBound(is, now)
	a.countWatched(is, now)
	a.touched.add(status.Key(uid)) // after the pod, which changes what there is to tell
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

// isBound says whether the API server has bound a pod to this node.
func (a *Agent) isBound(p *pod.Pod) bool { return a.state.Bound[p.FullName()] == p.UID }

// unbind takes that a pod is not there any more.
func (a *Agent) unbind(uid string, now time.Time) {
	a.state.Status.Lose(uid)
	delete(a.state.Rejected, uid)
	if p := a.state.Pods[uid]; p != nil && !p.Gone {
		p.Unwant(now)
		a.touchPod(uid)
	}
}

// wantBound makes a pod of the API server known, or tells it how it is wanted now. Before the
// first relist it is not known what runs, and so not what there is room for.
func (a *Agent) wantBound(is *v1.Pod, now time.Time) {
	s := &a.state
	is = fromAPI(is)
	uid := string(is.UID)
	p, listed := s.Pods[uid], !s.Relist.AsOf.IsZero()
	over := status.Terminal(&is.Status)
	delete(a.shown, uid)
	switch {
	case p != nil && p.Spec != nil && (p.Gone || unchanged(p.Spec, is)):
		if p.Show(is) {
			a.touchPod(uid)
		}
	case p != nil:
		p.Want(is, now)
		a.countChange(uid)
		a.touchPod(uid)
	case !listed, over && is.DeletionTimestamp != nil:
		// It waits for the relist; or nothing is left of it but the object.
	case over, is.DeletionTimestamp != nil, is.Status.StartTime != nil,
		a.nodeListed() && a.admitBound(is):
		a.addPod(pod.New(is, true, now))
		a.touchPod(uid)
	}
}

// fromAPI is a pod that says where it comes from, whatever it said before, as the runtime and the
// pod itself are told.
func fromAPI(is *v1.Pod) *v1.Pod {
	sourced := *is
	sourced.Annotations = maps.Clone(is.Annotations)
	if sourced.Annotations == nil {
		sourced.Annotations = map[string]string{}
	}
	sourced.Annotations[manifest.ConfigSourceAnnotation] = "api"
	return &sourced
}

// byArrival sorts names of pods of the API server: first those that are known, or have been
// admitted by an earlier agent, since they have their room; then the others, the oldest first.
func (a *Agent) byArrival(names []string) []string {
	isNew := func(p *v1.Pod) int {
		if p == nil || p.Status.StartTime != nil || a.known(string(p.UID)) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(names, func(x, y string) int {
		p, q := a.boundPod(x), a.boundPod(y)
		if order := isNew(p) - isNew(q); order != 0 || isNew(p) == 0 {
			return order
		}
		return p.CreationTimestamp.Time.Compare(q.CreationTimestamp.Time)
	})
	return names
}

// bindAll tells all pods of the API server that have waited for the first relist, or for the Node.
func (a *Agent) bindAll(now time.Time) {
	for _, name := range a.byArrival(slices.Sorted(maps.Keys(a.state.Bound))) {
		a.wantBound(a.boundPod(name), now)
		a.touched.add(status.Key(a.state.Bound[name]))
	}
}

// unchanged says whether two states of one object ask for the same.
func unchanged(x, y *v1.Pod) bool {
	return x.UID == y.UID && x.DeletionTimestamp.Equal(y.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(x.DeletionGracePeriodSeconds, y.DeletionGracePeriodSeconds) &&
		status.Terminal(&x.Status) == status.Terminal(&y.Status) &&
		maps.Equal(x.Labels, y.Labels) && maps.Equal(x.Annotations, y.Annotations) &&
		(x.Generation == y.Generation && x.Generation != 0 ||
			equality.Semantic.DeepEqual(x.Spec, y.Spec))
}

// admitBound says whether there is room for a pod that is new here. One that is refused has
// failed, for good: others make another one, elsewhere.
func (a *Agent) admitBound(is *v1.Pod) bool {
	why := a.unrunnable(is)
	if why == (Refusal{}) {
		why = a.room(is, false, a.active(nil), true)
	}
	uid := string(is.UID)
	if why == (Refusal{}) {
		delete(a.state.Rejected, uid)
		return true
	}
	if a.state.Rejected[uid] != why {
		a.tellRefused(is, why)
	}
	if a.state.Rejected == nil {
		a.state.Rejected = map[string]Refusal{}
	}
	a.state.Rejected[uid] = why
	return false
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
	return a.state.Mirrors.Plan(name, static, a.boundPod(name), a.ownNode(), &a.out)
}

// planStatus tells the API server how a pod is; and once it knows that one that is to be deleted
// is over, what is left of that one here is removed.
func (a *Agent) planStatus(uid string) time.Time {
	s := &a.state
	p := s.Pods[uid]
	want := status.Want{Gone: p == nil && !s.Relist.AsOf.IsZero()}
	if p != nil && p.Looking() {
		// What is known only in part is not told.
	} else if shown := a.report(uid); shown != nil && shown.Status.Phase != v1.PodUnknown {
		want.Status = &shown.Status
	}
	wake := s.Status.Plan(uid, want, &a.out)
	if p != nil && !p.Gone && p.Stage == pod.Terminated && p.Spec.DeletionTimestamp != nil &&
		s.Status.Acknowledged(uid) {
		p.Unwant(s.Last)
		a.touchPod(uid)
	}
	return wake
}

// report is a pod as the API server is told of it; nil if it is none of the agent's.
func (a *Agent) report(uid string) *v1.Pod {
	if p := a.state.Pods[uid]; p != nil {
		return a.show(uid)
	}
	why, is := a.state.Rejected[uid]
	e := a.state.Status.Entries[uid]
	if !is || e == nil {
		return nil
	}
	return refusedPod(e.Stored, why)
}

// refusedPod is a pod that is not run, as the API shows it.
func refusedPod(spec *v1.Pod, why Refusal) *v1.Pod {
	shown := &v1.Pod{TypeMeta: spec.TypeMeta, ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}
	shown.Status.Phase, shown.Status.QOSClass = why.Phase, spec.Status.QOSClass
	shown.Status.Reason, shown.Status.Message = why.Reason, why.Message
	return shown
}
