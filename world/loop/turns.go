package loop

import (
	"time"

	"seedlet.dev/world"
)

// turns is whose turn it is at each path that a pod's author chose. Such a path may be on a file
// system that hangs. What has begun there cannot be given up, and keeps its place until it is
// answered, long after the core has done so. Another one would only take one more place: it waits
// as long as the first may still be answered in time, and fails at once after that.
type turns struct {
	// holders has, by path, the deadline of the operation whose turn it is: in flight, or waiting
	// for a place in its lane.
	holders map[string]time.Time
	waiting queue[world.Effect]
	refused uint64
}

// takeTurn reports whether it is an operation's turn now. If it is not, the operation waits, or has
// failed.
func (l *Loop) takeTurn(eff world.Effect) bool {
	deadline, taken := l.turns.holders[eff.HostPath]
	switch {
	case !taken:
		l.turns.holders[eff.HostPath] = eff.Deadline
		return true
	case l.last.Before(deadline):
		l.turns.waiting.push(eff)
	default:
		l.refuse(eff)
	}
	return false
}

// endTurn has the next operation at a path take its turn.
func (l *Loop) endTurn(path string) {
	if path == "" {
		return
	}
	delete(l.turns.holders, path)
	var next world.Effect
	waiting := &l.turns.waiting
	for n := waiting.len(); n > 0; n-- {
		eff, _ := waiting.pop()
		if next.Op == 0 && eff.HostPath == path {
			next = eff
			continue
		}
		waiting.push(eff)
	}
	if next.Op != 0 && l.takeTurn(next) {
		l.enter(next)
	}
}

// refuseWaiting fails what waits for an operation that has not been answered in time.
func (l *Loop) refuseWaiting(now time.Time) {
	waiting := &l.turns.waiting
	for n := waiting.len(); n > 0; n-- {
		eff, _ := waiting.pop()
		switch {
		case !now.Before(l.turns.holders[eff.HostPath]):
			l.refuse(eff)
		case !now.Before(eff.Deadline):
			l.cancel(eff, "waited for its turn at "+eff.HostPath+" until its deadline")
		default:
			waiting.push(eff)
		}
	}
}

func (l *Loop) refuse(eff world.Effect) {
	l.turns.refused++
	l.inbox.push(world.Event{Op: eff.Op, Err: world.Errorf(world.KindUnavailable,
		world.Call(eff.Body), "an earlier operation on %s has not been answered", eff.HostPath)})
}

// wake is when the first of those that wait has to be told something; zero if none waits.
func (t *turns) wake() time.Time {
	var wake time.Time
	for _, eff := range t.waiting.all() {
		at := eff.Deadline
		if end := t.holders[eff.HostPath]; end.Before(at) {
			at = end
		}
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	return wake
}

// overdue counts the paths whose operation should have been answered by a time.
func (t *turns) overdue(now time.Time) (count int) {
	for _, deadline := range t.holders { //ordered: counted
		if !now.Before(deadline) {
			count++
		}
	}
	return count
}
