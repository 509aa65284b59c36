package core

import (
	"time"

	"seedlet.dev/world"
)

// request answers what the node's HTTP API asks, in the same step.
func (a *Agent) request(ev world.Event) {
	switch body := ev.Body.(type) {
	case *world.PodsRequest:
		a.out.Tell(&world.PodsAnswer{Request: body.Request, Pods: a.list()})
	case *world.RunningPodsRequest:
		a.out.Tell(&world.RunningPodsAnswer{Request: body.Request, Pods: a.running()})
	case *world.ContainerRequest:
		a.out.Tell(a.meant(body))
	case *world.StateRequest:
		state, err := a.redacted()
		if err != nil {
			panic("core: the state cannot be written: " + err.Error())
		}
		a.out.Tell(&world.StateAnswer{Request: body.Request, State: state})
	case *world.HealthRequest:
		a.out.Tell(&world.HealthAnswer{Request: body.Request, Checks: a.health(ev.Time)})
	case *world.MetricsRequest:
		metrics := a.metrics
		if body.Probes {
			metrics = a.probeMetrics
		}
		a.out.Tell(&world.MetricsAnswer{Request: body.Request, Metrics: metrics()})
	default:
		panic("core: unexpected event " + world.BodyName(ev.Body))
	}
}

// health is the checks that the core can answer for. That it answers at all is the sync loop's.
func (a *Agent) health(now time.Time) []world.Check {
	return []world.Check{
		{Name: "syncloop"},
		{Name: "pleg", Problem: a.state.Relist.Health(&a.state.Events, now,
			a.state.Booted)},
	}
}
