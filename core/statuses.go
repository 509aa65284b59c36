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

// What the API server is told of pods.

// planStatus tells the API server how a pod is; and once it knows that one that is to be deleted
// is over, what is left of that one here is removed.
func (a *Agent) planStatus(uid string) time.Time {
	s := &a.state
	p := s.Pods[uid]
	want := status.Want{Gone: p == nil && !s.Relist.AsOf.IsZero() ||
		p != nil && p.Cleared && a.isBound(p)}
	if p != nil && (p.Looking() || p.Gone && !a.isBound(p)) {
		// What is known only in part is not told; nor is the end of a static pod that nobody wants: its
		// mirror is to go, or is that of its next life by the time that it is told.
	} else if shown := a.report(uid); shown != nil && shown.Status.Phase != v1.PodUnknown {
		want.Status, want.Soon = &shown.Status, p != nil && p.Moving()
		if p != nil && a.isBound(p) && p.Untold() != "" { // the server keeps it, not a mirror
			ended := shown.Status
			ended.Phase, want.Status = p.Untold(), &ended
		}
	}
	if p != nil && a.outlived(p) {
		a.touched.add(mirror.Key(p.FullName()))
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
