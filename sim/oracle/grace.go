package oracle

import (
	"fmt"
	"time"

	"seedlet.dev/sim/truth"
)

// grace fires when the agent has a process killed that was not asked to end, or not long enough
// ago. Where the grace period was changed, the shortest counts, and it begins with the preStop
// hook. A process that has only just started is no business of this oracle: the agent had given it
// up when it started it, or has died since, and could not know.
type grace struct{}

func (*grace) entry() Entry {
	return Entry{"grace", "The agent has no process killed, and nothing removed under it, before " +
		"it was asked to end and had its grace period."}
}

const (
	// unknowable is how long after its start a process may be unknown to the agent: a list of
	// containers, and the way of a request to the runtime.
	unknowable = 30 * time.Second
	graceSlack = 10 * time.Millisecond
)

func (*grace) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if c == nil || c.state != running {
		return nil
	}
	if f.Kind == truth.ContainerRemoved {
		return &finding{message: fmt.Sprintf("%s was removed while it ran", c)}
	}
	if f.Kind != truth.KillRequested || !byAgent(f.Cause) {
		return nil
	}
	if f.Cause == truth.CauseSandbox && c.pod.removals > 0 && c.pod.spec != nil {
		return nil // a stop of when the manifest was gone, by an agent that has died, came late
	}
	due := w.graceDue(c, f.Time)
	if c.stopAt.IsZero() {
		if due == 0 || f.Cause != truth.CauseStop && f.Time.Sub(c.startedAt) < unknowable {
			return nil
		}
		return &finding{message: fmt.Sprintf("%s was killed (cause: %s) without having been "+
			"asked to end", c, f.Cause)}
	}
	// A hook takes its time from the grace period, but for a little of it.
	due = max(due-w.hookTime(c), min(due, stopGraceMin))
	had := f.Time.Sub(c.stopAt)
	if had >= due-graceSlack {
		return nil
	}
	return &finding{message: fmt.Sprintf("%s was killed (cause: %s) %v after it was asked to "+
		"end, it had %v left", c, f.Cause, had.Round(time.Millisecond), due)}
}

// byAgent says whether a process is killed because of a request of the agent.
func byAgent(cause string) bool {
	switch cause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove:
		return true
	}
	return false
}
