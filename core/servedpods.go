package core

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/podstatus"
)

// listServedPods returns the pods as the HTTP API serves them, sorted by namespace, name and UID. A
// pod is left out if nothing is left of it but objects that the runtime fails to remove.
func (a *Agent) listServedPods() []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(a.podUIDs))
	for _, uid := range a.podUIDs {
		if a.state.Pods[uid].OnlyRuntimeRecordsLeft {
			continue
		}
		if served := a.servedPod(uid); served != nil {
			pods = append(pods, served)
		}
	}
	for _, spec := range a.state.Manifests.Pods() {
		if a.isKnownPod(string(spec.UID)) || a.isSetAside(string(spec.UID)) {
			continue
		}
		rejection, isRejected := a.state.StaticRejections[string(spec.UID)]
		if !isRejected {
			rejection.Phase = v1.PodUnknown // not decided yet
		}
		pods = append(pods, rejectedPod(spec, rejection))
	}
	for _, name := range slices.Sorted(maps.Keys(a.state.APIPodUIDs)) {
		uid := a.state.APIPodUIDs[name]
		object := a.apiPod(name)
		rejection, isRejected := a.state.APIRejections[uid]
		if object != nil && isRejected && !a.isKnownPod(uid) {
			// Before the rejection is written, another agent may still admit the pod.
			rejection.Phase = v1.PodPending
			pods = append(pods, rejectedPod(object, rejection))
		}
	}
	for _, uid := range a.setAsideUIDs() {
		if e := a.state.SetAside[uid]; e.Spec != nil && !a.isKnownPod(uid) {
			pods = append(pods, servedSetAside(e.Spec, e))
		}
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return pods
}

// servedPod returns a pod as the HTTP API serves it; nil if it is not served. The result is cached
// until the pod is planned: every change of what is served leads to a plan.
func (a *Agent) servedPod(uid string) *v1.Pod {
	served, isCached := a.servedPods[uid]
	if !isCached {
		previous := a.workOn(uid)
		served = podstatus.ServedPod(a.state.Pods[uid], &a.state.Node, a.state.Runtime.Name)
		if a.servedPods == nil {
			a.servedPods = map[string]*v1.Pod{}
		}
		a.servedPods[uid] = served
		a.workOn(previous)
	}
	return served
}

// servedRunningPods returns the pods that have anything running, sorted by namespace, name and UID.
func (a *Agent) servedRunningPods() []*v1.Pod {
	pods := []*v1.Pod{}
	for _, uid := range a.podUIDs {
		if running := a.state.Pods[uid].RunningPod(); running != nil {
			pods = append(pods, running)
		}
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return pods
}

// rejectedPod returns a pod that is not run, with the status that is served.
func rejectedPod(spec *v1.Pod, rejection Rejection) *v1.Pod {
	served := &v1.Pod{TypeMeta: spec.TypeMeta, ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}
	served.Status.Phase, served.Status.QOSClass = rejection.Phase, spec.Status.QOSClass
	served.Status.ObservedGeneration = spec.Generation
	served.Status.Reason, served.Status.Message = rejection.Reason, rejection.Message
	podstatus.Limit(served)
	return served
}
