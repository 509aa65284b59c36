package sim

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// anomalies are the anomalies that last until the faults heal.
type anomalies struct {
	recoveries      []func()               // each ends the loss of a container
	pendingRemovals []*plan.SandboxRemoval // each waits for the creation of a sandbox
}

// loseContainer makes the runtime lose track of a pod's running container.
func (r *run) loseContainer(l *plan.LostContainer) {
	for _, c := range r.runtime.Containers() {
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || c.Name != l.Container ||
			withoutNodeSuffix(c.PodName) != l.Pod {
			continue
		}
		if restore, lost := r.runtime.LoseContainerState(c.PodUID, c.Name); lost && l.For > 0 {
			r.anomalies.recoveries = append(r.anomalies.recoveries, restore)
			r.agenda.After(time.Duration(l.For), restore)
		}
		return
	}
}

// removeSandbox removes the newest sandbox of a pod, or waits for the creation of the next one.
func (r *run) removeSandbox(removal *plan.SandboxRemoval) {
	if removal.DuringCreation {
		r.anomalies.pendingRemovals = append(r.anomalies.pendingRemovals, removal)
		return
	}
	newest, at := "", time.Time{}
	for _, s := range r.runtime.Sandboxes() {
		if withoutNodeSuffix(s.PodName) == removal.Pod && s.CreatedAt.After(at) {
			newest, at = s.ID, s.CreatedAt
		}
	}
	r.runtime.RemoveSandboxManually(newest)
}

// observeSandbox removes a sandbox that has just become ready, if a removal waits for it.
func (r *run) observeSandbox(f truth.Fact) {
	if f.Kind != truth.SandboxReady {
		return
	}
	for i, removal := range r.anomalies.pendingRemovals {
		if removal.Pod == withoutNodeSuffix(f.PodName) {
			r.anomalies.pendingRemovals = slices.Delete(r.anomalies.pendingRemovals, i, i+1)
			sandbox := f.SandboxID
			r.agenda.After(0, func() { r.runtime.RemoveSandboxManually(sandbox) })
			return
		}
	}
}

// healAnomalies ends all anomalies.
func (r *run) healAnomalies() {
	for _, restore := range r.anomalies.recoveries {
		restore()
	}
	r.anomalies = anomalies{}
}
