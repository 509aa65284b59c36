package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// How containers are: their probes, and what follows from them. All of it belongs to one container
// of the runtime; nothing of it is asked once its end has begun (upstream #98571, #141766).

// prober is the facts of one of a container's probes.
func (c *Container) prober(kind probe.Kind) *probe.Prober {
	for i := range c.Probers {
		if c.Probers[i].Kind == kind {
			return &c.Probers[i]
		}
	}
	c.Probers = append(c.Probers, probe.Prober{Kind: kind})
	return &c.Probers[len(c.Probers)-1]
}

// result is what one of a container's probes has come to.
func (c *Container) result(kind probe.Kind) probe.Result {
	for i := range c.Probers {
		if c.Probers[i].Kind == kind {
			return c.Probers[i].Result
		}
	}
	return probe.Undecided
}

// Health is how a container is.
type Health struct{ Running, Started, Ready bool }

// health is how a container is that is as far as a mark says. It counts as running once its
// postStart hook is over, as started once it has passed its startup probe as well, and as ready
// if it passes its readiness probe besides.
func (p *Pod) health(c *Container, mark Mark) Health {
	want, h := p.want(c.Name), Health{Running: c.State == Running}
	if want != nil {
		h.Running = h.Running && (!hasPostStart(want) || mark.PostStarted || c.PostStart.Void)
		h.Started = h.Running && (want.StartupProbe == nil || mark.Started)
		h.Ready = h.Started && (want.ReadinessProbe == nil || mark.Ready)
	}
	return h
}

func hasPostStart(want *v1.Container) bool {
	return want.Lifecycle != nil && want.Lifecycle.PostStart != nil
}

// is is how a container is, whether or not that may be told yet.
func (p *Pod) is(c *Container) Health { return p.health(c, p.mark(c)) }

// probes asks the containers that run how they are.
func (p *Pod) probes(env *Env, w *waits) {
	for i := range p.Containers {
		c := &p.Containers[i]
		want := p.want(c.Name)
		if c.State != Running || c.Inspected != Running || c.Stop != nil || want == nil {
			continue
		}
		health := p.is(c)
		if !health.Running {
			continue
		}
		if !health.Started {
			p.ask(c, want.StartupProbe, probe.Startup, env, w)
			continue
		}
		p.ask(c, want.LivenessProbe, probe.Liveness, env, w)
		p.ask(c, want.ReadinessProbe, probe.Readiness, env, w)
	}
}

// ask asks one question if it is time.
func (p *Pod) ask(c *Container, spec *v1.Probe, kind probe.Kind, env *Env, w *waits) {
	if spec == nil {
		return
	}
	pr := c.prober(kind)
	target, known := p.target(c, env.Node)
	if pr.Op != 0 || !known && spec.Exec == nil || w.pending(pr.Due(spec, c.began())) {
		return
	}
	timeout := time.Duration(max(spec.TimeoutSeconds, 1)) * time.Second
	body, err := probe.Request(&spec.ProbeHandler, target, timeout)
	if err != nil {
		pr.Asked(0, spec, env.Out.Now())
		pr.Message = err.Error()
		p.event(env, c.Name, warning, unhealthy, probeErrored, kind, pr.Message)
		w.pending(pr.NextAt)
		return
	}
	if spec.Exec != nil {
		timeout += env.Node.RuntimeTimeout // the runtime sees to the timeout
	}
	pr.Asked(env.Out.Ask(p.Key(), c.ID+" "+string(kind), timeout, body), spec, env.Out.Now())
}

// target is where a container can be asked; false while that is not known.
func (p *Pod) target(c *Container, node *Node) (probe.Target, bool) {
	to := probe.Target{ContainerID: c.ID, Ports: c.Ports}
	s := p.sandbox(c.SandboxID)
	if s != nil && s.Ready && !s.Inspected {
		return to, false
	}
	switch {
	case s != nil && len(s.IPs) > 0:
		to.Host = s.IPs[0]
	case len(node.IPs) > 0:
		to.Host = node.IPs[0] // it has the node's network
	default:
		to.Host = "127.0.0.1"
	}
	return to, true
}

// probed takes the answer to a probe.
func (p *Pod) probed(c *Container, kind probe.Kind, r op.Record, ev world.Event, env *Env) {
	want, pr := p.want(c.Name), c.prober(kind)
	pr.Op = 0
	if want == nil || probe.Of(want, kind) == nil || c.Stop != nil {
		return
	}
	answer, message := probe.Judge(r, ev)
	switch {
	case answer == probe.Bad:
		p.event(env, c.Name, warning, unhealthy, "%s probe failed: %s", kind, message)
	case answer == probe.Undecided && !ev.Err.Has(world.KindCanceled):
		p.event(env, c.Name, warning, unhealthy, probeErrored, kind, ev.Err.Message)
	}
	if !pr.Answered(probe.Of(want, kind), answer, message) {
		return
	}
	if got, is := ev.Body.(*world.HTTPGot); is && got.Elsewhere { // at every answer is too often
		p.event(env, c.Name, warning, "ProbeWarning",
			"%s probe warning: Probe terminated redirects", kind)
	}
	level, text := world.LevelDebug, "probe succeeds"
	if pr.Result == probe.Bad {
		level, text = world.LevelInfo, "probe fails"
	}
	env.Out.Log(level, text, "pod", p.FullName(), "container", c.Name, "id", c.ID,
		"probe", string(kind), "message", pr.Message)
}

const (
	unhealthy    = "Unhealthy"
	probeErrored = "%s probe errored and resulted in unknown state: %s"
)

// ail says why a container that runs has to be ended and run anew, and how long that may take;
// empty if it is well.
func (p *Pod) ail(c *Container, want *v1.Container) (string, time.Duration) {
	for _, kind := range []probe.Kind{probe.Startup, probe.Liveness} {
		spec := probe.Of(want, kind)
		if spec == nil || c.result(kind) != probe.Bad {
			continue
		}
		grace := p.grace()
		if spec.TerminationGracePeriodSeconds != nil { // KEP-2238
			grace = seconds(*spec.TerminationGracePeriodSeconds)
		}
		why := stopLiveness
		if kind == probe.Startup {
			why = stopStartup
		}
		if p.restartsFailed(want) {
			why += stopRestarts
		}
		return why, grace
	}
	if c.PostStart.Failed != "" {
		return stopHook, p.grace()
	}
	return "", 0
}

// stopAiling ends the containers that are not well. An end that has begun goes on, even if the
// spec that it was for is another one now: nobody looks after such a container any more. When
// all end, because their sandbox is not ready, they do so in their order.
func (p *Pod) stopAiling(env *Env, w *waits) {
	sandbox := p.current()
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Stop != nil && c.live() && sandbox != nil && sandbox.Ready {
			p.stop(c, c.Stop.Grace, c.Stop.Reason, env, w)
		}
		want := p.want(c.Name)
		if c.State != Running || want == nil {
			continue
		}
		why, grace := p.ail(c, want)
		if why == "" {
			continue
		}
		if p.stop(c, grace, why, env, w); c.Stop != nil && c.PostStart.Failed == "" {
			c.Stop.Ailing = true
		}
	}
}
