package oracle

import (
	"fmt"
	"time"

	"seedlet.dev/sim/truth"
)

// hooks fires when a container is stopped without its preStop hook, or while the hook has time
// left; when a container runs past its grace period; when the next container does not wait for
// the postStart hook; and when a hook is delivered again without a reason. A fault in transit and
// the death of the agent are excuses: a hook is delivered at least once. No fact shows sleep
// hooks.
type hooks struct{}

func (*hooks) describe() Entry {
	return Entry{"hooks", "TERM comes after the preStop hook has ended or used up the grace " +
		"period, with at least 2 s left, and KILL in time; the next container starts after the " +
		"postStart hook; a hook is delivered once."}
}

const (
	minStopGrace = 2 * time.Second // what TERM leaves when the hook has used up the grace period
	hookSlack    = 10 * time.Second
	// killSlack allows for the whole seconds of the CRI's timeout, and for a wait in a lane.
	killSlack = 3 * time.Second
)

func (*hooks) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		return m.checkPostStartOrder(f)
	}
	c := m.containers[f.ContainerID]
	if c == nil || c.state != running || c.sandbox == nil || !c.sandbox.ready {
		return nil
	}
	problem := ""
	switch h := c.handler(preStopHook); f.Kind {
	case truth.HandlerRequested:
		problem = m.redeliveryProblem(c, f)
	case truth.StopRequested:
		if h != nil && c.stopRequestedAt.IsZero() {
			problem = m.stopProblem(c, h, f)
		}
	case truth.KillRequested:
		if h != nil && f.Cause == truth.CauseStop && h.count > 0 {
			problem = m.lateKillProblem(c, h, f)
		}
	}
	if problem == "" {
		return nil
	}
	return findingf("%s %s", c, problem)
}

// redeliveryProblem checks the second delivery of a hook.
func (m *model) redeliveryProblem(c *container, f *truth.Fact) string {
	h := c.handlerOfFact(f)
	if h == nil || h.probe != nil || h.count == 0 || !m.agentUpSince(h.firstAt) ||
		m.anyFaultPossible(h.firstAt, f.Time, h.call, "StartContainer", "StopContainer") {
		return ""
	}
	return fmt.Sprintf("is sent its %s hook again, %v after the first time", h.kind,
		f.Time.Sub(h.firstAt).Round(time.Millisecond))
}

// stopProblem checks the TERM of a container with a preStop hook.
func (m *model) stopProblem(c *container, h *handler, f *truth.Fact) string {
	least := m.minGrace(c, f.Time)
	since := f.Time.Add(-c.maxGrace() - hookSlack)
	switch {
	case c.mayBeSuperseded(): // RestartAllContainers runs no hooks
		return ""
	case c.pod.minGrace == 0 || least == 0 || m.agentDown ||
		c.pod.sidecarPosition(c.name) > 0 && h.count > 0:
		return ""
	case m.agentStartedAt.After(since) || c.pod.spec == nil && m.agentStartedAt.After(c.pod.removedAt):
		return "" // an agent died meanwhile, or this one may not know the spec
	case m.anyFaultPossible(since, f.Time, h.call, "StopContainer", "StartContainer"):
		return ""
	case f.GraceSeconds < int64(min(least, minStopGrace)/time.Second):
		return fmt.Sprintf("was asked to stop with a grace period of %d s", f.GraceSeconds)
	case h.count == 0 && m.faultPossible(h.call, c.startedAt, f.Time) &&
		m.faultPossible("StopContainer", c.startedAt, f.Time):
		return "" // the hook and the first stops may all have been lost
	case h.count == 0:
		return "was asked to stop without its preStop hook"
	case len(h.inFlight) > 0 && f.Time.Sub(h.latestAt) < least-2*transitSlack:
		return fmt.Sprintf("was asked to stop %v after its preStop hook was, which has not ended "+
			"and has %v", f.Time.Sub(h.latestAt).Round(time.Millisecond), least)
	}
	return ""
}

// lateKillProblem checks that KILL does not come long after the grace period. Sidecars, which
// wait for other containers to end, are not checked.
func (m *model) lateKillProblem(c *container, h *handler, f *truth.Fact) string {
	most := c.maxGrace() + minStopGrace + killSlack
	duration := f.Time.Sub(h.firstAt)
	if c.pod.sidecarPosition(c.name) > 0 || duration <= most || !m.agentUpSince(h.firstAt) ||
		m.anyFaultPossible(h.firstAt, f.Time, h.call, "StopContainer") {
		return ""
	}
	return fmt.Sprintf("was killed only %v after its preStop hook was sent", duration.Round(
		time.Millisecond))
}

// checkPostStartOrder checks that a container does not start while the postStart hook of an
// earlier one runs.
func (m *model) checkPostStartOrder(f *truth.Fact) *finding {
	p, s := m.pods[f.PodUID], m.sandboxes[f.SandboxID]
	if p == nil || s == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	position := p.position(f.Container)
	for _, c := range p.containers {
		h := c.handler(postStartHook)
		if h == nil || c.state != running || c.sandbox != s || p.position(c.name) >= position ||
			h.count > 0 && len(h.inFlight) == 0 || !m.agentUpSince(c.startedAt) ||
			m.anyFaultPossible(c.createdAt, f.Time, h.call, "StartContainer", "CreateContainer") {
			continue
		}
		return findingf("container %s (%.12s) was started while the postStart "+
			"hook of %s had not ended", f.Container, f.ContainerID, c)
	}
	return nil
}

// position returns the position of a container in its pod; -1 if the pod does not have it.
func (p *pod) position(name string) int {
	for i := range p.spec.Spec.InitContainers {
		if p.spec.Spec.InitContainers[i].Name == name {
			return i
		}
	}
	for i := range p.spec.Spec.Containers {
		if p.spec.Spec.Containers[i].Name == name {
			return len(p.spec.Spec.InitContainers) + i
		}
	}
	return -1
}

// minGrace returns the shortest time that a container must have from the first sign of its
// termination: less than the pod's grace period if a probe with a grace period of its own may
// have failed.
func (m *model) minGrace(c *container, now time.Time) time.Duration {
	least := m.shutdownGrace(c, now, c.minGrace())
	if c.mayBeSuperseded() {
		least = min(least, minStopGrace)
	}
	if c.spec == nil || !m.mayHaveFailed(c, now) {
		return least
	}
	for _, h := range c.handlers {
		if h.probe != nil && h.probe.TerminationGracePeriodSeconds != nil {
			least = min(least, time.Duration(*h.probe.TerminationGracePeriodSeconds)*time.Second)
		}
	}
	return least
}

// preStopTime returns how much of its grace period a container may have spent in its preStop hook
// before TERM.
func (m *model) preStopTime(c *container) time.Duration {
	if c.spec == nil || c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		return 0
	}
	hook := c.spec.Lifecycle.PreStop
	if hook.Sleep != nil {
		return time.Duration(hook.Sleep.Seconds)*time.Second + time.Second
	}
	h := c.handler(preStopHook)
	switch {
	case h == nil:
		return unboundedGrace
	case h.count > 0 && !h.firstAt.After(c.stopRequestedAt) &&
		!m.faultPossible(h.call, c.stopRequestedAt.Add(-c.maxGrace()), c.stopRequestedAt):
		return c.stopRequestedAt.Sub(h.firstAt)
	case h.count > 0 ||
		m.faultPossible(h.call, c.stopRequestedAt.Add(-c.maxGrace()), c.stopRequestedAt):
		return unboundedGrace
	}
	return 0
}

// unboundedGrace is longer than any grace period of a scenario.
const unboundedGrace = 24 * time.Hour
