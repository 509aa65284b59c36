package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// The probes of containers, and what follows from their results. The facts belong to one container
// of the runtime. Once the stop of a container or the termination of its pod has started, no
// startup or liveness probe is issued (upstream #98571, #141766, StopLivenessAndStartup in
// prober_manager.go). Readiness probes go on until the container has exited: a terminating
// endpoint that still serves differs from one that does not (KEP-1672).

// prober returns the facts about one of the container's probes.
func (c *Container) prober(kind probe.Kind) *probe.Prober {
	for i := range c.Probers {
		if c.Probers[i].Kind == kind {
			return &c.Probers[i]
		}
	}
	c.Probers = append(c.Probers, probe.Prober{Kind: kind})
	return &c.Probers[len(c.Probers)-1]
}

// probeResult returns the result of one of the container's probes.
func (c *Container) probeResult(kind probe.Kind) probe.Result {
	for i := range c.Probers {
		if c.Probers[i].Kind == kind {
			return c.Probers[i].Result
		}
	}
	return probe.Unknown
}

// Health is whether a container counts as running, started and ready.
type Health struct{ Running, Started, Ready bool }

// health returns the health of a container whose hook and probes have come as far as record says. A
// container counts as running once its postStart hook has completed, as started once its startup
// probe has succeeded as well, and as ready once its readiness probe has succeeded too.
func (p *Pod) health(c *Container, record ContainerRecord) Health {
	container, h := p.specContainer(c.Name), Health{Running: c.State == Running}
	if container != nil {
		h.Running = h.Running && (!hasPostStart(container) || record.PostStarted || c.PostStart.Skip)
		h.Started = h.Running && (container.StartupProbe == nil || record.Started)
		h.Ready = h.Started && (container.ReadinessProbe == nil || record.Ready)
	}
	return h
}

func hasPostStart(container *v1.Container) bool {
	return container.Lifecycle != nil && container.Lifecycle.PostStart != nil
}

// currentHealth returns the health of a container, whether or not it is durable and may be
// reported.
func (p *Pod) currentHealth(c *Container) Health { return p.health(c, p.containerRecord(c)) }

// runProbes issues the probes of running containers that are due.
func (p *Pod) runProbes(env *Env, w *wakeTimer) {
	for i := range p.Containers {
		c := &p.Containers[i]
		container := p.specContainer(c.Name)
		if c.State != Running || c.Inspected != Running || container == nil {
			continue
		}
		health := p.currentHealth(c)
		switch {
		case health.Running && !health.Started && !p.isEnding(c):
			p.issueProbe(c, container.StartupProbe, probe.Startup, env, w)
		case health.Started && !p.isEnding(c):
			p.issueProbe(c, container.LivenessProbe, probe.Liveness, env, w)
		}
		if health.Started {
			p.issueProbe(c, container.ReadinessProbe, probe.Readiness, env, w)
		}
	}
}

// isEnding reports whether a container is being stopped, alone or with its pod: its startup and
// liveness do not matter any more.
func (p *Pod) isEnding(c *Container) bool { return p.Stage != Syncing || c.Stop != nil }

// issueProbe issues a probe if it is due.
func (p *Pod) issueProbe(c *Container, spec *v1.Probe, kind probe.Kind, env *Env, w *wakeTimer) {
	if spec == nil {
		return
	}
	pr := c.prober(kind)
	target, known := p.probeTarget(c, env.Node)
	if pr.Op != 0 || !known && spec.Exec == nil || w.waitUntil(pr.NextProbeAt(spec, c.startTime())) {
		return
	}
	timeout := probeTimeout(spec)
	body, err := p.probeRequest(c, spec, target)
	if err != nil {
		pr.Issued(0, spec, env.Effects.Now())
		pr.Message = budget.Cut(err.Error(), probe.MessageMax)
		p.recordEvent(env, c.Name, warning, reasonUnhealthy, messageProbeErrored, kind, pr.Message)
		w.waitUntil(pr.NextAt)
		return
	}
	if spec.Exec != nil {
		timeout += env.Node.RuntimeTimeout // the runtime enforces the probe's timeout
	}
	pr.Issued(env.Effects.Issue(p.Key(), c.ID+" "+string(kind), timeout, body), spec,
		env.Effects.Now())
}

// probeTimeout returns how long a probe may take.
func probeTimeout(spec *v1.Probe) time.Duration {
	return seconds(int64(max(spec.TimeoutSeconds, 1)))
}

// probeRequest returns the request of a probe, with its command expanded.
func (p *Pod) probeRequest(c *Container, spec *v1.Probe, target probe.Target) (any, error) {
	handler := spec.ProbeHandler
	if handler.Exec != nil {
		command, err := criconfig.ProbeCommand(p.specContainer(c.Name), handler.Exec.Command)
		if err != nil {
			return nil, err
		}
		handler.Exec = &v1.ExecAction{Command: command}
	}
	return probe.NewRequest(&handler, target, probeTimeout(spec))
}

// probeTarget returns where a container's probes and hooks are sent; false while its address is not
// known.
func (p *Pod) probeTarget(c *Container, node *Node) (probe.Target, bool) {
	target := probe.Target{ContainerID: c.ID, Ports: c.Ports}
	s := p.sandboxByID(c.SandboxID)
	if s != nil && s.Ready && !s.Inspected {
		return target, false
	}
	switch {
	case s != nil && len(s.IPs) > 0:
		target.Host = sortIPs(s.IPs, node.IPs)[0]
	case len(node.IPs) > 0:
		target.Host = node.IPs[0] // the pod has the node's network
	default:
		target.Host = "127.0.0.1"
	}
	return target, true
}

// handleProbeResult handles the completion of a probe.
func (p *Pod) handleProbeResult(c *Container, kind probe.Kind, r op.Record, ev world.Event,
	env *Env) {
	container, pr := p.specContainer(c.Name), c.prober(kind)
	pr.Op = 0
	if container == nil || probe.SpecOf(container, kind) == nil ||
		kind != probe.Readiness && p.isEnding(c) || c.Stop != nil && c.State == Exited {
		return
	}
	spec := probe.SpecOf(container, kind)
	result, message := probe.Interpret(r, ev)
	if result == probe.Failure && ev.Err.Has(world.KindTimeout) {
		target, _ := p.probeTarget(c, env.Node)
		request, _ := p.probeRequest(c, spec, target)
		message = probe.TimeoutMessage(request, probeTimeout(spec))
	}
	message = budget.CutMessage(message)
	switch {
	case result == probe.Unknown && probe.IsRetryable(r, ev) && pr.HandleError():
		return
	case result == probe.Failure:
		p.recordEvent(env, c.Name, warning, reasonUnhealthy, "%s probe failed: %s", kind, message)
	case result == probe.Success && message != "":
		p.recordEvent(env, c.Name, warning, "ProbeWarning", "%s probe warning: %s", kind, message)
	case result == probe.Unknown && !ev.Err.Has(world.KindCanceled):
		p.recordEvent(env, c.Name, warning, reasonUnhealthy, messageProbeErrored, kind,
			budget.CutMessage(ev.Err.Message))
	}
	if !pr.HandleCompletion(spec, result, message) {
		return
	}
	level, text := world.LevelDebug, "probe succeeds"
	if pr.Result == probe.Failure {
		level, text = world.LevelInfo, "probe fails"
	}
	env.Effects.Log(level, text, "pod", p.FullName(), "containerName", c.Name, "containerID", c.ID,
		"probe", string(kind), "message", pr.Message)
}

const (
	reasonUnhealthy     = "Unhealthy"
	messageProbeErrored = "%s probe errored and resulted in unknown state: %s"
)

// unhealthyReason returns the reason why a running container has to be stopped and restarted, and
// its grace period; empty if the container is healthy.
func (p *Pod) unhealthyReason(c *Container, container *v1.Container) (string, time.Duration) {
	for _, kind := range []probe.Kind{probe.Startup, probe.Liveness} {
		spec := probe.SpecOf(container, kind)
		if spec == nil || c.probeResult(kind) != probe.Failure {
			continue
		}
		grace := p.GracePeriod()
		if spec.TerminationGracePeriodSeconds != nil { // KEP-2238
			grace = seconds(*spec.TerminationGracePeriodSeconds)
		}
		reason := stopReasonLiveness
		if kind == probe.Startup {
			reason = stopReasonStartup
		}
		if p.shouldRestartOnFailure(container) {
			reason += stopReasonRestartSuffix
		}
		return reason, grace
	}
	if c.PostStart.Failure != "" {
		return stopReasonPostStartHook, p.GracePeriod()
	}
	return "", 0
}

// stopUnhealthy stops the containers that are unhealthy. A stop that has started goes on even if
// the spec changes meanwhile, because the container is no longer probed. If the sandbox is not
// ready, all containers are stopped, in the order of stopAllContainers.
func (p *Pod) stopUnhealthy(env *Env, w *wakeTimer) {
	sandbox := p.CurrentSandbox()
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Stop != nil && c.isLive() && sandbox != nil && sandbox.Ready {
			p.stopContainer(c, c.Stop.Grace, c.Stop.Reason, env, w)
		}
		container := p.specContainer(c.Name)
		if c.State != Running || container == nil {
			continue
		}
		reason, grace := p.unhealthyReason(c, container)
		if reason == "" {
			continue
		}
		if p.stopContainer(c, grace, reason, env, w); c.Stop != nil && c.PostStart.Failure == "" {
			c.Stop.Unhealthy = true
		}
	}
}
