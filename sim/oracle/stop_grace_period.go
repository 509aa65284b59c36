package oracle

import (
	"time"

	"seedlet.dev/sim/truth"
)

// gracePeriod fires when the agent has a process killed that was not asked to stop, or not long
// enough ago. If the grace period changed, the shortest counts; it begins with the preStop hook.
// A process that has just started is not checked: the agent may have given up the start, or may
// have died since, and cannot know of the process.
type gracePeriod struct{}

func (*gracePeriod) describe() Entry {
	return Entry{"grace-period", "The agent has a process killed, or anything removed under " +
		"it, only after the process was asked to stop and had its grace period."}
}

const (
	// startNoticeBound is how long a process may be unknown to the agent after its start: a list
	// of containers, and the transit of a request to the runtime.
	startNoticeBound = 30 * time.Second
	graceSlack       = 10 * time.Millisecond
)

func (*gracePeriod) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if c == nil || c.state != running {
		return nil
	}
	if f.Kind == truth.ContainerRemoved {
		return findingf("%s was removed while it ran", c)
	}
	if f.Kind != truth.KillRequested || !isByAgent(f.Cause) {
		return nil
	}
	if f.Cause == truth.CauseSandbox && c.pod.timesRemoved > 0 && c.pod.spec != nil {
		return nil // a delayed request, of an agent that died while the manifest was gone
	}
	least := m.minGrace(c, f.Time)
	if c.stopRequestedAt.IsZero() {
		if least == 0 || f.Cause != truth.CauseStop && f.Time.Sub(c.startedAt) < startNoticeBound {
			return nil
		}
		return findingf("%s was killed (cause: %s) without having been "+
			"asked to stop", c, f.Cause)
	}
	// The hook's time is part of the grace period, but for a minimum after it.
	least = max(least-m.preStopTime(c), min(least, minStopGrace))
	waited := f.Time.Sub(c.stopRequestedAt)
	if waited >= least-graceSlack {
		return nil
	}
	return findingf("%s was killed (cause: %s) %v after it was asked to "+
		"stop, it had %v", c, f.Cause, waited.Round(time.Millisecond), least)
}

// isByAgent reports whether a process is killed on a request of the agent.
func isByAgent(cause string) bool {
	switch cause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove:
		return true
	}
	return false
}
