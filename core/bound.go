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

// The pods that the API server has bound to this node.

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

// wantBound makes a pod of the API server known, or tells it how it is wanted now. One that is new
// is admitted first, once it is known what earlier agents have left.
func (a *Agent) wantBound(is *v1.Pod, now time.Time) {
	s := &a.state
	is = fromAPI(is)
	uid := string(is.UID)
	p := s.Pods[uid]
	over := status.Terminal(&is.Status)
	delete(a.shown, uid)
	switch {
	case p != nil && p.Spec != nil && (p.Gone || unchanged(p.Spec, is)):
		if p.Show(is) {
			a.touchPod(uid)
		}
	case p != nil && p.Spec == nil && p.Gone:
		// What came late of what an earlier agent asked for says nothing of there being room: it ends,
		// and then the pod is looked at again.
	case p != nil:
		p.Want(is, now)
		a.countChange(uid)
		a.touchPod(uid)
	case !a.looked(), over && is.DeletionTimestamp != nil:
		// It waits until that is known; or nothing is left of it but the object.
	case over, is.DeletionTimestamp != nil, is.Status.StartTime != nil, s.Begun.May(uid),
		a.nodeListed() && a.admitBound(is):
		a.addPod(pod.New(is, true, !s.Begun.May(uid), now))
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

// bindAll tells all pods of the API server, of which some have waited until it was known what
// earlier agents have left, or what the Node is.
func (a *Agent) bindAll(now time.Time) {
	for _, name := range a.byArrival(slices.Sorted(maps.Keys(a.state.Bound))) {
		a.bindAgain(name, now)
	}
}

// bindAgain looks once more at a pod of the API server of which there is no news.
func (a *Agent) bindAgain(name string, now time.Time) {
	a.wantBound(a.boundPod(name), now)
	a.touched.add(status.Key(a.state.Bound[name]))
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
// failed, for good: others make another one, elsewhere. News of it may be of before it was told so.
func (a *Agent) admitBound(is *v1.Pod) bool {
	uid := string(is.UID)
	if a.state.Rejected[uid].Phase == v1.PodFailed {
		return false
	}
	why := a.unrunnable(is)
	if why == (Refusal{}) {
		why = a.room(is, false, a.active(nil), true)
	}
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
