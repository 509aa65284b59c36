package sim

import (
	"slices"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// anchors are the happenings whose moment has not come yet.
type anchors []*anchored

// anchored is a happening that waits for a fact or an effect.
type anchored struct {
	*plan.Happening
	pod  string // the full name of the pod of the anchor; empty for any
	left int    // facts or effects until it happens
}

// addAnchored has a happening wait for its moment.
func (r *run) addAnchored(h *plan.Happening) {
	a := &anchored{Happening: h, left: h.When.Count()}
	if h.When.Pod != "" {
		a.pod = r.fullName(h.When.Pod)
	}
	r.anchors = append(r.anchors, a)
}

// observeAnchors subscribes to the truth.
func (r *run) observeAnchors(f truth.Fact) {
	r.advanceAnchors(func(a *anchored) bool {
		return a.When.Fact == f.Kind && (a.pod == "" || a.pod == f.PodNamespace+"/"+f.PodName) &&
			(a.When.Container == "" || a.When.Container == f.Container)
	})
}

// observeEffect is called for every effect that the agent has issued, once the port has it. Counted
// effects are those that plan.AnyEffect stands for.
func (r *run) observeEffect(eff *world.Effect, counted bool) {
	if r.opts.WatchEffect != nil {
		r.opts.WatchEffect(*eff)
	}
	if len(r.anchors) == 0 {
		return
	}
	call := world.CallName(eff.Body)
	changes := plan.ChangesSomething(call)
	r.advanceAnchors(func(a *anchored) bool {
		return (a.When.Effect == call || counted && a.When.Effect == plan.AnyEffect ||
			changes && a.When.Effect == plan.AnyChange) &&
			(a.pod == "" || slices.Contains(r.clients.uids[a.pod], eff.Pod))
	})
}

// advanceAnchors counts one more fact or effect for the anchors that wait for it, and begins the
// happenings whose moment has come. The agent is killed at once, in the middle of its step. All
// else is left to the agenda, since a port is at work now.
func (r *run) advanceAnchors(isAwaited func(*anchored) bool) {
	if r.healed {
		return
	}
	var due []*plan.Happening
	r.anchors = slices.DeleteFunc(r.anchors, func(a *anchored) bool {
		if !isAwaited(a) {
			return false
		}
		a.left--
		if a.left == 0 {
			due = append(due, a.Happening)
		}
		return a.left == 0
	})
	for _, h := range due {
		if h.KillAgent != nil && h.When.Effect != "" && h.When.After == 0 {
			r.carryOut(h)
			continue
		}
		r.agenda.After(time.Duration(h.When.After), func() {
			if !r.healed {
				r.carryOut(h)
			}
		})
	}
}
