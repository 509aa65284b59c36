package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// downAfter is how long the runtime may fail to report that it is ready before it counts as down.
const downAfter = 30 * time.Second

// ReadinessProblems returns why the node is not ready as far as the runtime goes, in the kubelet's
// words: first the problems of the runtime itself, then those of its network. A missing report is a
// problem too: pods may start before the runtime has reported that it is ready, but the node is not
// ready before.
func (r *Runtime) ReadinessProblems(now time.Time) (problems, network []string) {
	switch {
	case r.ReadyAt.IsZero():
		problems = append(problems, "container runtime status check may not have completed yet")
	case !now.Before(r.DownAt()):
		problems = append(problems, "container runtime is down")
	}
	if r.AsOf.IsZero() {
		return problems, []string{"network state unknown"}
	}
	if problem := r.missingOrNotReady(runtimeapi.RuntimeReady,
		"container runtime not ready: "); problem != "" {
		problems = append(problems, problem)
	}
	if problem := r.missingOrNotReady(runtimeapi.NetworkReady,
		"container runtime network not ready: "); problem != "" {
		network = append(network, problem)
	}
	return problems, network
}

// DownAt returns when the runtime counts as down without another report.
func (r *Runtime) DownAt() time.Time { return r.ReadyAt.Add(downAfter) }

func (r *Runtime) missingOrNotReady(condition, prefix string) string {
	if r.condition(condition) == nil {
		return prefix + condition + " is not reported"
	}
	return r.notReadyMessage(condition, prefix)
}
