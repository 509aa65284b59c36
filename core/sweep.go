package core

import (
	"slices"

	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/op"
	"seedlet.dev/core/status"
	"seedlet.dev/world"
)

// view is what housekeeping goes by. What a pod that waits to be taken has here is not an orphan:
// an earlier agent may have taken it, and asked for more that comes late.
func (a *Agent) view() housekeeping.View {
	layout := &a.state.Node.Cgroups
	return housekeeping.View{
		Known: func(uid string) bool { return a.known(uid) || slices.Contains(a.waiting(), uid) },
		Owned: func(uid string) bool {
			is := func(other string) bool { return layout.Same(other, uid) }
			return slices.ContainsFunc(a.uids, is) || slices.ContainsFunc(a.waiting(), is)
		},
		Cgroups: layout, AsOf: a.state.Relist.AsOf,
	}
}

// waiting are the UIDs of the pods that are wanted, and may yet be taken.
func (a *Agent) waiting() []string {
	s, uids := &a.state, []string(nil)
	may := func(uid string, refused map[string]Refusal) bool {
		why, is := refused[uid]
		return !a.known(uid) && (!is || why.Waits)
	}
	for name, uid := range s.Bound { //ordered: a set
		if may(uid, s.Rejected) && !status.Terminal(&a.boundPod(name).Status) {
			uids = append(uids, uid)
		}
	}
	for _, p := range s.Manifests.Pods() {
		if uid := string(p.UID); may(uid, s.Refused) {
			uids = append(uids, uid)
		}
	}
	return uids
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
