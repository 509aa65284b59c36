package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// downAfter is how long the runtime may fail to say that it is ready before it counts as down.
const downAfter = 30 * time.Second

// Unfit says why the node is not ready as far as the runtime goes, in the kubelet's words: first
// what the runtime itself is in the way of, then its network. Not to have said that it is ready
// is a reason too: pods may start before it has, the node is not ready before.
func (r *Runtime) Unfit(now time.Time) (itself, network []string) {
	switch {
	case r.ReadyAt.IsZero():
		itself = append(itself, "container runtime status check may not have completed yet")
	case !now.Before(r.DownAt()):
		itself = append(itself, "container runtime is down")
	}
	if r.AsOf.IsZero() {
		return itself, []string{"network state unknown"}
	}
	if why := r.lacks(runtimeapi.RuntimeReady, "container runtime not ready: "); why != "" {
		itself = append(itself, why)
	}
	if why := r.lacks(runtimeapi.NetworkReady,
		"container runtime network not ready: "); why != "" {
		network = append(network, why)
	}
	return itself, network
}

// DownAt is when the runtime counts as down if nothing more is heard of it.
func (r *Runtime) DownAt() time.Time { return r.ReadyAt.Add(downAfter) }

func (r *Runtime) lacks(condition, intro string) string {
	if r.condition(condition) == nil {
		return intro + condition + " is not reported"
	}
	return r.not(condition, intro)
}
