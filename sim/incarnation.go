package sim

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core"
	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// incarnation is the agent's process from its start until it is killed.
type incarnation struct {
	number int
	agent  *core.Agent
	loop   *loop.Loop
	wakeAt time.Time // the earliest wake-up on the agenda; zero: none

	run     *run
	planned plannedPanic // of the current step; mostly empty

	stalledUntil time.Time // the process is paused until then
}

// Step implements world.Core. The incarnation is the core of its own loop, so that the agent in it
// can be replaced by a restored one.
func (i *incarnation) Step(ev world.Event) []world.Effect {
	ev, i.planned = i.run.spoil(ev)
	i.run.oracles.EventReceived(i.run.agenda.Now(), &ev)
	effects := i.agent.Step(ev)
	i.planned = plannedPanic{}
	return effects
}

// NextWake implements world.Core.
func (i *incarnation) NextWake() time.Time { return i.agent.NextWake() }

// gatedPort passes the effects of one incarnation to a port until the agent is killed.
type gatedPort struct {
	run         *run
	incarnation *incarnation
	forward     func(world.Effect)
	cancel      func(world.OpID) // nil: the port cannot cancel operations
}

// Do implements world.Port.
func (g *gatedPort) Do(eff world.Effect) {
	r := g.run
	if r.current != g.incarnation {
		return // the agent was killed before this effect
	}
	r.oracles.EffectIssued(r.agenda.Now(), &eff)
	counted := isCounted(eff.Body)
	if counted {
		r.effects++
	}
	origin := agenda.Origin(EffectOrigin(g.incarnation.number, eff.Op))
	r.agenda.Because(origin, func() { g.forward(eff) })
	r.observeEffect(&eff, counted)
}

// Cancel implements world.Canceler.
func (g *gatedPort) Cancel(id world.OpID) {
	if g.cancel != nil && g.run.current == g.incarnation {
		g.cancel(id)
	}
}

// isCounted reports whether plan.AnyEffect stands for an effect.
func isCounted(body any) bool {
	switch body.(type) {
	case *world.HealthAnswer, *world.RecordEvent, *world.ReadMachine, *world.MeasureNode:
		return false
	}
	return !isClientResponse(body)
}

// bootAgent starts the agent, unless it runs. It waits for the machine's boot.
func (r *run) bootAgent() {
	if r.current != nil {
		return
	}
	if r.agenda.Now().Before(r.offUntil) {
		r.agenda.At(r.offUntil, r.bootAgent)
		return
	}
	r.incarnations++
	r.effectsInSecond = 0 // the bound is that of one agent
	i := &incarnation{number: r.incarnations, agent: core.New(r.options), run: r}
	port := func(forward func(world.Effect)) world.Port { return &gatedPort{r, i, forward, nil} }
	ports := map[world.PortName]world.Port{
		world.PortCRI:     &gatedPort{r, i, r.runtime.Do, r.runtime.Cancel},
		world.PortFS:      &gatedPort{r, i, r.disk.Do, r.disk.Cancel},
		world.PortNetwork: port(r.network.Do),
		world.PortHost:    port(r.host.Do),
		world.PortPlugins: port(r.plugins.Do),
		world.PortCSI:     port(r.drivers.Do),
		world.PortSCSI:    port(r.initiator.Do),

		world.PortCredentials: port(r.providers.Do),

		world.PortRequests: port(r.handleResponse),
		world.PortLog:      port(func(world.Effect) {}),
		world.PortAPI:      port(r.recordEvent),
	}
	if r.server != nil {
		ports[world.PortAPI] = port(r.server.Do)
		r.server.Connect(r.deliver)
	}
	i.loop = loop.New(loop.Options{
		Core: i, Limits: r.limits, Ports: ports,
		Observe: func(ev world.Event, effects []world.Effect) { r.observeStep(i, ev, effects) },
	})
	r.current = i
	r.runtime.Connect(r.deliver)
	r.disk.Connect(r.deliver)
	r.network.Connect(r.deliver)
	r.host.Connect(r.deliver)
	r.plugins.Connect(r.deliver)
	r.drivers.Connect(r.deliver)
	r.initiator.Connect(r.deliver)
	r.providers.Connect(r.deliver)
	r.oracles.AgentStarted(r.agenda.Now())
	r.marks.AgentStarted(r.agenda.Now())
	machine := r.machine()
	r.deliver(world.Event{Body: &world.Boot{
		Seed:   r.plan.Seed + uint64(r.incarnations),
		BootID: fmt.Sprint("boot-", r.reboots+1), Uptime: r.uptime(), Hostname: plan.NodeName,
		CPUs: machine.CPUs, MemoryBytes: machine.MemoryBytes, Addresses: machine.Addresses,
		Machine: machine.Machine, SetAside: r.setAside(r.agenda.Now()),
		HasSCSIVolumes: r.disk.Exists(plan.RootDir+"/plugins/kubernetes.io/iscsi") ||
			r.disk.Exists(plan.RootDir+"/plugins/kubernetes.io/fc"),
	}})
	if offset := r.clocks.date.at(r.agenda.Now()); offset != 0 {
		r.deliver(world.Event{Body: &world.ClockStepped{Offset: offset}})
	}
}

// uptime returns for how long the machine has been up. Its agent started some time after its boot.
func (r *run) uptime() time.Duration {
	const beforeAgent = 20 * time.Second
	on := r.rebootedAt
	if on.IsZero() {
		on = r.plan.Beginning()
	}
	return r.agenda.Now().Sub(on) + beforeAgent
}

// machine returns what an observation of the simulated machine says. Its name is in no name server.
func (r *run) machine() world.MachineRead {
	read := world.MachineRead{
		CPUs: r.plan.Node.CPUCount(), MemoryBytes: r.plan.Node.MemoryBytes(),
		Addresses: []string{plan.NodeIP}, Machine: host.Machine(),
	}
	if r.plan.Node.SELinux {
		read.Machine.SELinux, read.Machine.SELinuxFileLabel = true, host.SELinuxFileLabel
	}
	return read
}

// recordEvent is the API port of a node without an API server: it records events in the truth.
func (r *run) recordEvent(eff world.Effect) {
	r.truth.Add(apiserver.EventFact(eff.Body.(*world.RecordEvent), r.agenda.Now()))
}

// configureAgents sets the configuration of the agents that start from now on.
func (r *run) configureAgents(k *plan.AgentKill) {
	if k.Config == nil {
		return
	}
	c, err := plan.KubeletConfig(k.ConfigOf(&r.plan.Node))
	if err != nil {
		panic("sim: a plan that was not validated: " + err.Error())
	}
	r.options.Config = c
	r.oracles.ConfigurationChanged(allocatable(&r.plan.Node, c), oracleTiers(&r.plan.Node, c),
		r.nodeFacts(c))
}

// killAgent kills the agent, as SIGKILL does, and starts it again after a while.
func (r *run) killAgent(down plan.Duration) {
	if r.endAgent() {
		r.agenda.After(time.Duration(down), r.bootAgent)
	}
}

// endAgent ends the agent's process, and reports whether one ran.
func (r *run) endAgent() bool {
	if r.current == nil {
		return false
	}
	r.current = nil
	r.runtime.Disconnect()
	r.disk.Disconnect()
	r.network.Disconnect()
	r.host.Disconnect()
	r.plugins.Disconnect()
	r.drivers.Disconnect()
	r.initiator.Disconnect()
	r.providers.Disconnect()
	if r.server != nil {
		r.server.Disconnect()
	}
	r.oracles.AgentKilled(r.agenda.Now())
	r.marks.AgentKilled()
	r.checkBack(false)
	return true
}

// deliver delivers an event to the agent, if it runs, and runs its loop.
func (r *run) deliver(ev world.Event) {
	if r.current == nil || r.isDone() {
		return
	}
	i := r.current
	if !i.loop.Offer(ev) {
		r.fail("bounds", "the inbox is full")
	}
	r.runLoop(i)
}

// runLoop runs the loop of an incarnation until it has nothing to do, and schedules its next
// wake-up.
func (r *run) runLoop(i *incarnation) {
	if r.agenda.Now().Before(i.stalledUntil) {
		return
	}
	defer r.recoverPanic(i)
	for turns := 0; r.current == i && !r.isDone() && i.loop.Turn(r.agenda.Now()); turns++ {
		if turns > turnsMax {
			r.fail("busy", fmt.Sprintf("the agent wants to be called more than %d times at one "+
				"instant", turnsMax))
		}
	}
	wake := i.loop.NextWake()
	if r.current != i || wake.IsZero() || !i.wakeAt.IsZero() && !wake.Before(i.wakeAt) {
		return
	}
	i.wakeAt = wake
	r.wakeUps.At(wake, func() {
		if r.current == i && i.wakeAt.Equal(wake) {
			i.wakeAt = time.Time{}
			r.runLoop(i)
		}
	})
}

// recoverPanic ends an incarnation by a panic of the plan. Any other panic of the core, a broken
// invariant, is a failure of the run.
func (r *run) recoverPanic(i *incarnation) {
	broken := recover()
	if broken == nil {
		return
	}
	over := i.agent.CurrentPod()
	if r.current != i {
		i.planned = plannedPanic{} // the agent was killed before
	}
	if problem := i.planned.difference(broken, over, panickedFunction()); problem != "" {
		r.fail("panic", problem)
		return
	}
	now := r.agenda.Now()
	r.panicsLeft[i.planned.name]--
	r.troubled = true
	r.notePanic(over, now)
	r.killAgent(panicDown)
	r.oracles.AgentPanicked(now, over)
}

// The bounds of the agent's activity. An agent in an endless loop is found by them even if it does
// nothing wrong otherwise.
const (
	turnsMax         = 1000 // turns of the loop at one instant
	effectsOfNodeMax = 90   // effects of an agent in one second for the node, as at its start
	effectsPerPodMax = 60   // the same for each pod
	// effectsPerContainerMax is the same for each container or volume that a hostile pod has besides
	// those of its manifest.
	effectsPerContainerMax = 15
)

// checkEffectRate fails the run if the agent issues too many effects in one second.
func (r *run) checkEffectRate(effects int) {
	if second := r.agenda.Now().Truncate(time.Second); !second.Equal(r.effectsSecond) {
		r.effectsSecond, r.effectsInSecond = second, 0
	}
	r.effectsInSecond += effects
	most := effectsOfNodeMax + effectsPerPodMax*len(r.plan.Pods)
	if r.effectsInSecond <= most {
		return
	}
	for i := range r.plan.Pods {
		if h := r.plan.Pods[i].Hostile; h != nil {
			most += effectsPerContainerMax * (h.Containers + h.Images + h.Volumes())
		}
	}
	if r.effectsInSecond > most {
		r.fail("busy", fmt.Sprintf("more than %d effects in one second", most))
	}
}

// observeStep is called for every step of the agent.
func (r *run) observeStep(i *incarnation, ev world.Event, effects []world.Effect) {
	r.events++
	r.marks.Completed(&ev)
	switch ev.Body.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		r.oracles.ListReceived(r.agenda.Now(), false)
	case *runtimeapi.ListContainersResponse:
		r.oracles.ListReceived(r.agenda.Now(), true)
	}
	r.checkEffectRate(len(effects))
	r.hash.Step(i.number, ev, effects)
	if r.opts.Watch != nil {
		r.opts.Watch(Step{Number: r.events, Incarnation: i.number, Event: ev, Effects: effects,
			Hash: r.hash.Sum(), Agent: i.agent})
	}
	if r.opts.RestoreAfter != nil && r.opts.RestoreAfter(r.events) {
		i.agent = restoreFromSnapshot(i.agent)
	}
	if r.opts.ReseedAfter != 0 && r.events == r.opts.ReseedAfter {
		r.reseed(r.opts.ReseedWith)
	}
	if r.opts.Until != 0 && r.events == r.opts.Until {
		r.stopped = true
		state, err := i.agent.Snapshot()
		if err != nil {
			panic(err)
		}
		r.state = state
	}
}

// reseed replaces the seed of everything that draws while a run is in progress.
func (r *run) reseed(seed uint64) {
	r.agenda.Reseed(seed)
	r.injector.Reseed(seed)
	ports := []interface{ Reseed(uint64) }{r.disk, r.runtime, r.host, r.network, r.plugins,
		r.drivers, r.initiator, r.providers}
	if r.server != nil {
		ports = append(ports, r.server)
	}
	for _, p := range ports {
		p.Reseed(seed)
	}
}

// restoreFromSnapshot returns an agent restored from the snapshot of another one.
func restoreFromSnapshot(a *core.Agent) *core.Agent {
	data, err := a.Snapshot()
	if err != nil {
		panic("snapshot: " + err.Error())
	}
	restored, err := core.Restore(data)
	if err != nil {
		panic("restore: " + err.Error())
	}
	return restored
}
