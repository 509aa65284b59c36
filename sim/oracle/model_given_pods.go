package oracle

import (
	"time"

	"seedlet.dev/world"
)

// givenPods is what the API server has given to the incarnation of the agent that runs.
type givenPods struct {
	at map[string]time.Time // when each pod was first given, by UID: in a list, or as a change
	// watch is that of the pods, zero before it begins, and listedAt is when it first had all of them.
	watch    world.WatchID
	listedAt time.Time
}

func newGivenPods() givenPods { return givenPods{at: map[string]time.Time{}} }

func (g *givenPods) asked(eff *world.Effect) {
	if w, isWatch := eff.Body.(*world.WatchObjects); isWatch && w.Resource == world.ResourcePods {
		g.watch = w.Watch
	}
}

func (g *givenPods) received(now time.Time, ev *world.Event) {
	switch body := ev.Body.(type) {
	case *world.ObjectsListed:
		if body.Watch == g.watch && g.listedAt.IsZero() {
			g.listedAt = now
		}
		for i := range body.Objects {
			g.note(now, &body.Objects[i])
		}
	case *world.ObjectChanged:
		g.note(now, &body.Object)
	}
}

func (g *givenPods) note(now time.Time, o *world.Object) {
	if o.Pod == nil {
		return
	}
	if uid := string(o.Pod.UID); g.at[uid].IsZero() {
		g.at[uid] = now
	}
}
