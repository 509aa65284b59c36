package core

import (
	"slices"
	"time"

	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// planLogs plans the log rotation or the search for dangling links, once it is known which
// containers run.
func (a *Agent) planLogs(key timer.Key) time.Time {
	switch {
	case !a.hasListedEverything():
		return time.Time{}
	case key == logs.LinksOwner:
		return a.state.LogLinks.Plan(a.needsLink, &a.effects)
	}
	return a.state.LogRotation.Plan(runningContainers{a}, &a.effects)
}

func (a *Agent) handleLogsCompletion(id world.OpID, r op.Record, ev world.Event) {
	if r.Owner == logs.LinksOwner {
		a.state.LogLinks.HandleCompletion(r, ev, a.needsLink)
		return
	}
	a.state.LogRotation.HandleCompletion(id, r, ev, &a.effects)
}

// needsLink reports whether a link to a log is kept. The pod of the link decides, if it is known;
// otherwise a link is kept as long as its log exists. Those of a pod that is set aside are kept.
func (a *Agent) needsLink(l logs.Link) bool {
	p := a.state.Pods[l.UID]
	if p == nil {
		return !l.Dangling || a.isSetAside(l.UID)
	}
	previous := a.workOn(l.UID)
	needed := p.NeedsLink(l)
	a.workOn(previous)
	return needed
}

// runningContainers gives the log rotation the containers that run.
type runningContainers struct{ *Agent }

func (a runningContainers) NextLog(after logs.Cursor) (logs.Target, bool) {
	i, _ := slices.BinarySearch(a.podUIDs, after.UID)
	for ; i < len(a.podUIDs); i++ {
		container := ""
		if a.podUIDs[i] == after.UID {
			container = after.Container
		}
		previous := a.workOn(a.podUIDs[i])
		t, ok := a.state.Pods[a.podUIDs[i]].NextLog(container, &a.state.Node)
		a.workOn(previous)
		if ok {
			return t, true
		}
	}
	return logs.Target{}, false
}

func (a runningContainers) IsRunning(t logs.Target) bool {
	p := a.state.Pods[t.UID]
	return p != nil && p.HasLiveContainer(t.ID)
}
