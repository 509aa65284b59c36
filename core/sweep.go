package core

import (
	"slices"

	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// view is what housekeeping goes by.
func (a *Agent) view() housekeeping.View {
	return housekeeping.View{
		Known: a.known, Owned: a.owned, Cgroups: &a.state.Node.Cgroups, AsOf: a.state.Relist.AsOf,
	}
}

// owned says whether a cgroup that is called by a UID may be that of a known pod.
func (a *Agent) owned(uid string) bool {
	layout := &a.state.Node.Cgroups
	return slices.ContainsFunc(a.uids, func(known string) bool { return layout.Same(known, uid) })
}

// swept says whether housekeeping is removing something that may be a pod's.
func (a *Agent) swept(uid string) bool {
	return a.state.Sweep.Takes(uid, &a.state.Node.Cgroups)
}

// sweptAnswered takes an answer to housekeeping, for which pods may have waited.
func (a *Agent) sweptAnswered(r op.Record, ev world.Event) {
	for _, uid := range a.uids {
		if a.swept(uid) {
			a.touchPod(uid)
		}
	}
	a.state.Sweep.Answered(r, ev, a.view())
}

// looked says whether it is known what earlier agents have left: what runs, and which pods were
// begun. Before that no pod is asked whether there is room for it.
func (a *Agent) looked() bool { return !a.state.Relist.AsOf.IsZero() && a.state.Begun.Listed }

// begunAnswered takes which pods were begun. Others may have waited for that.
func (a *Agent) begunAnswered(ev world.Event) {
	a.state.Begun.Answered(ev, &a.out)
	if a.looked() {
		a.bindAll(ev.Time)
		a.reconcile(ev.Time)
	}
}
