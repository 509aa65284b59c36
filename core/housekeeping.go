package core

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/op"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/world"
)

// housekeepingEnv returns the facts that housekeeping decides by. The directories of a pod that
// awaits admission are not orphaned: an earlier agent may have admitted it, and operations of that
// agent may still take effect. The pods are looked at once for all candidates.
func (a *Agent) housekeepingEnv() housekeeping.Env {
	layout := &a.state.Node.Cgroups
	var awaiting, cgroups map[string]bool // nil until they are needed
	return housekeeping.Env{
		IsKnownPod: func(uid string) bool {
			if awaiting == nil {
				awaiting = map[string]bool{}
				for _, waiting := range a.podsAwaitingAdmission() {
					awaiting[waiting] = true
				}
			}
			return a.isKnownPod(uid) || a.isSetAside(uid) || awaiting[uid]
		},
		HasVolumes: a.holdsVolumes,
		MayOwnCgroup: func(uid string) bool {
			if cgroups == nil {
				cgroups = map[string]bool{}
				for _, owner := range slices.Concat(a.podUIDs, a.setAsideUIDs(),
					a.podsAwaitingAdmission()) {
					cgroups[layout.CanonicalUID(owner)] = true
				}
			}
			return cgroups[layout.CanonicalUID(uid)]
		},
		Cgroups: layout, RuntimeListedAt: a.state.Relist.AsOf,
	}
}

// podsAwaitingAdmission returns the UIDs of the pods that are desired, and may still be admitted.
func (a *Agent) podsAwaitingAdmission() []string {
	s, uids := &a.state, []string(nil)
	isAwaiting := func(uid string, rejections map[string]Rejection) bool {
		rejection, isRejected := rejections[uid]
		return !a.isKnownPod(uid) && (!isRejected || rejection.Phase == v1.PodPending)
	}
	for name, uid := range s.APIPodUIDs { //ordered: a set
		object := a.apiPod(name)
		if object != nil && isAwaiting(uid, s.APIRejections) && !statuswriter.IsTerminal(&object.Status) {
			uids = append(uids, uid)
		}
	}
	for _, p := range s.Manifests.Pods() {
		if uid := string(p.UID); isAwaiting(uid, s.StaticRejections) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// isBeingCleanedUp reports whether housekeeping is removing something that may belong to a pod.
func (a *Agent) isBeingCleanedUp(uid string) bool {
	return a.state.Housekeeping.IsRemoving(uid, &a.state.Node.Cgroups)
}

// handleHousekeepingCompletion handles the completion of an operation of housekeeping. Pods whose
// directory or cgroup was being removed wait for it.
func (a *Agent) handleHousekeepingCompletion(r op.Record, ev world.Event) {
	for _, uid := range a.podUIDs {
		if a.isBeingCleanedUp(uid) {
			a.enqueuePod(uid)
		}
	}
	a.state.Housekeeping.HandleCompletion(r, ev, a.housekeepingEnv(), &a.effects)
	if r.Call == "Unmount" {
		a.noteUnmounted()
	}
	if r.Call == "Unmount" && a.state.HasAPIServer { // of the directory of a pod that is not known
		a.state.Blocks.NoteOrphan()
		a.enqueueBlocks()
	}
}
