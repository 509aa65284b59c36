package sim

import (
	"strings"

	"seedlet.dev/sim/runtime"
)

// behaviours finds the script of each process in the plan.
type behaviours map[[2]string][]Script

func newBehaviours(plan *Plan) behaviours {
	b := behaviours{}
	for _, s := range plan.Scripts {
		b[[2]string{s.Pod, s.Container}] = s.Runs
	}
	return b
}

// script is what one process does. It is chosen by how often the container has been started,
// as the world counts, so that what happens does not depend on how the agent counts.
func (b behaviours) script(i runtime.Instance) runtime.Script {
	runs := b[[2]string{strings.TrimSuffix(i.PodName, "-"+nodeName), i.Container}]
	if len(runs) == 0 {
		return runtime.Script{}
	}
	s := runs[min(i.Starts, len(runs)-1)]
	return runtime.Script{
		Runs: s.Runs.Duration, ExitCode: s.ExitCode,
		StopTakes: s.StopTakes.Duration, IgnoresTerm: s.IgnoresTerm,
	}
}
