package core

import (
	"slices"

	"seedlet.dev/core/housekeeping"
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

// touchSwept touches the pods that have waited for housekeeping.
func (a *Agent) touchSwept() {
	for _, uid := range a.uids {
		if a.swept(uid) {
			a.touchPod(uid)
		}
	}
}
