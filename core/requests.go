package core

import (
	"time"

	"seedlet.dev/world"
)

// handleRequest responds to a request of the HTTP API in the same step.
func (a *Agent) handleRequest(ev world.Event) {
	switch body := ev.Body.(type) {
	case *world.PodsRequest:
		a.effects.Emit(&world.PodsAnswer{Request: body.Request, Pods: a.listServedPods()})
	case *world.RunningPodsRequest:
		a.effects.Emit(&world.RunningPodsAnswer{Request: body.Request, Pods: a.servedRunningPods()})
	case *world.ContainerRequest:
		a.effects.Emit(a.resolveContainer(body))
	case *world.VolumeStatsRequest:
		a.effects.Emit(&world.VolumeStatsAnswer{Request: body.Request,
			Volumes: a.state.VolumeStats.List()})
	case *world.StateRequest:
		state, err := a.redactedSnapshot()
		if err != nil {
			panic("core: the state cannot be written: " + err.Error())
		}
		a.effects.Emit(&world.StateAnswer{Request: body.Request, State: state})
	case *world.HealthRequest:
		a.effects.Emit(&world.HealthAnswer{Request: body.Request, Checks: a.healthChecks(ev.Time)})
	case *world.MetricsRequest:
		metrics := a.listMetrics
		if body.Probes {
			metrics = a.listProbeMetrics
		}
		a.effects.Emit(&world.MetricsAnswer{Request: body.Request, Metrics: metrics()})
	default:
		panic("core: unexpected event " + world.BodyName(ev.Body))
	}
}

// healthChecks returns the health checks that the core knows the result of. The sync loop is
// healthy if the core responds at all.
func (a *Agent) healthChecks(now time.Time) []world.Check {
	return []world.Check{
		{Name: "syncloop"},
		{Name: "pleg", Problem: a.state.Relist.Health(&a.state.EventStream, now,
			a.state.BootedAt)},
	}
}
