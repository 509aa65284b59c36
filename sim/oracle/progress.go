package oracle

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// progress is the liveness oracle: the node settles. It finds nothing by itself. The simulation
// polls Unsettled after the heal, knows the bound, and reports the failure under this name.
type progress struct{}

func (*progress) describe() Entry {
	return Entry{"progress", "Once no fault applies, every pod becomes what its manifest " +
		"demands, what is not desired is removed without a trace, and the API serves it."}
}

// restartBound is how long after its back-off a container must be restarted, without a fault.
const restartBound = 15 * time.Second

// Unsettled returns what is not right although no fault applies any more, in lines; none if the
// node has settled. It may be polled any number of times after Healed. The lines are computed one
// by one, so a caller that stops at the first line pays for no more.
func (s *Set) Unsettled(now time.Time) iter.Seq[string] {
	return func(yield func(string) bool) {
		m, settled := s.model, true
		m.now = now
		emit := func(lines []string) bool {
			for _, line := range lines {
				if settled = false; !yield(line) {
					return false
				}
			}
			return true
		}
		for _, pod := range m.podsInOrder {
			problems := pod.unsettledOfName
			if pod.spec == nil {
				problems = pod.leftovers
			}
			if !emit(problems()) {
				return
			}
		}
		// Logs come last: listing files costs most.
		if emit(m.unsettledShutdown()) && emit(m.unsettledTiers()) &&
			emit(m.unsettledNode()) && emit(m.unsettledPlugins()) && emit(m.unsettledCSI()) &&
			emit(m.unsettledDevices()) && emit(m.unsettledDisks()) &&
			emit(m.unsettledImages()) && emit(m.unsettledObjects(now)) &&
			settled {
			emit(m.unsettledLogs(now))
		}
	}
}

// leftovers returns what remains of a pod that is not desired.
func (p *pod) leftovers() []string {
	if p.liveContainers == 0 && p.keepsVolume(p.model.now, 0) {
		return nil // the pod ends when the driver is there again
	}
	var lines []string
	for _, s := range p.sandboxes {
		lines = append(lines, fmt.Sprintf("pod %s: not desired, but sandbox %.12s is left", p, s.id))
	}
	for _, c := range p.containers {
		lines = append(lines, fmt.Sprintf("pod %s: not desired, but container %s #%d is left", p,
			c.name, c.attempt))
	}
	for _, dir := range p.dirs {
		lines = append(lines, fmt.Sprintf("pod %s: not desired, but %s is left", p, dir))
	}
	for _, dir := range p.remainingCgroups() {
		lines = append(lines, fmt.Sprintf("pod %s: not desired, but cgroup %s is left", p, dir))
	}
	if p.isServed {
		lines = append(lines, fmt.Sprintf("pod %s: not desired, but still served", p))
	}
	return lines
}

// unsettledOfName returns what is wrong with the desired pods of one full name. One of them has
// to be right. If none is, the problem of the first is returned.
func (p *pod) unsettledOfName() []string {
	var first []string
	for _, other := range p.fullName.pods {
		if other.spec == nil {
			continue
		}
		problems := other.unsettled(p.model.now)
		if len(problems) == 0 {
			return nil
		}
		if first == nil {
			first = problems
		}
	}
	return first
}

// unsettled returns what is wrong with a desired pod: in the runtime, or in its served status.
func (p *pod) unsettled(now time.Time) []string {
	problem := p.runtimeProblem(now)
	if problem == "" {
		problem = p.deadRunsProblem()
	}
	switch {
	case problem != "":
	case p.isHostile():
		return nil
	case !p.isServed:
		problem = "it is not served"
	case p.servedProblem != "":
		problem = p.servedProblem
	case !p.servedCorrectly:
		problem = "no right status of it was served yet"
	default:
		return nil
	}
	return []string{"pod " + p.String() + ": " + problem}
}

// runtimeProblem returns the first thing that is wrong in the runtime; empty if nothing is.
func (p *pod) runtimeProblem(now time.Time) string {
	switch {
	case p.isHostile() && p.needsEviction():
		return p.overLimitProblem()
	case p.isHostile():
		return ""
	}
	if p.rejected {
		return p.rejectionProblem()
	}
	problem := p.sandboxProblem(now)
	if problem != "" && (p.needsToWait() || p.liveContainers == 0 && p.model.isFullForGood()) {
		return ""
	}
	return problem
}

// isFullForGood reports whether a file system is full that no threshold is set for: nothing is
// removed from it, and nothing starts.
func (m *model) isFullForGood() bool {
	if m.opts.Filesystem == nil {
		return false
	}
	return slices.ContainsFunc([]string{fromNodefs, fromImagefs}, func(source string) bool {
		isSet := slices.ContainsFunc(m.opts.Pressure.Thresholds, func(t PressureThreshold) bool {
			return t.source() == source || t.source() != fromNode && !m.opts.ImagesApart
		})
		return !isSet && m.opts.Filesystem(source).AvailableBytes < fullBelow
	})
}

// fullBelow is the space, in bytes, below which a file system counts as full: a block.
const fullBelow = 4 << 10

// sandboxProblem returns the same for a pod that was not rejected and need not wait for resources.
func (p *pod) sandboxProblem(now time.Time) string {
	newest := p.newestSandbox()
	for _, s := range p.sandboxes {
		if s != newest && s.ready {
			return fmt.Sprintf("sandbox %.12s is not the newest, but still ready", s.id)
		}
	}
	for _, c := range p.containers {
		switch {
		case c.state != running:
		case c.sandbox != newest:
			return fmt.Sprintf("container %s #%d runs in an old sandbox", c.name, c.attempt)
		case c.podFullName != p.fullName.name:
			return fmt.Sprintf("container %s #%d was created for %s", c.name, c.attempt, c.podFullName)
		case p.isSuperseded(c):
			return fmt.Sprintf("container %s #%d runs, but all are to be restarted", c.name,
				c.attempt)
		case p.mustBeReplaced(c):
			return fmt.Sprintf("container %s #%d is not of the newest spec", c.name, c.attempt)
		}
	}
	switch {
	case p.needsEviction():
		return p.overLimitProblem()
	case p.mayBeKilled(now) && !p.mustBeKilled(now):
		return ""
	case p.mustBeTerminal() && p.liveContainers > 0:
		return fmt.Sprintf("it must be terminal, but %s runs", p.anyLiveContainer().name)
	case p.mustBeTerminal() && newest != nil && newest.ready:
		return "it must be terminal, but its sandbox is still ready"
	case p.mustBeTerminal():
		return ""
	case (p.removedByHand || p.collected) && p.liveContainers == 0 &&
		(p.servedTerminal != "" || p.endedBeforeRemoval):
		return "" // what was left of a terminal pod was removed
	case p.hasRunBefore() && p.liveContainers == 0 && (newest == nil || !newest.ready):
		return ""
	case newest == nil || !newest.ready:
		return "it has no sandbox that is ready"
	}
	if problem := p.cgroupProblem(newest); problem != "" {
		return problem
	}
	if problem := p.resizeProblem(newest); problem != "" {
		return problem
	}
	if problem := p.contentProblem(now); problem != "" {
		return problem
	}
	if p.lacksVolume(now) || p.lacksCertificate(now) {
		return "" // its containers, also ephemeral ones, wait for it
	}
	if problem := p.ephemeralProblem(); problem != "" {
		return problem
	}
	return p.containersProblem(newest, now)
}

func (p *pod) overLimitProblem() string {
	return fmt.Sprintf("%v is above its limit, but the pod is not evicted", p.limitsEverExceeded())
}

// hasRunBefore reports whether a pod whose manifest was removed and came back is served in the
// terminal phase of its first run. The agent may not have noticed the removal, or may have died
// while removing the pod; an old request may then have removed a part of it.
func (p *pod) hasRunBefore() bool {
	return p.wasRemoved() && p.servedTerminal != "" ||
		p.endedBefore && isTerminalPhase(p.servedPhase)
}

// containersProblem returns what is wrong with the containers of a pod that should run in a
// sandbox.
func (p *pod) containersProblem(s *sandbox, now time.Time) string {
	isInitialized := p.isInitialized(s)
	for i := range p.spec.Spec.InitContainers {
		name := p.spec.Spec.InitContainers[i].Name
		sidecar := p.sidecarPosition(name) > 0
		if !sidecar && (isInitialized ||
			s.round == p.currentRound() && slices.Contains(s.completed, name)) {
			continue
		}
		c := p.newestRun(name)
		here := c != nil && c.sandbox == s && !p.isSuperseded(c)
		if sidecar && here && (isInitialized || c.state == running && c.mayHavePassedStartup(now)) {
			if problem := p.processProblem(c, now); problem != "" {
				return problem
			}
			continue
		}
		if c == nil && p.cannotBeCreated(&p.spec.Spec.InitContainers[i]) {
			return ""
		}
		if c == nil || c.sandbox != s {
			return fmt.Sprintf("init container %s has not run in its sandbox", name)
		}
		return p.processProblem(c, now) // the containers after it wait for it
	}
	for i := range p.spec.Spec.Containers {
		c := p.newestRun(p.spec.Spec.Containers[i].Name)
		if c == nil && (p.cannotBeCreated(&p.spec.Spec.Containers[i]) ||
			p.hasEndedRemoved(p.spec.Spec.Containers[i].Name)) {
			continue
		}
		if c == nil {
			return fmt.Sprintf("container %s was never created", p.spec.Spec.Containers[i].Name)
		}
		if problem := p.processProblem(c, now); problem != "" {
			return problem
		}
	}
	return ""
}

// isInitialized reports whether an app container has run in a sandbox in the current restart
// round. If so, the init containers are done, whatever the newest spec has. Ephemeral containers
// start beside init containers.
func (p *pod) isInitialized(s *sandbox) bool {
	for _, c := range p.containers {
		if c.sandbox == s && !p.isInitContainer(c.name) && !p.isEphemeral(c.name) &&
			c.state != created && !p.isSuperseded(c) {
			return true
		}
	}
	return false
}

// processProblem returns what is wrong with the newest run of a container that should run, or
// should have run.
func (p *pod) processProblem(c *container, now time.Time) string {
	switch {
	case c.state == running:
		return p.probeProblem(c, now)
	case c.state == created:
		return fmt.Sprintf("container %s #%d is not started", c.name, c.attempt)
	case p.isFinalRun(c):
		return ""
	case p.cannotRunAgain(c):
		return ""
	case now.After(c.exitedAt.Add(c.maxWait() + restartBound)):
		return fmt.Sprintf("container %s #%d exited %v ago, has to wait %v and is not restarted",
			c.name, c.attempt, now.Sub(c.exitedAt).Round(time.Second), c.maxWait())
	}
	return ""
}

// mustBeTerminal reports whether no container of the pod may run any more.
func (p *pod) mustBeTerminal() bool { return p.mustBeKilled(p.model.now) || p.hasExitedForGood() }

// hasExitedForGood reports the same of a pod that was not killed for a deadline, a limit or the
// like.
func (p *pod) hasExitedForGood() bool {
	for i := range p.spec.Spec.InitContainers {
		c := p.newestRun(p.spec.Spec.InitContainers[i].Name)
		if c != nil && c.state == exited && c.exitCode != 0 && p.sidecarPosition(c.name) == 0 &&
			p.isFinalRun(c) {
			return true
		}
	}
	for i := range p.spec.Spec.Containers {
		c := p.newestRun(p.spec.Spec.Containers[i].Name)
		if c == nil || c.state != exited || !p.isFinalRun(c) {
			return false
		}
	}
	return true
}

// hasEndedRemoved reports whether the last run of a container had ended for good when an
// administrator removed its record, so that it does not run again, or need not.
func (p *pod) hasEndedRemoved(name string) bool {
	h := p.histories[name]
	return p.removedByHand && (h != nil && h.last != nil && h.last.state == exited &&
		p.isFinalRun(h.last) || slices.Contains(p.endedRuns, name))
}

// isFinalRun reports whether restart policy and rules leave an exited container as it is.
func (p *pod) isFinalRun(c *container) bool {
	if p.sidecarPosition(c.name) > 0 || p.isSuperseded(c) {
		return false
	}
	return !runsAgain(containerOf(p.spec, c.name), p.spec.Spec.RestartPolicy, c.exitCode)
}
