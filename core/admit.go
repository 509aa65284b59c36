package core

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/pod"
	"seedlet.dev/core/sysctl"
)

// Refusal is why a pod that the sources want is not run, in the words of its status. What may
// still be run is pending. One that has failed may not, in this life of the agent: only another
// manifest, which is another pod, or another configuration can help.
type Refusal struct {
	Phase   v1.PodPhase `json:"phase"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
}

func refusal(format string, args ...any) Refusal {
	return Refusal{Phase: v1.PodPending, Reason: "Refused", Message: fmt.Sprintf(format, args...)}
}

// admit says which of the pods that the sources want are run, and why each of the others is
// refused, by UID. What has been admitted, or has something running, stays: a manifest that is
// added never ends a pod that is there, nor does a restart of the agent. So while it is not known
// what runs, what may have to be refused is neither admitted nor refused.
func (a *Agent) admit() ([]*v1.Pod, map[string]Refusal) {
	var run, late []*v1.Pod
	refused := map[string]Refusal{}
	places, listed := a.state.PodsMax-a.activeBound(), !a.state.Relist.AsOf.IsZero()
	for _, p := range a.state.Manifests.Pods() {
		if missing := pod.Unsupported(p); len(missing) > 0 {
			refused[string(p.UID)] = refusal("not supported yet: %s", strings.Join(missing, ", "))
			continue
		}
		known := a.state.Pods[string(p.UID)]
		if known != nil && (known.Spec != nil || known.Holds()) {
			run = append(run, p)
			if known.Stage != pod.Terminated {
				places-- // pods that have run to their end take no place
			}
			continue
		}
		switch why := sysctl.Forbidden(&p.Spec, a.state.Sysctls); {
		case why == "":
			late = append(late, p)
		case listed: // the kubelet fails a static pod like any other
			refused[string(p.UID)] = Refusal{v1.PodFailed, sysctl.Reason, "Pod was rejected: " + why}
		}
	}
	if len(late) > places && !listed {
		return run, refused
	}
	for _, p := range late {
		if places <= 0 {
			refused[string(p.UID)] = refusal("more than maxPods (%d)", a.state.PodsMax)
			continue
		}
		places--
		run = append(run, p)
	}
	return run, refused
}
