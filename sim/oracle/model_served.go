package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// statusBound is how long a change may take to be served, without a fault.
const statusBound = 5 * time.Second

// applyServed records what GET /pods served, after the oracles have checked it.
func (m *model) applyServed(now time.Time, pods []*v1.Pod) {
	for _, p := range m.podsInOrder {
		p.isServed, p.isUnserved = false, true
	}
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil {
			p = m.podByUID(string(served.UID))
			m.setFullName(p, served.Namespace, served.Name)
		}
		p.isServed, p.isUnserved, p.servedPhase = true, false, served.Status.Phase
		p.recordTerminalPhase(now, served)
		p.recordServedStart(served)
		if served.DeletionTimestamp != nil && p.spec == nil && p.terminatingSince.IsZero() {
			p.terminatingSince = now
		}
		m.recordServed(p, served)
		if !m.healedAt.IsZero() && p.spec != nil {
			m.compareServed(p, now, served)
		}
	}
}

// recordServed records the parts of a status that must not be taken back.
func (m *model) recordServed(p *pod, served *v1.Pod) {
	for _, list := range containerStatuses(served) {
		for i := range list {
			h := p.historyOf(list[i].Name)
			h.maxServedCount = max(h.maxServedCount, list[i].RestartCount)
			c := m.servedRun(&list[i])
			if c == nil || c.state != running || served.Status.Phase == v1.PodUnknown {
				continue
			}
			c.wasServedReady = c.wasServedReady || list[i].Ready
			if c.servedReadiness = resultUnknown; list[i].Ready {
				c.servedReadiness = resultSuccess
			}
		}
	}
}

// compareServed compares a served status with the true state, if that has not changed for a
// while.
func (m *model) compareServed(p *pod, now time.Time, served *v1.Pod) {
	since := later(later(p.changedAt, p.desiredAt), m.agentStartedAt)
	if now.Sub(since) <= statusBound || served.Status.Phase == v1.PodUnknown {
		return
	}
	p.servedProblem = m.statusProblem(p, served)
	if p.servedProblem == "" {
		p.servedCorrectly = true
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// statusProblem returns the first statement of a status that is not true; empty if there is none.
func (m *model) statusProblem(p *pod, served *v1.Pod) string {
	if served.DeletionTimestamp != nil {
		return "it is served as terminating"
	}
	if p.rejected && served.Status.Phase == v1.PodFailed {
		return ""
	}
	if want := p.expectedPhase(); want != "" && served.Status.Phase != want {
		return fmt.Sprintf("it is served as %s, but is %s", served.Status.Phase, want)
	}
	if problem := p.reasonProblem(m.now, served); problem != "" {
		return problem
	}
	if p.mayBeKilled(m.now) {
		return "" // the container statuses may be those of before the kill
	}
	for i := range p.spec.Spec.InitContainers {
		name := p.spec.Spec.InitContainers[i].Name
		c := p.newestRun(name)
		ready := c != nil && c.state == exited && c.exitCode == 0 && !p.isSuperseded(c)
		if p.sidecarPosition(name) > 0 {
			ready = c != nil && c.state == running
		}
		problem := m.containerStatusProblem(name, c, ready, served, served.Status.InitContainerStatuses)
		if problem != "" {
			return problem
		}
	}
	for i := range p.spec.Spec.Containers {
		name := p.spec.Spec.Containers[i].Name
		c := p.newestRun(name)
		ready := c != nil && c.state == running
		problem := m.containerStatusProblem(name, c, ready, served, served.Status.ContainerStatuses)
		if problem != "" {
			return problem
		}
	}
	return m.ephemeralStatusProblem(p, served)
}

// containerStatusProblem compares a container status with the newest run.
func (m *model) containerStatusProblem(name string, c *container, ready bool, served *v1.Pod,
	list []v1.ContainerStatus) string {
	if c == nil || c.state == created {
		return "" // other oracles check the status of an earlier run
	}
	if last := c.pod.historyOf(name).last; last != nil && last.attempt > c.attempt {
		return "" // the newest run was removed by hand: its status may be lost with it
	}
	for i := range list {
		status := &list[i]
		if status.Name != name {
			continue
		}
		switch {
		case m.servedRun(status) != c:
			return fmt.Sprintf("container %s is served with id %.23q, the newest is %.12s (#%d)",
				name, status.ContainerID, c.id, c.attempt)
		case status.RestartCount != c.countedRestarts():
			return fmt.Sprintf("container %s is served with restart count %d, it is %d", name,
				status.RestartCount, c.countedRestarts())
		case status.Ready != ready && !m.isReadinessExcused(c, status.Ready):
			return fmt.Sprintf("container %s is served with ready %t, it is %t", name,
				status.Ready, ready)
		case c.state == running && status.State.Running == nil && c.isPostStartDone():
			return fmt.Sprintf("container %s runs, but is not served as running", name)
		case c.state == exited && status.State.Running != nil:
			return fmt.Sprintf("container %s has exited (%s), but is served as running", name,
				exitCauseOf(c))
		case m.missesOOMKill(c, status):
			return fmt.Sprintf("container %s was killed for lack of memory, but is served without that",
				name)
		}
		problem := m.messageProblem(served, status.State.Terminated)
		if isTerminalPhase(served.Status.Phase) && status.State.Terminated != nil &&
			strings.Contains(status.State.Terminated.Message, unreadablePrefix) {
			return "" // its end is not written again
		}
		return problem
	}
	return fmt.Sprintf("container %s is not served", name)
}

func exitCauseOf(c *container) string {
	if c.exitCause == "" {
		return truth.CauseSelf
	}
	return c.exitCause
}

// countedRestarts returns the restart count of a run: that with which it was created. It is greater
// than the attempt if a later run was removed by hand of which the API server knows.
func (c *container) countedRestarts() int32 {
	if c.restartCount >= 0 {
		return c.restartCount
	}
	return int32(c.attempt)
}

// expectedPhase returns the phase that a pod should be served with; empty if several are right.
func (p *pod) expectedPhase() v1.PodPhase {
	switch now := p.model.now; {
	case p.externalPhase != "":
		return p.externalPhase
	case p.servedTerminal != "" && p.mayBeKilled(now):
		return p.servedTerminal
	case p.mustBeKilled(now) && !p.hasExitedForGood():
		return v1.PodFailed
	case p.mayBeKilled(now):
		return "" // it may have exited by itself, or was killed
	case p.mustBeTerminal():
		return p.expectedTerminalPhase()
	}
	s := p.newestSandbox()
	if s == nil || !s.ready {
		return "" // its sandbox is being replaced
	}
	if !p.isInitialized(s) {
		for i := range p.spec.Spec.InitContainers {
			name := p.spec.Spec.InitContainers[i].Name
			c := p.newestRun(name)
			switch {
			case c == nil || c.sandbox != s || p.isSuperseded(c):
				return v1.PodPending
			case p.sidecarPosition(name) > 0 && (c.state != running || !c.mayHavePassedStartup(p.model.now)):
				return v1.PodPending
			case p.sidecarPosition(name) == 0 && (c.state != exited || c.exitCode != 0):
				return v1.PodPending
			}
		}
	}
	for i := range p.spec.Spec.Containers {
		if c := p.newestRun(p.spec.Spec.Containers[i].Name); c == nil || c.state == created ||
			c.state == running && !c.isPostStartDone() {
			return ""
		}
	}
	return v1.PodRunning
}

// expectedTerminalPhase returns the phase of a pod of which no container will run any more.
func (p *pod) expectedTerminalPhase() v1.PodPhase {
	for i := range p.spec.Spec.Containers {
		c := p.newestRun(p.spec.Spec.Containers[i].Name)
		if c == nil || c.exitCode != 0 || c.state != exited || p.isSuperseded(c) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}
