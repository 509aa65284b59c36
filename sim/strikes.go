package sim

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// scheduleStrikes puts what is ended from outside on the agenda.
func (r *run) scheduleStrikes() {
	for _, k := range r.plan.AgentKills {
		if k.AfterEffects == 0 {
			r.at(k.At, func() { r.kill(k.Down) })
		}
	}
	for _, e := range r.plan.RuntimeEnds {
		r.at(e.At, func() { r.runtime.Restart(time.Duration(e.Down)) })
	}
	for _, k := range r.plan.Kills {
		r.at(k.At, func() { r.killContainer(k) })
	}
	for _, k := range r.plan.Sandboxes {
		r.at(k.At, func() { r.killSandbox(k) })
	}
	for _, w := range r.plan.Faults {
		if w.Class == ClassNoStream {
			r.at(w.At, r.runtime.BreakStreams)
		}
		if w.Class == ClassDiskFull {
			r.at(w.At, func() { r.disk.SetFull(true) })
			r.at(w.At+w.For, func() { r.disk.SetFull(false) })
		}
	}
}

// killContainer ends the process of a container of a pod, whichever of that name runs.
func (r *run) killContainer(k Kill) {
	for _, c := range r.runtime.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Name == k.Container &&
			manifestName(c.PodName) == k.Pod {
			r.runtime.Kill(c.PodUID, c.Name, truth.CauseKilled, k.ExitCode)
			return
		}
	}
}

func (r *run) killSandbox(k SandboxKill) {
	for _, s := range r.runtime.Sandboxes() {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY &&
			manifestName(s.PodName) == k.Pod {
			r.runtime.KillSandbox(s.ID)
			return
		}
	}
}

// manifestName is the name that a pod has in its manifest.
func manifestName(pod string) string { return strings.TrimSuffix(pod, "-"+nodeName) }
