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
	for _, e := range r.plan.Reboots {
		r.at(e.At, func() { r.reboot(e.Down) })
	}
	for _, k := range r.plan.Kills {
		r.at(k.At, func() { r.killContainer(k) })
	}
	for _, k := range r.plan.Sandboxes {
		r.at(k.At, func() { r.killSandbox(k) })
	}
	r.scheduleOdd()
	for _, w := range r.plan.Faults {
		r.scheduleWindow(w)
	}
}

// scheduleWindow begins and ends what is wrong with a whole port.
func (r *run) scheduleWindow(w Window) {
	while := func(begin, end func()) {
		r.at(w.At, begin)
		r.at(w.At+w.For, end)
	}
	switch w.Class {
	case ClassNoStream:
		r.at(w.At, r.runtime.BreakStreams)
	case ClassDiskFull:
		while(func() { r.disk.SetFull(true) }, func() { r.disk.SetFull(false) })
	case ClassPathHangs:
		while(func() { r.disk.Hang(w.Path) }, func() { r.disk.GoOn(w.Path) })
	case ClassNetworkDown:
		while(func() { r.runtime.SetNetworkReady(false) }, func() { r.runtime.SetNetworkReady(true) })
	case ClassServerDown, ClassPartition, ClassUnauthorized, ClassWatchGap:
		r.scheduleAPI(w)
	case ClassUnready:
		while(func() { r.runtime.SetReady(false) }, func() { r.runtime.SetReady(true) })
	}
}

// reboot ends the machine: what runs, the agent, and what is on its disk only in memory.
func (r *run) reboot(down Duration) {
	r.boots++
	r.kill(down)
	r.runtime.Reboot()
	r.host.Reboot()
	r.disk.PowerLoss()
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
