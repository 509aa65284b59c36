package whatif

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
)

const (
	// settleMax is how long the pods may take to settle after the event.
	settleMax = 20 * time.Minute
	// eventMargin is the time from the readiness of the last pod in the rehearsal to the first moment
	// of the event: the latencies of another seed may be longer. The event is within eventWindow.
	eventMargin = 30 * time.Second
	eventWindow = time.Minute
)

// The bounds within which the time is drawn that the runtime and the agent, or the machine, are
// down.
var (
	processDown = plan.Span{Least: time.Second, Most: 10 * time.Second}
	machineDown = plan.Span{Least: 20 * time.Second, Most: time.Minute}
)

// plan returns the plan of a seed. Without an event it is that of the rehearsal.
func (in *Input) plan(seed uint64, event Event, readyAt time.Duration) *plan.Plan {
	p := &plan.Plan{APIVersion: plan.APIVersion, Kind: "Plan",
		Metadata: plan.Metadata{Name: "whatif"},
		Spec: plan.Spec{Scenario: "whatif", Seed: seed, Order: plan.OrderUniform,
			Duration: plan.Duration(time.Second), Settle: plan.Duration(settleMax),
			Quiet: plan.Duration(plan.QuietDefault + in.slowestStart()),
			Node:  in.Node.plan, Objects: in.Objects}}
	p.Spec.Node.API = true
	act := func(at time.Duration, a plan.Act) {
		p.Spec.Happenings = append(p.Spec.Happenings,
			plan.Happening{At: plan.Duration(at), Act: &a})
	}
	act(0, plan.Act{Verb: plan.VerbCreate, Node: true})
	act(0, plan.Act{Verb: plan.VerbPatch, Node: true, Patch: map[string]any{
		"metadata": map[string]any{"labels": in.labelPatch()}}})
	for i := range in.Objects {
		act(0, plan.Act{Verb: plan.VerbCreate, Object: in.Objects[i].Name})
	}
	for _, w := range in.Workloads {
		for i := range w.Pods {
			pod := &w.Pods[i]
			p.Spec.Pods = append(p.Spec.Pods, plan.Pod{Name: pod.Name, API: true,
				Manifest: pod.manifest, Behaviours: in.behaviours(w, pod, event, seed)})
			act(0, plan.Act{Verb: plan.VerbCreate, Pod: pod.Name, Rash: true})
		}
	}
	if event == "" {
		return p
	}
	r := wire.Stream(seed, "whatif event")
	at := readyAt.Round(time.Millisecond) + eventMargin +
		draw(plan.Span{Most: eventWindow}, r)
	h := plan.Happening{At: plan.Duration(at)}
	switch event {
	case RuntimeRestart:
		h.RestartRuntime = &plan.RuntimeRestart{Down: plan.Duration(draw(processDown, r))}
	case AgentRestart:
		h.KillAgent = &plan.AgentKill{Down: plan.Duration(draw(processDown, r))}
	case Reboot:
		h.Reboot = &plan.Reboot{Down: plan.Duration(draw(machineDown, r))}
	case NodeShutdown:
		h.ShutDown = &plan.Shutdown{Down: plan.Duration(draw(machineDown, r))}
	case Drain:
		act(at, plan.Act{Verb: plan.VerbPatch, Node: true,
			Patch: map[string]any{"spec": map[string]any{"unschedulable": true}}})
		for _, w := range in.Workloads {
			for i := range w.Pods {
				if w.isDrained() {
					act(at, plan.Act{Verb: plan.VerbDelete, Pod: w.Pods[i].Name})
				}
			}
		}
	}
	end := at
	switch {
	case event.isPressure():
		steps := in.pressures(event, p, at, r)
		p.Spec.Happenings = append(p.Spec.Happenings, steps...)
		end = time.Duration(steps[len(steps)-1].At) + backoffMax
	case event != Drain:
		p.Spec.Happenings = append(p.Spec.Happenings, h)
		end = time.Duration(h.End()) + in.Node.shutdownPeriod()
	}
	// The agent is up again when the faults heal.
	p.Spec.Duration = plan.Duration(end + 2*time.Second)
	return p
}

// ends reports whether an event ends the pods of a workload for good, so that its controller has to
// make others.
func (in *Input) ends(w *Workload, e Event) bool {
	return e == Drain && w.isDrained() || e == NodeShutdown && in.Node.shutdownPeriod() > 0
}

// isDrained reports whether `kubectl drain --ignore-daemonsets --force` evicts the pods.
func (w *Workload) isDrained() bool { return w.Kind != kindDaemonSet }

// draw draws a length of time from a range.
func draw(s plan.Span, r *rand.Rand) time.Duration {
	return (s.Least + time.Duration(r.Int64N(int64(s.Most-s.Least)+1))).Round(time.Millisecond)
}
