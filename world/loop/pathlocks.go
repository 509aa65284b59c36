package loop

import (
	"slices"
	"time"

	"seedlet.dev/world"
)

// pathLocks allow one operation at a time on each path. A started operation cannot be canceled and
// may take effect long after the core has given it up, so no other operation starts on its path
// before its completion. Other operations on the path wait until the deadline of the first one;
// after that deadline they fail at once.
type pathLocks struct {
	held              []pathLock // of operations in flight or waiting for a lane slot, oldest first
	waiting           queue[world.Effect]
	next              time.Time // see nextWake
	refusedOperations uint64
}

// pathLock is held by one operation on all of its paths.
type pathLock struct {
	op       world.OpID
	paths    lockedPaths
	deadline time.Time
}

// acquire locks the paths of an operation and returns true if the operation may start now.
// Otherwise the operation is queued, or refused because the operation that holds the lock is
// overdue.
func (l *Loop) acquire(eff world.Effect) bool {
	paths := pathsToLock(eff)
	if paths == (lockedPaths{}) {
		return true
	}
	blocker := l.locks.earliestConflict(paths)
	switch {
	case blocker != nil && !l.lastTime.Before(blocker.deadline):
		l.refuseBlocked(eff, blocker)
		return false
	case blocker != nil || conflictsWithAny(l.locks.waiting.all(), paths):
		l.locks.wait(eff, blocker)
		return false
	}
	l.locks.held = append(l.locks.held, pathLock{eff.Op, paths, eff.Deadline})
	return true
}

// wait makes an operation wait for the lock that keeps it from starting; nil if it waits for
// another one that waits.
func (l *pathLocks) wait(eff world.Effect, blocker *pathLock) {
	l.waiting.push(eff)
	l.next = earliest(l.next, eff.Deadline)
	if blocker != nil {
		l.next = earliest(l.next, blocker.deadline)
	}
}

// takeWaiting empties the queue of those that wait.
func (l *pathLocks) takeWaiting() []world.Effect {
	l.next = time.Time{}
	return l.waiting.drain()
}

// earliestConflict returns the lock with the earliest deadline of those that conflict with the
// paths, and nil if none exists.
func (l *pathLocks) earliestConflict(paths lockedPaths) *pathLock {
	var earliest *pathLock
	for i := range l.held {
		h := &l.held[i]
		if h.paths.conflictsWith(paths) && (earliest == nil || h.deadline.Before(earliest.deadline)) {
			earliest = h
		}
	}
	return earliest
}

// conflictsWithAny reports whether the paths of any of the waiting operations conflict with the
// given paths.
func conflictsWithAny(waiting []world.Effect, paths lockedPaths) bool {
	return slices.ContainsFunc(waiting, func(eff world.Effect) bool {
		return pathsToLock(eff).conflictsWith(paths)
	})
}

// releasePaths releases the lock of an operation and starts the operations that waited for it.
func (l *Loop) releasePaths(op world.OpID) {
	i := slices.IndexFunc(l.locks.held, func(h pathLock) bool { return h.op == op })
	if i < 0 {
		return
	}
	l.locks.held = slices.Delete(l.locks.held, i, i+1)
	l.startUnblocked()
}

// startUnblocked starts the waiting operations whose paths are free, in order of arrival.
func (l *Loop) startUnblocked() {
	if l.locks.waiting.len() == 0 {
		return
	}
	for _, eff := range l.locks.takeWaiting() {
		if l.acquire(eff) {
			l.startOrQueue(eff)
		}
	}
}

// expireWaiting refuses the operations that wait for an overdue operation, and cancels those whose
// own deadline has passed.
func (l *Loop) expireWaiting(now time.Time) {
	if l.locks.next.IsZero() || now.Before(l.locks.next) {
		return
	}
	failed := false
	for _, eff := range l.locks.takeWaiting() {
		blocker := l.locks.earliestConflict(pathsToLock(eff))
		switch {
		case blocker != nil && !now.Before(blocker.deadline):
			l.refuseBlocked(eff, blocker)
			failed = true
		case !now.Before(eff.Deadline):
			l.cancel(eff, "waited for its turn at "+pathsToLock(eff)[0].path+" until its deadline")
			failed = true
		default:
			l.locks.wait(eff, blocker)
		}
	}
	if failed { // other operations may have waited for these
		l.startUnblocked()
	}
}

func (l *Loop) refuseBlocked(eff world.Effect, blocker *pathLock) {
	l.locks.refusedOperations++
	l.inbox.push(world.Event{Op: eff.Op, Err: world.Errorf(world.KindUnavailable,
		world.CallName(eff.Body), "an earlier operation on %s has not been answered",
		blocker.paths[0].path)})
}

// nextWake returns when the next waiting operation has to be refused or canceled; zero if none
// waits. It is kept up to date by each operation that begins to wait: a lock that is taken later
// conflicts with none of them, and they are looked at again when one is released.
func (l *pathLocks) nextWake() time.Time { return l.next }

// countOverdue counts the operations that hold a lock and are past their deadline.
func (l *pathLocks) countOverdue(now time.Time) (count int) {
	for i := range l.held {
		if !now.Before(l.held[i].deadline) {
			count++
		}
	}
	return count
}
