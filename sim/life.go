package sim

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core"
	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/host"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// life is one life of the agent.
type life struct {
	number int
	agent  *core.Agent
	loop   *loop.Loop
	wakeAt time.Time // when the earliest tick on the agenda is
}

// Step and NextWake make a life the core of its own loop, so that the agent in it can be replaced.
func (l *life) Step(ev world.Event) []world.Effect { return l.agent.Step(ev) }

// NextWake implements world.Core.
func (l *life) NextWake() time.Time { return l.agent.NextWake() }

// gate carries out the effects of one life until the agent is killed.
type gate struct {
	run  *run
	life *life
	do   func(world.Effect)
}

// Do implements world.Port.
func (g *gate) Do(eff world.Effect) {
	r := g.run
	if r.life != g.life {
		return // the agent was killed before it came to this effect
	}
	switch eff.Body.(type) {
	case *world.HealthAnswer, *world.RecordEvent:
		g.do(eff) // not counted: plans that count effects were drawn without them
		return
	}
	if ofClient(eff.Body) {
		g.do(eff) // likewise
		return
	}
	r.effects++
	g.do(eff)
	for _, k := range r.plan.AgentKills {
		if k.AfterEffects > 0 && uint64(k.AfterEffects) == r.effects && !r.healed {
			r.kill(k.Down)
		}
	}
}

// boot begins a life of the agent.
func (r *run) boot() {
	if r.life != nil {
		return
	}
	r.lives++
	l := &life{number: r.lives, agent: core.New(r.options)}
	port := func(do func(world.Effect)) world.Port { return &gate{r, l, do} }
	ports := map[world.PortName]world.Port{
		world.PortCRI:      port(r.runtime.Do),
		world.PortFS:       port(r.disk.Do),
		world.PortNetwork:  port(r.network.Do),
		world.PortHost:     port(r.host.Do),
		world.PortRequests: port(r.answered),
		world.PortLog:      port(func(world.Effect) {}),
		world.PortAPI:      port(r.tellEvent),
	}
	if r.server != nil {
		ports[world.PortAPI] = port(r.server.Do)
		r.server.Connect(r.offer)
	}
	l.loop = loop.New(loop.Options{
		Core: l, Limits: r.limits, Ports: ports,
		Observe: func(ev world.Event, effects []world.Effect) { r.observe(l, ev, effects) },
	})
	r.life = l
	r.runtime.Connect(r.offer)
	r.disk.Connect(r.offer)
	r.network.Connect(r.offer)
	r.host.Connect(r.offer)
	r.panel.AgentStarted(r.agenda.Now())
	r.offer(world.Event{Body: &world.Boot{
		Seed:   r.plan.Seed + uint64(r.lives),
		BootID: fmt.Sprint("boot-", r.boots+1), Hostname: nodeName,
		CPUs: r.plan.Node.cpus(), MemoryBytes: r.plan.Node.memoryBytes(),
		Addresses: []string{nodeIP},
		Machine:   host.Machine(),
	}})
}

// tellEvent takes an event where there is no API server.
func (r *run) tellEvent(eff world.Effect) {
	r.truth.Add(apiserver.Told(eff.Body.(*world.RecordEvent), r.agenda.Now()))
}

// kill ends the agent at once, as SIGKILL does, and starts it again after a while.
func (r *run) kill(down Duration) {
	if r.life == nil {
		return
	}
	r.life = nil
	r.runtime.Disconnect()
	r.disk.Disconnect()
	r.network.Disconnect()
	r.host.Disconnect()
	if r.server != nil {
		r.server.Disconnect()
	}
	r.panel.AgentKilled(r.agenda.Now())
	r.agenda.After(time.Duration(down), r.boot)
}

// offer brings an event to the agent that lives now, and lets it work.
func (r *run) offer(ev world.Event) {
	if r.life == nil || r.over() {
		return
	}
	l := r.life
	if !l.loop.Offer(ev) {
		r.fail("bounds", "the inbox is full")
	}
	r.turn(l)
}

// turn lets a life work until it has nothing to do, and sees that it is woken.
func (r *run) turn(l *life) {
	defer r.caught()
	for turns := 0; r.life == l && !r.over() && l.loop.Turn(r.agenda.Now()); turns++ {
		if turns > turnsMax {
			r.fail("busy", fmt.Sprintf("the agent wants to be called more than %d times at one "+
				"instant", turnsMax))
		}
	}
	wake := l.loop.Wake()
	if r.life != l || wake.IsZero() || !l.wakeAt.IsZero() && !wake.Before(l.wakeAt) {
		return
	}
	l.wakeAt = wake
	r.agenda.At(wake, func() {
		if r.life == l && l.wakeAt.Equal(wake) {
			l.wakeAt = time.Time{}
			r.turn(l)
		}
	})
}

// caught makes a broken invariant of the core a failure of the run.
func (r *run) caught() {
	if broken := recover(); broken != nil {
		r.fail("panic", fmt.Sprint(broken))
	}
}

// turnsMax and effectsPerPodMax bound what the agent may do without time going by, and in one
// second for each pod there is: an agent that goes in circles is found even if nothing else of it
// is wrong.
const (
	turnsMax         = 1000
	effectsPerPodMax = 60
)

// countEffects fails a run in which the agent does far more than there can be to do.
func (r *run) countEffects(effects int) {
	if second := r.agenda.Now().Truncate(time.Second); !second.Equal(r.second) {
		r.second, r.inSecond = second, 0
	}
	r.inSecond += effects
	if most := effectsPerPodMax * (1 + len(r.plan.Pods)); r.inSecond > most {
		r.fail("busy", fmt.Sprintf("more than %d effects in one second", most))
	}
}

// observe sees every step of the agent.
func (r *run) observe(l *life, ev world.Event, effects []world.Effect) {
	r.events++
	switch ev.Body.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		r.panel.Listed(r.agenda.Now(), false)
	case *runtimeapi.ListContainersResponse:
		r.panel.Listed(r.agenda.Now(), true)
	}
	r.countEffects(len(effects))
	r.hash.step(l.number, ev, effects)
	if r.opts.Watch != nil {
		r.opts.Watch(Step{Number: r.events, Life: l.number, Event: ev, Effects: effects,
			Hash: r.hash.sum(), Agent: l.agent})
	}
	if r.opts.RestoreAfter != nil && r.opts.RestoreAfter(r.events) {
		l.agent = restored(l.agent)
	}
	if r.opts.Until != 0 && r.events == r.opts.Until {
		r.stopped = true
		state, err := l.agent.Snapshot()
		if err != nil {
			panic(err)
		}
		r.state = state
	}
}

func restored(a *core.Agent) *core.Agent {
	data, err := a.Snapshot()
	if err != nil {
		panic("snapshot: " + err.Error())
	}
	again, err := core.Restore(data)
	if err != nil {
		panic("restore: " + err.Error())
	}
	return again
}
