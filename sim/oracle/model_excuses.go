package oracle

import (
	"slices"
	"time"
)

// faultPossible reports whether a fault may have applied to a call that was in flight between two
// times. An oracle that finds a deviation asks this for every call that could explain the
// deviation, and reports no violation if the answer is true: the excuse.
func (m *model) faultPossible(call string, from, to time.Time) bool {
	if m.opts.FaultPossible == nil || !m.opts.FaultPossible(call, from, to) {
		return false
	}
	// A fault that comes while a response is still on its way has a cause that is to come.
	hasCause := to.After(m.now) && !m.opts.FaultPossible(call, from, m.now)
	m.excuse(!hasCause, "a fault of "+call)
	return true
}

// anyFaultPossible reports the same for any of several calls.
func (m *model) anyFaultPossible(from, to time.Time, calls ...string) bool {
	return slices.ContainsFunc(calls, func(c string) bool { return m.faultPossible(c, from, to) })
}

// agentUpSince reports whether one incarnation of the agent has run all the time since.
func (m *model) agentUpSince(since time.Time) bool {
	m.excuse(m.agentDown && m.agentStarts > 0 || m.agentStarts > 1, "a restart of the agent")
	return !m.agentDown && !m.agentStartedAt.After(since.Add(-transitSlack))
}

// transitSlack is longer than a request or a response is in transit without a fault.
const transitSlack = 25 * time.Millisecond

// clockSkew returns the error of the runtime's clock at a time.
func (m *model) clockSkew(at time.Time) time.Duration {
	if m.opts.ClockSkew == nil {
		return 0
	}
	skew := m.opts.ClockSkew(at)
	m.excuse(skew != 0, "the clock of the runtime")
	return skew
}

// reconnectBound is how long before a change a fault that delays it may have started.
const reconnectBound = time.Minute
