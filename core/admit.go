package core

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/pod"
)

// admit says which of the pods that the sources want are run, and why each of the others is
// refused, by UID. What has been admitted, or has something running, stays: a manifest that is
// added never ends a pod that is there, nor does a restart of the agent. So while it is not known
// what runs, and not all can be, nothing new is admitted.
func (a *Agent) admit() ([]*v1.Pod, map[string]string) {
	var run, late []*v1.Pod
	refused := map[string]string{}
	places := a.state.PodsMax
	for _, p := range a.state.Manifests.Pods() {
		if missing := pod.Unsupported(p); len(missing) > 0 {
			refused[string(p.UID)] = "not supported yet: " + strings.Join(missing, ", ")
			continue
		}
		known := a.state.Pods[string(p.UID)]
		if known == nil || known.Spec == nil && !known.Holds() {
			late = append(late, p)
			continue
		}
		run = append(run, p)
		if known.Stage != pod.Terminated {
			places-- // pods that have run to their end take no place
		}
	}
	if len(late) > places && a.state.Relist.AsOf.IsZero() {
		return run, refused
	}
	for _, p := range late {
		if places <= 0 {
			refused[string(p.UID)] = fmt.Sprintf("more than maxPods (%d)", a.state.PodsMax)
			continue
		}
		places--
		run = append(run, p)
	}
	return run, refused
}
