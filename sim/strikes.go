package sim

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// restartRuntime restarts the process of the container runtime.
func (r *run) restartRuntime(e *plan.RuntimeRestart) {
	down := time.Duration(e.Down)
	r.excuses.RuntimeRestarted(r.agenda.Now(), down)
	r.runtime.Restart(down)
}

// openFaultWindow begins a fault window. The faults of single calls are decided by faults.Injector
// when a call is made; those of a whole port are switched on here, and off at the window's end.
func (r *run) openFaultWindow(w *plan.FaultWindow) {
	r.injector.Open(w, r.agenda.Now())
	switched := func(begin, end func()) {
		begin()
		r.agenda.After(time.Duration(w.For), end)
	}
	switch w.Class {
	case plan.FaultStreamBroken:
		r.runtime.BreakStreams()
	case plan.FaultDiskFull:
		switched(func() { r.disk.SetFull(true) }, func() { r.disk.SetFull(false) })
	case plan.FaultPathHangs:
		switched(func() { r.disk.Hang(w.Path) }, func() { r.disk.Resume(w.Path) })
	case plan.FaultNetworkNotReady:
		switched(func() { r.runtime.SetNetworkReady(false) },
			func() { r.runtime.SetNetworkReady(true) })
	case plan.FaultRuntimeNotReady:
		switched(func() { r.runtime.SetReady(false) }, func() { r.runtime.SetReady(true) })
	case plan.FaultStaleStats:
		switched(func() { r.runtime.SetStaleStats(true) }, func() { r.runtime.SetStaleStats(false) })
	case plan.FaultMissingStats:
		switched(func() { r.runtime.SetMissingStats(true) },
			func() { r.runtime.SetMissingStats(false) })
	case plan.FaultAgentStalls:
		r.stallAgent(time.Duration(w.For))
	case plan.FaultAPIDown, plan.FaultAPIPartition, plan.FaultAPIUnauthorized:
		switched(r.updateAPIReach, r.updateAPIReach)
	case plan.FaultWatchGap:
		switched(r.forgetAPIChanges, r.forgetAPIChanges)
	}
}

// stallAgent pauses the agent's process for a while. A later incarnation is another process.
func (r *run) stallAgent(span time.Duration) {
	i := r.current
	if i == nil {
		return
	}
	if until := r.agenda.Now().Add(span); until.After(i.stalledUntil) {
		i.stalledUntil = until
	}
	r.agenda.At(i.stalledUntil, func() { r.resumeAgent(i) })
}

// resumeAgent has an incarnation handle the events that have waited, unless it is still paused.
func (r *run) resumeAgent(i *incarnation) {
	if r.current == i && !r.isDone() {
		r.runLoop(i)
	}
}

// isStalled reports whether the agent's process is paused.
func (r *run) isStalled() bool {
	return r.current != nil && r.agenda.Now().Before(r.current.stalledUntil)
}

// updateAPIReach sets how far the agent's requests get on the way to the API server.
func (r *run) updateAPIReach() {
	if r.server != nil {
		r.server.SetReachability(r.injector.APIReach(r.agenda.Now()))
	}
}

// forgetAPIChanges breaks all watches and drops the history from which they could continue, as etcd
// compaction does.
func (r *run) forgetAPIChanges() {
	if r.server != nil {
		r.server.CompactHistory()
	}
}

// healAPIServer lets all requests of the agent reach the API server.
func (r *run) healAPIServer() {
	if r.server != nil {
		r.server.SetReachability(apiserver.Reachable)
	}
}

// rebootMachine cuts the power: processes, the agent, and what is not synced to the disk are lost.
func (r *run) rebootMachine(down plan.Duration) {
	r.reboots++
	r.rebootedAt = r.agenda.Now()
	r.offUntil = r.rebootedAt.Add(time.Duration(down))
	r.killAgent(down)
	r.runtime.Reboot()
	r.host.Reboot()
	r.plugins.Reboot(r.offUntil)
	r.disk.LosePower()
	r.drivers.LosePower()
	r.initiator.LosePower()
	if r.server != nil {
		r.server.LosePower()
	}
}

// killContainer kills the process of a pod's running container.
func (r *run) killContainer(k *plan.ContainerKill) {
	for _, c := range r.runtime.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Name == k.Container &&
			withoutNodeSuffix(c.PodName) == k.Pod {
			r.runtime.Kill(c.PodUID, c.Name, truth.CauseKilled, k.ExitCode)
			return
		}
	}
}

// killSandbox kills the pause process of a pod's ready sandbox.
func (r *run) killSandbox(k *plan.SandboxKill) {
	for _, s := range r.runtime.Sandboxes() {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY &&
			withoutNodeSuffix(s.PodName) == k.Pod {
			r.runtime.KillSandbox(s.ID)
			return
		}
	}
}

// withoutNodeSuffix returns the name that a pod has in its manifest: the name of a static pod has
// the name of the node appended.
func withoutNodeSuffix(pod string) string { return strings.TrimSuffix(pod, "-"+plan.NodeName) }
