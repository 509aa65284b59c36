package oracle

import (
	"time"

	"seedlet.dev/sim/truth"
)

// backoff fires when a container is restarted before its back-off has passed, also across a
// restart of the agent. A run that the agent or a reboot ended, and a container whose spec
// changed, may be followed at once; so may an init container of an old sandbox.
type backoff struct{}

func (*backoff) describe() Entry {
	return Entry{"back-off", "The first restart of a container may be immediate. Each later " +
		"one waits 10 s after the exit, doubled each time up to the maximum, until a run lasts " +
		"more than 10 min."}
}

const (
	firstBackoff      = 10 * time.Second
	backoffResetAfter = 10 * time.Minute
	clockSlack        = 10 * time.Millisecond // the runtime notes an exit a little before the fact
)

func (*backoff) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil {
		return nil
	}
	last := c.pod.historyOf(c.name).last
	if last == nil || last == c || last.hash != c.hash || last.wasEndedByAgentOrReboot() ||
		c.pod.countLost || m.mayHaveMissedExit(last) {
		return nil
	}
	if c.pod.isInitContainer(c.name) && last.sandbox != c.sandbox {
		return nil
	}
	waited, due := f.Time.Sub(last.exitedAt), last.minWait()-m.exitTimeError(last)
	if waited >= due-clockSlack {
		return nil
	}
	return findingf("%s was restarted %v after its exit, it should have "+
		"waited %v", c, waited.Round(time.Millisecond), due)
}

// mayHaveMissedExit reports whether an administrator removed a run so soon after its exit that the
// agent may have seen neither the exit nor its code.
func (m *model) mayHaveMissedExit(c *container) bool {
	removed, bound := c.pod.removedByHandAt, listReplyBound+listPeriod
	if m.faultPossible("ListContainers", c.exitedAt, removed) {
		bound = faultyListBound
	}
	return !removed.Before(c.exitedAt) && removed.Sub(c.exitedAt) < bound
}

// exitTimeError returns how much too early the exit of a run may seem to the agent. If the
// runtime's clock was slow, the agent knows no more than that the exit came after the list that
// still had the container running.
func (m *model) exitTimeError(c *container) time.Duration {
	switch {
	case m.clockSkew(c.exitedAt) >= 0:
		return 0
	case !c.listedAt.After(m.agentStartedAt),
		m.faultPossible("ListContainers", c.listedAt.Add(-faultyListBound), c.listedAt):
		return -m.clockSkew(c.exitedAt)
	}
	return min(-m.clockSkew(c.exitedAt), c.exitedAt.Sub(c.listedAt)+listReplyBound)
}

const (
	listPeriod      = time.Second     // between two lists
	listReplyBound  = time.Second     // longer than a list usually takes to arrive
	faultyListBound = 2 * time.Minute // the same under a fault
)

// wasEndedByAgentOrReboot reports whether the run was ended by the agent, or by a reboot.
func (c *container) wasEndedByAgentOrReboot() bool {
	switch c.exitCause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove, truth.CauseReboot:
		return true
	}
	return false
}

// runTime returns how long the container ran, at least and at most, as far as the agent can know.
// An agent that started after the container was created has only the runtime's timestamps, and
// the runtime's clock may have been set in between.
func (c *container) runTime() (least, most time.Duration) {
	if !c.hasRun() {
		return 0, 0
	}
	m, actual := c.pod.model, c.exitedAt.Sub(c.startedAt)
	if !m.agentStartedAt.After(c.createdAt) {
		return actual, actual
	}
	timestamped := actual + m.clockSkew(c.exitedAt) - m.clockSkew(c.startedAt)
	return min(actual, timestamped), max(actual, timestamped)
}

// minWait returns how long the next run must wait at least after the exit of this one.
func (c *container) minWait() time.Duration {
	if _, most := c.runTime(); most >= backoffResetAfter-time.Second {
		return 0 // in doubt for the agent
	}
	return c.minBackoff
}

// maxWait returns how long the next run may wait at most. The agent's annotation counts too: the
// model may not know all earlier runs.
func (c *container) maxWait() time.Duration {
	if least, _ := c.runTime(); least > backoffResetAfter+time.Second {
		return 0
	}
	return max(c.minBackoff, c.annotatedBackoff)
}

// nextBackoff returns the back-off that applies after the run that follows last.
func nextBackoff(last *container, hash string, most time.Duration) time.Duration {
	switch {
	case last == nil || last.hash != hash:
		return 0
	case last.minWait() == 0:
		return min(firstBackoff, most)
	}
	return min(2*last.minWait(), most)
}
