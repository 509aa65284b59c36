package core

import (
	"slices"
	"time"

	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// planLogs goes on with the rotation of logs or the search for dangling links, once it is known
// which containers run.
func (a *Agent) planLogs(key timer.Key) time.Time {
	switch {
	case !a.seenAll():
		return time.Time{}
	case key == logs.LinksOwner:
		return a.state.Links.Plan(a.keepsLink, &a.out)
	}
	return a.state.Rotation.Plan(writers{a}, &a.out)
}

func (a *Agent) logsAnswered(id world.OpID, r op.Record, ev world.Event) {
	if r.Owner == logs.LinksOwner {
		a.state.Links.Answered(r, ev, a.keepsLink)
		return
	}
	a.state.Rotation.Answered(id, r, ev, &a.out)
}

// keepsLink is about a link whose pod is known as that pod has it. Otherwise what it leads to is
// there to be read.
func (a *Agent) keepsLink(l logs.Link) bool {
	if p := a.state.Pods[l.UID]; p != nil {
		return p.KeepsLink(l.ID, l.Dangling)
	}
	return !l.Dangling
}

// writers are the running containers, as the rotation wants them.
type writers struct{ *Agent }

func (a writers) NextLog(after logs.Cursor) (logs.Target, bool) {
	i, _ := slices.BinarySearch(a.uids, after.UID)
	for ; i < len(a.uids); i++ {
		container := ""
		if a.uids[i] == after.UID {
			container = after.Container
		}
		if t, ok := a.state.Pods[a.uids[i]].NextLog(container, &a.state.Node); ok {
			return t, true
		}
	}
	return logs.Target{}, false
}

func (a writers) Writes(t logs.Target) bool {
	p := a.state.Pods[t.UID]
	return p != nil && p.Runs(t.ID)
}
