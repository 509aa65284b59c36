package sim

import (
	"slices"
	"time"

	"seedlet.dev/sim/apiserver"
	"seedlet.dev/world"
)

// The classes of faults between the agent and the API server.
const (
	ClassThrottled    Class = "api-throttled"    // too many requests; Takes is when to come again
	ClassServerDown   Class = "api-down"         // it refuses connections, and begins anew
	ClassPartition    Class = "api-partition"    // the network loses everything
	ClassUnauthorized Class = "api-unauthorized" // it does not know the agent
	ClassWatchLag     Class = "watch-lag"        // watches are told later, by Takes
	ClassWatchGap     Class = "watch-gap"        // watches break, and cannot go on where they were
)

var apiClasses = []Class{
	ClassThrottled, ClassServerDown, ClassPartition, ClassUnauthorized, ClassWatchLag,
	ClassWatchGap,
}

// apiCalls are those that go to the API server.
var apiCalls = []string{
	"WatchObjects", "GetObject", "CreateObject", "UpdateObject", "PatchObject", "DeleteObject",
	"CreateToken",
}

// strikesAPI says whether a window of one of these classes is about a call.
func (w *openWindow) strikesAPI(call string) bool {
	switch w.Class {
	case ClassWatchLag:
		return call == apiserver.CallObject
	case ClassWatchGap:
		return call == apiserver.CallObject || call == "WatchObjects"
	case ClassThrottled:
		return slices.Contains(apiCalls, call) && (len(w.Calls) == 0 || slices.Contains(w.Calls, call))
	}
	return call == apiserver.CallObject || slices.Contains(apiCalls, call)
}

// throttled is what a server says that is asked too much.
func (w *openWindow) throttled(dice *draws, call string) *world.Error {
	err := world.Errorf(world.KindThrottled, call, "too many requests, says the plan's %s", w.ID)
	err.RetryAfter = dice.between(w.Takes.Least, w.Takes.Most).Round(time.Second)
	return err
}

// reach is whether the agent gets through to the API server at a time.
func (f *fates) reach(now time.Time) apiserver.Reach {
	worst := apiserver.Reached
	for i := range f.windows {
		w := &f.windows[i]
		if now.Before(w.from) || !now.Before(w.to) {
			continue
		}
		switch w.Class {
		case ClassServerDown:
			return apiserver.Refused
		case ClassPartition:
			worst = apiserver.Silent
		case ClassUnauthorized:
			if worst == apiserver.Reached {
				worst = apiserver.Unauthorized
			}
		}
	}
	return worst
}

// reachServer brings what goes wrong on the way to the API server up to date.
func (r *run) reachServer() {
	if r.server != nil {
		r.server.SetReach(r.fates.reach(r.agenda.Now()))
	}
}

// healServer has the agent get through again, and watches begin anew if there was a gap.
func (r *run) healServer() {
	if r.server != nil {
		r.server.SetReach(apiserver.Reached)
	}
}

// scheduleAPI begins and ends what is wrong between the agent and the API server.
func (r *run) scheduleAPI(w Window) {
	switch w.Class {
	case ClassServerDown, ClassPartition, ClassUnauthorized:
		r.at(w.At, r.reachServer)
		r.at(w.At+w.For, r.reachServer)
	case ClassWatchGap:
		r.at(w.At, r.forgetChanges)
		r.at(w.At+w.For, r.forgetChanges)
	}
}

func (r *run) forgetChanges() {
	if r.server != nil {
		r.server.Forget()
	}
}
