// Package sweep runs one calm plan again and again, each time with a strike right after another of
// the agent's effects that change something, as databases are tested with a crash after each write.
// The agent changes nothing between two of them, so a sweep tries every moment that makes a
// difference.
//
// Start reading at Points.
package sweep

import (
	"fmt"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// Strike is what happens after an effect.
type Strike string

// The strikes.
const (
	KillAgent      Strike = "kill"
	Reboot         Strike = "reboot"
	RestartRuntime Strike = "runtime-restart"
)

// Strikes are all strikes.
var Strikes = []Strike{KillAgent, Reboot, RestartRuntime}

// down is how long the target of a strike is down: long enough for the calls in flight to end.
const down = plan.Duration(3 * time.Second)

// Point is an effect of the calm run that changes something, before the faults would heal.
type Point struct {
	Nth  int // of the effects that change something, from 1
	Call string
}

// Points runs the calm version of a plan, and returns the effects to strike after. The run must not
// fail.
func Points(p *plan.Plan) ([]Point, error) {
	var points []Point
	changes := 0
	healed := false
	calm := p.Calm()
	verdict, err := sim.Run(calm, sim.Options{
		Watch: func(s sim.Step) {
			healed = s.Event.Time.Sub(plan.Start) >= time.Duration(calm.Spec.Duration)
		},
		WatchEffect: func(eff world.Effect) {
			call := world.CallName(eff.Body)
			if plan.ChangesSomething(call) {
				changes++
				if !healed {
					points = append(points, Point{changes, call})
				}
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if f := verdict.Failure; f != nil {
		return nil, fmt.Errorf("the plan fails without a strike: %s: %s", f.Oracle, f.Message)
	}
	return points, nil
}

// WithStrike returns the calm version of a plan with a strike right after an effect.
func WithStrike(p *plan.Plan, s Strike, after Point) *plan.Plan {
	with := p.Calm()
	h := plan.Happening{When: &plan.Anchor{Effect: plan.AnyChange, Nth: after.Nth}}
	switch s {
	case KillAgent:
		h.KillAgent = &plan.AgentKill{Down: down}
	case Reboot:
		h.Reboot = &plan.Reboot{Down: down}
	case RestartRuntime:
		h.RestartRuntime = &plan.RuntimeRestart{Down: down}
	}
	with.Spec.Happenings = append(with.Spec.Happenings, h)
	return with
}
