package oracle

import (
	"fmt"
	"time"
)

// probeBound is how much longer than its period the next probe may take, without a fault.
const probeBound = 20 * time.Second

// probeProblem returns what is wrong with the probes and hooks of a running container; empty if
// nothing is.
func (p *pod) probeProblem(c *container, now time.Time) string {
	m := p.model
	describe := func(format string, args ...any) string {
		return fmt.Sprintf("container %s #%d ", c.name, c.attempt) + fmt.Sprintf(format, args...)
	}
	since := later(later(c.startedAt, m.agentStartedAt), m.healedAt)
	if h := c.handler(postStartHook); c.hasPostStart() {
		if !c.isPostStartDone() {
			return p.postStartProblem(c, h, describe)
		}
		since = later(since, h.endedAt)
	}
	if first := c.handler(startupProbe); first != nil {
		s := m.possibleResults(c, first, now)
		if s.canBeOther() {
			if s.canBe(resultSuccess) {
				return "" // what is due next is not known
			}
			return m.oneProbeProblem(c, first, since, now, describe)
		}
		since = later(since, s.lastOther)
	}
	for _, kind := range []handlerKind{livenessProbe, readinessProbe} {
		if h := c.handler(kind); h != nil {
			if problem := m.oneProbeProblem(c, h, since, now, describe); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// runsPreStop reports whether the preStop hook of the container is in flight.
func (c *container) runsPreStop() bool {
	h := c.handler(preStopHook)
	return h != nil && len(h.inFlight) > 0
}

// postStartProblem returns what is wrong with a running container whose postStart hook has not
// succeeded.
func (p *pod) postStartProblem(c *container, h *handler,
	describe func(string, ...any) string) string {
	m := p.model
	switch {
	case h == nil: // no fact shows the hook
	case c.runsPreStop(): // the container is being stopped
	case h.count == 0:
		return describe("has not had its postStart hook")
	case h.count > 0 && len(h.inFlight) == 0 && h.hasFailed() &&
		m.agentUpSince(c.startedAt) && !m.faultPossible(h.call, c.startedAt, h.endedAt.Add(transitSlack)):
		return describe("runs although its postStart hook has failed")
	}
	return ""
}

// oneProbeProblem returns what is wrong with one probe that should run since a time.
func (m *model) oneProbeProblem(c *container, h *handler, since, now time.Time,
	describe func(string, ...any) string) string {
	initial := time.Duration(h.probe.InitialDelaySeconds) * time.Second
	due := later(later(since, c.startedAt.Add(initial)), h.latestAt)
	switch {
	case now.Sub(due) > h.period()+h.timeout()+probeBound:
		return describe("has not had its %s probe for %v", h.kind, now.Sub(due).Round(time.Second))
	case h.latestAt.Before(m.healedAt):
		return describe("has not had its %s probe yet", h.kind)
	}
	if h.kind == readinessProbe {
		return ""
	}
	s := m.possibleResults(c, h, now)
	switch {
	case !s.canBe(resultUnknown) && !s.canBe(resultSuccess):
		return describe("runs although its %s probe has failed", h.kind)
	case h.kind == livenessProbe && s.canBe(resultFailure): // the next replies will decide
		return describe("runs although its %s probe may have failed", h.kind)
	}
	return ""
}

// possibleReadiness reports whether a running container may be ready, and whether it may be
// unready.
func (m *model) possibleReadiness(c *container, now time.Time) (ready, unready bool) {
	if c.spec == nil || c.hasAmbiguousHandlers() {
		return true, true
	}
	ready, unready = true, !c.isPostStartDone()
	for _, kind := range []handlerKind{startupProbe, readinessProbe} {
		if h := c.handler(kind); h != nil {
			s := m.possibleResults(c, h, now)
			ready = ready && s.mayHaveBeenLately(resultSuccess, now)
			unready = unready || s.mayHaveBeenOtherLately(now)
		}
	}
	return ready, unready
}

// isReadinessExcused reports whether the container's probes allow the served readiness.
func (m *model) isReadinessExcused(c *container, served bool) bool {
	if c.state != running || !c.needsProbeForReadiness() {
		return false
	}
	ready, not := m.possibleReadiness(c, m.now)
	return served && ready || !served && not
}

// mayHavePassedStartup reports whether the containers after a sidecar may start: it has no
// startup probe, or that may have succeeded.
func (c *container) mayHavePassedStartup(now time.Time) bool {
	h := c.handler(startupProbe)
	if h == nil {
		return true
	}
	s := c.pod.model.possibleResults(c, h, now)
	return s.canBe(resultSuccess)
}
