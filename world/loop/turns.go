package loop

import (
	"slices"
	"time"

	"seedlet.dev/world"
)

// turns is whose turn it is at each path of the machine. What has begun there cannot be called
// back, and may take effect long after the core has given it up: so nothing else begins at the same
// path before it has been answered. What is asked for there waits as long as the first may still
// be answered in time, and fails at once after that.
type turns struct {
	held    []turn // in flight, or waiting for a place in their lane; in the order in which they came
	waiting queue[world.Effect]
	refused uint64
}

// turn is that of one operation.
type turn struct {
	op       world.OpID
	places   places
	deadline time.Time
}

// takeTurn reports whether it is an operation's turn now. If it is not, the operation waits, or has
// failed.
func (l *Loop) takeTurn(eff world.Effect) bool {
	at := placesOf(eff)
	if at == (places{}) {
		return true
	}
	first := l.turns.before(at)
	switch {
	case first != nil && !l.last.Before(first.deadline):
		l.refuse(eff, first)
		return false
	case first != nil || awaited(l.turns.waiting.all(), at):
		l.turns.waiting.push(eff)
		return false
	}
	l.turns.held = append(l.turns.held, turn{eff.Op, at, eff.Deadline})
	return true
}

// before is who has a turn that something at these places has to wait for: the one whose deadline
// is first; nil if nobody has.
func (t *turns) before(at places) *turn {
	var first *turn
	for i := range t.held {
		h := &t.held[i]
		if h.places.meet(at) && (first == nil || h.deadline.Before(first.deadline)) {
			first = h
		}
	}
	return first
}

// awaited says whether one of those that wait goes to the same place.
func awaited(waiting []world.Effect, at places) bool {
	return slices.ContainsFunc(waiting, func(eff world.Effect) bool {
		return placesOf(eff).meet(at)
	})
}

// endTurn has those that waited for an operation take their turns.
func (l *Loop) endTurn(op world.OpID) {
	i := slices.IndexFunc(l.turns.held, func(h turn) bool { return h.op == op })
	if i < 0 {
		return
	}
	l.turns.held = slices.Delete(l.turns.held, i, i+1)
	l.nextTurns()
}

// nextTurns begins whatever does not have to wait any longer, those that came first first.
func (l *Loop) nextTurns() {
	if l.turns.waiting.len() == 0 {
		return
	}
	for _, eff := range l.turns.waiting.take() {
		if l.takeTurn(eff) {
			l.enter(eff)
		}
	}
}

// refuseWaiting fails what waits for an operation that has not been answered in time.
func (l *Loop) refuseWaiting(now time.Time) {
	waiting, failed := &l.turns.waiting, false
	for n := waiting.len(); n > 0; n-- {
		eff, _ := waiting.pop()
		first := l.turns.before(placesOf(eff))
		switch {
		case first != nil && !now.Before(first.deadline):
			l.refuse(eff, first)
			failed = true
		case !now.Before(eff.Deadline):
			l.cancel(eff, "waited for its turn at "+placesOf(eff)[0].path+" until its deadline")
			failed = true
		default:
			waiting.push(eff)
		}
	}
	if failed { // others may have waited for those
		l.nextTurns()
	}
}

func (l *Loop) refuse(eff world.Effect, first *turn) {
	l.turns.refused++
	l.inbox.push(world.Event{Op: eff.Op, Err: world.Errorf(world.KindUnavailable,
		world.Call(eff.Body), "an earlier operation on %s has not been answered",
		first.places[0].path)})
}

// wake is when the first of those that wait has to be told something; zero if none waits.
func (t *turns) wake() time.Time {
	var wake time.Time
	for _, eff := range t.waiting.all() {
		at := eff.Deadline
		if first := t.before(placesOf(eff)); first != nil && first.deadline.Before(at) {
			at = first.deadline
		}
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	return wake
}

// overdue counts the operations that should have been answered by a time.
func (t *turns) overdue(now time.Time) (count int) {
	for i := range t.held {
		if !now.Before(t.held[i].deadline) {
			count++
		}
	}
	return count
}
