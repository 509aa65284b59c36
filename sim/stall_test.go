package sim

import (
	"testing"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// A paused agent handles no event and issues no effect. Afterwards it handles those that have
// waited, so that a container that exited meanwhile is restarted.
func TestAgentStalls(t *testing.T) {
	const from, span = 10 * time.Second, 15 * time.Second
	end := plan.Start.Add(from + span)
	steps, resumed := 0, 0
	_, facts := calmRun(t, Options{Watch: func(s Step) {
		switch at := s.Event.Time; {
		case at.After(plan.Start.Add(from)) && at.Before(end):
			steps++
		case at.Equal(end):
			resumed++
		}
	}},
		plan.Happening{At: plan.Duration(from), Fault: &plan.FaultWindow{ID: "stall",
			For: plan.Duration(span), Class: plan.FaultAgentStalls}},
		plan.Happening{At: plan.Duration(from + time.Second),
			KillContainer: &plan.ContainerKill{Pod: "web-0", Container: "app", ExitCode: 1}},
	)
	var restarted time.Time
	for _, f := range facts {
		if f.Kind == truth.ContainerStarted && f.Attempt == 1 {
			restarted = f.Time
		}
	}
	if steps != 0 || resumed == 0 {
		t.Errorf("%d steps while the agent is paused, %d at its end", steps, resumed)
	}
	if restarted.Before(end) || restarted.After(end.Add(20*time.Second)) {
		t.Errorf("the container that exits meanwhile is restarted at %v, the pause ends at %v",
			restarted, end)
	}
}
