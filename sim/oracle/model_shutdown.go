package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// Shutdown is how the agent has to end the pods when the machine shuts down: the groups, those of
// the lowest priority first.
type Shutdown struct {
	Groups []ShutdownGroup
}

// ShutdownGroup is the pods from one priority up to that of the next group.
type ShutdownGroup struct {
	Priority int32
	Period   time.Duration // that its pods may take to end
}

// total returns how long all groups may take.
func (s *Shutdown) total() (total time.Duration) {
	for _, g := range s.Groups {
		total += g.Period
	}
	return total
}

// machineShutdown is the shutdown that is under way, or the last one.
type machineShutdown struct {
	lockHeld bool

	underWay bool
	since    time.Time
	// countedFrom is from when the agent counts the time of the shutdown: from the start of an earlier
	// one, if it has heard neither of the end of that one nor of the start of this one.
	countedFrom time.Time
	// missed says that the agent may not have heard of something: nothing was announced to it.
	missed  bool
	endedAt time.Time // when it was cancelled, or the machine went down
	// delayedToEnd says that the agent had not let the machine go down before.
	delayedToEnd bool

	// startsAt is the earliest time at which each group that has been reached may begin to end.
	startsAt  []time.Time
	idleSince time.Time // since when no desired pod runs; zero: one does
}

// applyShutdown applies a fact about shutdowns.
func (m *model) applyShutdown(f *truth.Fact) {
	if m.opts.Shutdown == nil {
		return
	}
	s := &m.shutdown
	switch f.Kind {
	case truth.ShutdownDelayed:
		s.lockHeld = true
		if !s.underWay {
			s.countedFrom = time.Time{} // it knows that none is under way
		}
	case truth.ShutdownPermitted:
		s.lockHeld = false
	case truth.ShutdownAnnounced:
		m.forgetLastShutdown(f.Time)
		missed, countedFrom := f.Cause == truth.CauseUnwatched, f.Time
		if missed && s.missed && !s.countedFrom.IsZero() {
			countedFrom = s.countedFrom
		}
		*s = machineShutdown{lockHeld: s.lockHeld, underWay: true, since: f.Time, missed: missed,
			countedFrom: countedFrom}
		m.reachGroup(f.Time)
	case truth.ShutdownCancelled:
		s.underWay, s.endedAt, s.delayedToEnd = false, f.Time, s.lockHeld
		s.missed = s.missed || f.Cause == truth.CauseUnwatched
	case truth.PowerLost:
		if s.lockHeld = false; s.underWay {
			s.underWay, s.endedAt = false, f.Time
		}
	}
	m.advanceShutdown(f.Time)
}

// forgetLastShutdown notes which pods run again after the last shutdown ended them: static ones.
func (m *model) forgetLastShutdown(now time.Time) {
	if now.Before(m.shutdownEffectUntil()) {
		return
	}
	for _, p := range m.podsInOrder {
		if p.static && p.lastStartedAt.After(m.shutdown.endedAt) {
			p.shutDown = false
		}
	}
}

// reachGroup records that the next group may begin to end.
func (m *model) reachGroup(at time.Time) {
	s := &m.shutdown
	group := len(s.startsAt)
	s.startsAt = append(s.startsAt, at)
	for _, p := range m.podsInOrder {
		if len(p.specs) > 0 && p.shutdownGroup() == group {
			p.shutDown = true
		}
	}
}

// advanceShutdown finds out which groups may begin to end: one whose predecessors have ended, or
// had their time.
func (m *model) advanceShutdown(now time.Time) {
	s := &m.shutdown
	goesOn := s.underWay || s.missed && now.Before(m.shutdownEffectUntil()) ||
		now.Before(s.endedAt.Add(transitSlack))
	if s.since.IsZero() || !goesOn {
		return
	}
	for len(s.startsAt) < len(m.opts.Shutdown.Groups) {
		group := len(s.startsAt) - 1
		deadline := s.startsAt[group].Add(m.opts.Shutdown.Groups[group].Period)
		switch {
		case !now.Before(deadline):
			m.reachGroup(deadline)
		case m.hasGroupEnded(group):
			m.reachGroup(now)
		default:
			return
		}
	}
}

// hasGroupEnded reports whether no process of a desired pod of the group runs.
func (m *model) hasGroupEnded(group int) bool {
	for _, p := range m.podsInOrder {
		if p.spec != nil && p.liveContainers > 0 && p.shutdownGroup() == group {
			return false
		}
	}
	return true
}

// shutdownGroup returns the group of the pod: the last one whose priority is not above its own.
func (p *pod) shutdownGroup() int {
	group := 0
	for i, g := range p.model.opts.Shutdown.Groups {
		if g.Priority <= p.priority() {
			group = i
		}
	}
	return group
}

// The times that the agent has after a shutdown was cancelled, or the machine has booted.
const (
	// shutdownOverBound is how long it may take to hear that the machine stays up.
	shutdownOverBound = 15 * time.Second
	// shutdownUnreportedBound is how much longer it takes if that was not announced to it, and it
	// still delays the shutdown: it asks as soon as the bus is back, which is down for 20 s at most.
	shutdownUnreportedBound = 40 * time.Second
	// shutdownMissedBound is how much longer it takes if it has let the machine go down: it asks a
	// minute later, and again after failures.
	shutdownMissedBound = 3 * time.Minute
)

// shutdownEffectUntil returns until when the agent may act as if the machine shut down.
func (m *model) shutdownEffectUntil() time.Time {
	s := &m.shutdown
	switch {
	case s.underWay:
		return m.now.Add(time.Hour)
	case s.endedAt.IsZero():
		return time.Time{}
	case m.anyFaultPossible(s.since, m.now, "DelayShutdown", "PermitShutdown"),
		s.missed && !s.delayedToEnd:
		return s.endedAt.Add(m.opts.Shutdown.total() + shutdownMissedBound)
	case s.missed:
		return s.endedAt.Add(shutdownOverBound + shutdownUnreportedBound)
	}
	return s.endedAt.Add(shutdownOverBound)
}

// undisturbedSince returns since when neither a shutdown, a fault nor its own start may keep the
// agent from anything.
func (m *model) undisturbedSince(now time.Time) time.Time {
	return later(m.shutdownEffectUntil(), later(m.agentStartedAt, m.lastFault(now)))
}

// mayBeShutDown reports whether the agent may have ended the pod because the machine shuts down, or
// may do so now. A static pod runs again when the shutdown has ended, any other one never.
func (p *pod) mayBeShutDown(now time.Time) bool {
	return p.shutDown && (!p.static || now.Before(p.model.shutdownEffectUntil()))
}

// mayRunAgainAfterShutdown reports whether a static pod that is served as terminal may have been
// ended by a shutdown, and its containers have not exited for good.
func (p *pod) mayRunAgainAfterShutdown(now time.Time, served *v1.Pod) bool {
	return !p.hasExitedForGood() && (p.mayBeShutDown(now) || p.hasEndedForShutdown(served))
}

// hasEndedForShutdown reports whether a pod is served as one that a shutdown has ended. Its end may
// take until long after the shutdown, for example until a sandbox is created.
func (p *pod) hasEndedForShutdown(served *v1.Pod) bool {
	return p.shutDown && served.Status.Phase == v1.PodFailed &&
		!p.lastStartedAt.After(p.model.shutdown.since)
}

// mayStillEndForShutdown reports whether the container may be stopped long after a shutdown was
// cancelled: the end of its pod began before that, and a stop has failed.
func (c *container) mayStillEndForShutdown(now time.Time) bool {
	m := c.pod.model
	return c.pod.shutDown && c.startedAt.Before(m.shutdownEffectUntil()) &&
		m.faultPossible("StopContainer", m.shutdown.since, now)
}

// shutDownAt returns when the shutdown that may end the pod reached its group; zero if none may.
func (p *pod) shutDownAt(now time.Time) time.Time {
	starts := p.model.shutdown.startsAt
	if !p.shutDown || !now.Before(p.model.shutdownEffectUntil()) || p.shutdownGroup() >= len(starts) {
		return time.Time{}
	}
	return starts[p.shutdownGroup()]
}

// shutdownGrace returns the grace period that the container must have if it was stopped or is
// killed while the machine shuts down: the shorter of its own and its group's.
func (m *model) shutdownGrace(c *container, now time.Time, own time.Duration) time.Duration {
	s := &m.shutdown
	if s.since.IsZero() || !c.pod.shutDown || !s.underWay && !now.Before(m.shutdownEffectUntil()) &&
		(c.stopRequestedAt.IsZero() || !c.stopRequestedAt.Before(m.shutdownEffectUntil())) {
		return own
	}
	return min(own, m.opts.Shutdown.Groups[c.pod.shutdownGroup()].Period)
}
