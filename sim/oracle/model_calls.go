package oracle

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// CallIssued reports that the agent issues a call.
func (s *Set) CallIssued(now time.Time, eff *world.Effect) {
	s.Called(now, eff.Body)
	s.UsageAsked(now, eff)
	if f := s.model.lock.asked(now, eff); f != nil && s.model.opts.Shutdown != nil {
		s.report(&nodeShutdown{}, f, now)
	}
	if f := s.model.runtime.asked(eff); f != nil {
		s.report(&runtimeReady{}, f, now)
	}
	if r, isRemoval := eff.Body.(*runtimeapi.RemoveContainerRequest); isRemoval {
		s.model.removals.asked(r.ContainerId, eff)
	}
}

// EventReceived reports that the agent gets an event, which may be the answer to a call.
func (s *Set) EventReceived(now time.Time, ev *world.Event) {
	s.UsageAnswered(now, ev)
	s.model.lock.received(now, ev)
	s.model.removals.received(now, ev)
	s.model.runtime.received(now, ev)
}

// lockRequests is what the agent knows of the lock that delays shutdowns.
type lockRequests struct {
	op       world.OpID // of the request in flight, which asks for the lock or for its release
	release  bool       // what op asks for
	askedAt  time.Time
	deadline time.Time

	// heldSince is since when the agent knows that it has the lock, and hears of shutdowns, and
	// releasedAt when it learned that it has released the lock; zero: neither.
	heldSince, releasedAt time.Time
	askedReleaseAt        time.Time // when it last did
	unwatchedAt           time.Time // when it last lost the connection
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
		l.release = false
	case *world.PermitShutdown:
		if !l.releasedAt.IsZero() {
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
	if ev.Op == 0 || ev.Op != l.op {
		return
	}
	l.op = 0
	switch {
	case ev.Err != nil || now.After(l.deadline):
	case l.release:
		l.releasedAt = now
	case l.askedReleaseAt.Before(l.askedAt):
		l.releasedAt = time.Time{}
		if l.unwatchedAt.Before(l.askedAt) {
			l.heldSince = now
		}
	}
}
