package oracle

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// EffectIssued reports that the agent issues an effect, which may be a call.
func (s *Set) EffectIssued(now time.Time, eff *world.Effect) {
	s.model.given.asked(eff)
	if eff.Op != 0 {
		s.CallIssued(now, eff)
	}
}

// CallIssued reports that the agent issues a call.
func (s *Set) CallIssued(now time.Time, eff *world.Effect) {
	s.Called(now, eff.Body)
	s.UsageAsked(now, eff)
	s.storageAsked(now, eff.Body)
	s.storageAskedAgain(now, eff.Body)
	s.checkEvictionStop(now, eff)
	if f := s.model.lock.asked(now, eff); f != nil && s.model.opts.Shutdown != nil {
		s.report(&nodeShutdown{}, f, now)
	}
	if f := s.model.runtime.asked(eff); f != nil {
		s.report(&runtimeReady{}, f, now)
	}
	s.model.volumeCalls.asked(eff)
	s.checkCSICall(now, eff)
	if r, isRemoval := eff.Body.(*runtimeapi.RemoveContainerRequest); isRemoval {
		s.model.removals.asked(r.ContainerId, eff)
	}
}

// EventReceived reports that the agent gets an event, which may be the answer to a call.
func (s *Set) EventReceived(now time.Time, ev *world.Event) {
	if ev.Err.Has(world.KindTimeout) {
		s.model.timedOutAt[ev.Err.Op] = now
	}
	s.UsageAnswered(now, ev)
	s.model.lock.received(now, ev)
	s.model.given.received(now, ev)
	s.model.removals.received(now, ev)
	s.model.runtime.received(now, ev)
	s.model.volumeCallAnswered(now, ev)
	s.model.csiReceived(now, ev)
}

// lastTimeout returns when a call of one of some names last ended without an answer; zero: none
// has.
func (m *model) lastTimeout(calls ...string) (last time.Time) {
	for _, call := range calls {
		last = later(last, m.timedOutAt[call])
	}
	return last
}

// lockRequests is what the agent knows of the lock that delays shutdowns.
type lockRequests struct {
	op       world.OpID // of the request in flight, which asks for the lock or for its release
	release  bool       // what op asks for
	askedAt  time.Time
	deadline time.Time

	// heldSince is since when the agent knows that it has the lock, and hears of shutdowns, and
	// releasedAt when it learned that it has released the lock; zero: neither. A request for the
	// lock that has failed may have taken effect.
	heldSince, releasedAt time.Time
	askedReleaseAt        time.Time // when it last did
	unwatchedAt           time.Time // when it last lost the connection

	// failures is how many requests for the lock have failed in a row. gaveUp is set when the agent
	// waits for no answer any more. knownAt is when it last learned whether the machine shuts down;
	// zero: it has not.
	failures int
	gaveUp   bool
	knownAt  time.Time
}

// lockFailuresMax is for how many failed requests for the lock an agent that starts admits nothing.
const lockFailuresMax = 3

// fail records that a request for the lock has failed.
func (l *lockRequests) fail() {
	l.failures++
	l.releasedAt = time.Time{}
	l.gaveUp = l.gaveUp || l.knownAt.IsZero() && l.failures >= lockFailuresMax
}

// mayNotKnow reports whether the agent may have decided by now about a pod that came at a time
// without knowing whether the machine shuts down, as all its requests have failed.
func (l *lockRequests) mayNotKnow(came, now time.Time) bool {
	isLast := l.op != 0 && !l.release && l.failures == lockFailuresMax-1
	gaveUp := l.gaveUp || isLast && l.knownAt.IsZero() && now.After(l.deadline)
	return gaveUp && (l.knownAt.IsZero() || !came.After(l.knownAt))
}

// asked returns why the agent should not have issued a call: it holds the lock already, or has
// released it.
func (l *lockRequests) asked(now time.Time, eff *world.Effect) *finding {
	switch eff.Body.(type) {
	case *world.DelayShutdown:
		if !l.heldSince.IsZero() {
			return findingf("the lock is asked for, which the agent has had since %s",
				l.heldSince.Format(time.TimeOnly))
		}
		if l.op != 0 && !l.release {
			l.fail()
		}
		l.release = false
	case *world.PermitShutdown:
		isAskedFor := l.op != 0 && !l.release
		if !l.releasedAt.IsZero() && !isAskedFor {
			return findingf("the lock is released, which the agent has released at %s",
				l.releasedAt.Format(time.TimeOnly))
		}
		l.release, l.heldSince, l.askedReleaseAt = true, time.Time{}, now
	default:
		return nil
	}
	l.op, l.askedAt, l.deadline = eff.Op, now, eff.Deadline
	return nil
}

func (l *lockRequests) received(now time.Time, ev *world.Event) {
	if _, isUnwatched := ev.Body.(*world.ShutdownUnwatched); isUnwatched {
		l.unwatchedAt, l.heldSince = now, time.Time{}
	}
	if _, isAnnounced := ev.Body.(*world.MachineShutdown); isAnnounced {
		l.knownAt = now
	}
	if ev.Op == 0 || ev.Op != l.op {
		return
	}
	l.op = 0
	isLate := now.After(l.deadline)
	switch {
	case l.release:
	case isLate, ev.Err != nil && !ev.Err.Has(world.KindConflict):
		l.fail()
	default: // it is a conflict if the machine shuts down
		l.failures, l.knownAt = 0, now
	}
	switch {
	case ev.Err != nil || isLate:
	case l.release:
		l.releasedAt = now
	case l.askedReleaseAt.Before(l.askedAt):
		l.releasedAt = time.Time{}
		if l.unwatchedAt.Before(l.askedAt) {
			l.heldSince = now
		}
	}
}
