package sim

import (
	"fmt"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/plan"
)

// schedule puts the happenings of the plan on the agenda, and starts the agent.
func (r *run) schedule() {
	if r.server != nil {
		r.startControllers()
		r.startAttacher()
		r.startVolumeControllers()
		r.startSigners()
	}
	for i := range r.plan.Happenings {
		h := &r.plan.Happenings[i]
		switch {
		case h.When != nil:
			r.addAnchored(h)
		case h.At == 0 && (h.Manifest != nil || h.Act != nil || h.Plugin != nil):
			// Before the agent boots.
			r.carryOut(h)
		default:
			r.agenda.At(plan.Start.Add(time.Duration(h.At)), func() { r.carryOut(h) })
		}
	}
	if t := r.plan.TakeOver; t != nil {
		r.runFirstKubelet(t)
		r.agenda.At(plan.Start.Add(time.Duration(t.Down)), r.bootAgent)
	} else {
		r.bootAgent()
	}
	r.startPolling()
}

// isTrouble reports whether something goes wrong by a happening: all but what users, controllers
// and clients do, of which a wrong date and a page without pods are troubles.
func isTrouble(h *plan.Happening) bool {
	switch {
	case h.Act != nil:
		return h.Act.Verb == plan.VerbDate
	case h.Manifest != nil:
		return h.Manifest.URL && h.Manifest.Text != ""
	}
	return h.Request == nil
}

// carryOut does what a happening says, now.
func (r *run) carryOut(h *plan.Happening) {
	if r.opts.WatchHappening != nil {
		r.opts.WatchHappening(r.agenda.Now(), h)
	}
	r.happened++
	r.agenda.Because(agenda.Origin(HappeningOrigin(r.happened)), func() { r.do(h) })
}

func (r *run) do(h *plan.Happening) {
	deed, _ := h.Deed()
	r.troubled = r.troubled || isTrouble(h)
	r.marks.Happens(r.agenda.Now(), deed)
	switch d := deed.(type) {
	case *plan.ManifestChange:
		r.manifests.apply(d)
	case *plan.Act:
		r.performAct(d)
	case *plan.AgentKill:
		r.configureAgents(d)
		r.killAgent(d.Down)
	case *plan.RuntimeRestart:
		r.restartRuntime(d)
	case *plan.Reboot:
		r.rebootMachine(d.Down)
	case *plan.ContainerKill:
		r.killContainer(d)
	case *plan.SandboxKill:
		r.killSandbox(d)
	case *plan.ClockStep:
		r.changeRuntimeClock(time.Duration(d.By))
	case *plan.LostContainer:
		r.loseContainer(d)
	case *plan.SandboxRemoval:
		r.removeSandbox(d)
	case *plan.ImageRemoval:
		r.runtime.RemoveImageManually(d.Image)
	case *plan.FaultWindow:
		r.openFaultWindow(d)
	case *plan.Shutdown:
		r.shutDown(d)
	case *plan.BusLoss:
		r.host.LoseBus(time.Duration(d.Down))
	case *plan.Pressure:
		r.host.SetUsage(host.Usage{MemoryBytes: int64(d.MemoryMiB) << 20,
			Processes: int64(d.Processes), DiskBytes: int64(d.DiskMiB) << 20,
			Inodes: int64(d.ThousandInodes) * 1000})
	case *plan.PluginChange:
		r.plugins.Change(d)
	case *plan.Request:
		r.clients.perform(d)
	default:
		panic(fmt.Sprintf("sim: nothing carries out a %T", deed))
	}
}
