package oracle

import (
	"time"

	"seedlet.dev/world"
)

// givenPods is when the API server has first given each pod to the incarnation of the agent that
// runs, by UID: in a list, or as a change.
type givenPods map[string]time.Time

func (g givenPods) received(now time.Time, ev *world.Event) {
	switch body := ev.Body.(type) {
	case *world.ObjectsListed:
		for i := range body.Objects {
			g.note(now, &body.Objects[i])
		}
	case *world.ObjectChanged:
		g.note(now, &body.Object)
	}
}

func (g givenPods) note(now time.Time, o *world.Object) {
	if o.Pod == nil {
		return
	}
	if uid := string(o.Pod.UID); g[uid].IsZero() {
		g[uid] = now
	}
}
