package oracle

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// nodeShutdown fires when the agent lets the machine go down too early or delays it for nothing,
// when it asks for a lock that it has or releases one that it has released, when it begins to end a
// group late, and when it starts a pod that came while the machine shuts down (KEP-2000, KEP-2712).
// The oracle needless-stop checks the order of the groups, grace-period that no pod has less than
// its time, and this one that none has more than that of its group.
type nodeShutdown struct{}

func (*nodeShutdown) describe() Entry {
	return Entry{"shutdown", "The agent lets the machine go down when all pods have ended and the " +
		"API server has their final statuses, or each group has had its period, and then at once. " +
		"The lock is taken once and released once. A group begins to end at once when it is its " +
		"turn, so that a pod that can end in its time does, and not before the volumes of the pods " +
		"of the groups before it are unmounted, in their time. No pod has longer than its group to " +
		"end. No pod that came after the " +
		"announcement is started, and the Node is not ready, with the reason and message of a kubelet. " +
		"Such a pod is admitted soon after the shutdown was cancelled."}
}

// The reasons in the statuses of pods that a shutdown has ended, and that came during one.
const (
	reasonShutdown   = "Terminated"
	reasonInShutdown = "NodeShutdown"
)

// The condition of the Node while the machine shuts down, whatever else it lacks.
const (
	reasonNotReady = "KubeletNotReady"
	notReadyText   = "node is shutting down"
)

// readyProblem returns what is wrong with the condition Ready of a Node during a shutdown.
func readyProblem(node *v1.Node) string {
	if node == nil {
		return ""
	}
	switch c := conditionOf(node, v1.NodeReady); {
	case c.Status == v1.ConditionTrue:
		return "is ready"
	case c.Status == v1.ConditionFalse &&
		(c.Reason != reasonNotReady || !slices.Contains(problemsOf(c.Message), notReadyText)):
		return fmt.Sprintf("is not ready for %s: %q", c.Reason, c.Message)
	}
	return ""
}

// problemsOf returns the problems in the message of a condition: "one", or "[one, another]".
func problemsOf(message string) []string {
	return strings.Split(strings.Trim(message, "[]"), ", ")
}

// idleDelayBound is how long the agent may delay a shutdown that nothing waits for.
const idleDelayBound = 20 * time.Second

// notReadyBound is how long after the announcement the Node may be ready.
const notReadyBound = 5 * time.Second

// endCalls are the calls that the end of a pod may wait for, once the agent knows of the pod and of
// the shutdown.
var endCalls = []string{"WriteFile", "ListContainers", "ListPodSandbox", "ContainerStatus",
	"PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox", "StopContainer", "StartContainer",
	"CreateContainer", "RunPodSandbox", "Unmount", "RemoveTree", "ReadFiles", "ReadTail", "SetCgroup",
	"RemoveCgroup", "ReadLinks", "ListDir", "StatPath", "MakeDir", "WriteDir"}

// shutdownCalls are the calls between the end of the last process and the release of the lock.
var shutdownCalls = append([]string{"PermitShutdown", "DelayShutdown", "PatchObject", "GetObject",
	"WatchObjects", "ObjectChanged"}, endCalls...)

func (o *nodeShutdown) checkFact(m *model, f *truth.Fact) *finding {
	if m.opts.Shutdown == nil {
		return nil
	}
	switch {
	case f.Kind == truth.ShutdownPermitted && f.Cause == "":
		if finding := m.findEarlyRelease(f.Time); finding != nil {
			return finding
		}
		return o.findMountedVolume(m, len(m.opts.Shutdown.Groups), f.Time)
	case f.Kind == truth.StopRequested:
		if finding := m.findLongGrace(f); finding != nil {
			return finding
		}
		return o.findMountedVolume(m, m.groupOfStop(f), f.Time)
	case f.Kind == truth.SandboxCreated:
		return m.findStartInShutdown(f)
	}
	return nil
}

// findEarlyRelease returns for what the agent should have delayed the shutdown longer.
func (m *model) findEarlyRelease(now time.Time) *finding {
	s := &m.shutdown
	if !s.underWay {
		if now.Before(m.shutdownEffectUntil()) {
			return nil
		}
		return findingf("the lock is released, but no shutdown was announced")
	}
	for _, p := range m.podsInOrder {
		c := p.anyLiveContainer()
		if c == nil || p.spec == nil || m.mayBeUnknown(c, now) || p.mayBeOverlooked(now) {
			continue
		}
		group := p.shutdownGroup()
		if group >= len(s.startsAt) {
			return findingf("the machine may go down, but %s runs, whose group was not reached", c)
		}
		if period := m.opts.Shutdown.Groups[group].Period; now.Before(s.startsAt[group].Add(period)) {
			return findingf("the machine may go down, but %s runs, whose group has had %v of its %v", c,
				now.Sub(s.startsAt[group]).Round(time.Millisecond), period)
		}
	}
	if now.Sub(s.countedFrom) >= m.opts.Shutdown.total()-time.Second {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.lacksFinalStatus() && !p.mayBeOverlooked(now) {
			return findingf("the machine may go down, but the API server has no final status of pod %s", p)
		}
	}
	return nil
}

// mayBeUnknown reports whether the agent may not know that a container runs.
func (m *model) mayBeUnknown(c *container, now time.Time) bool {
	return now.Sub(c.startedAt) < startNoticeBound || now.Before(c.pod.setAsideUntil) || c.wasLost
}

// mayBeUnlisted reports whether the agent may not know of the pod: it was started after the pod
// came, may not have reached the API server since, and was not given the pod.
func (p *pod) mayBeUnlisted(now time.Time) bool {
	m := p.model
	given, isGiven := m.given.at[p.uid]
	return !p.static && m.agentStartedAt.After(p.firstDesiredAt) &&
		(!isGiven || now.Sub(given) < releaseNoticeBound) &&
		m.faultPossible("WatchObjects", m.agentStartedAt, now)
}

// mayBeOverlooked reports whether the agent may let the machine go down without regard to the pod:
// the time of all groups has passed, or it was given the pod just now. An agent that may not know
// all pods waits.
func (p *pod) mayBeOverlooked(now time.Time) bool {
	m := p.model
	_, isGiven := m.given.at[p.uid]
	isOver := now.Sub(m.shutdown.countedFrom) >= m.opts.Shutdown.total()-time.Second
	return p.mayBeUnlisted(now) && (isOver || isGiven)
}

// findLongGrace returns that a pod that the shutdown ends has longer than its group.
func (m *model) findLongGrace(f *truth.Fact) *finding {
	s, p := &m.shutdown, m.pods[f.PodUID]
	if !s.underWay || s.missed || p == nil || !p.shutDown || len(p.specs) != 1 || p.timesDesired > 1 ||
		p.wasRemoved() || p.hasProbes() || !p.pressureEvictedAt.IsZero() ||
		m.anyFaultPossible(s.since.Add(-restartBeginBound), f.Time, "StopContainer") {
		return nil // it may be stopped for another reason, or was before
	}
	group := p.shutdownGroup()
	if group >= len(s.startsAt) || group > 0 && f.Time.Sub(s.startsAt[group]) <= groupBeginBound {
		return nil // the agent may not know yet that the groups before have ended
	}
	period := m.opts.Shutdown.Groups[group].Period
	if grace := time.Duration(f.GraceSeconds) * time.Second; grace > period+2*time.Second {
		return findingf("pod %s has %v to end, and its group in the shutdown has %v", p, grace, period)
	}
	return nil
}

// hasProbes reports whether a container of the pod may be stopped for a probe.
func (p *pod) hasProbes() bool {
	has := func(c v1.Container) bool { return c.LivenessProbe != nil || c.StartupProbe != nil }
	return slices.ContainsFunc(p.spec.Spec.Containers, has) ||
		slices.ContainsFunc(p.spec.Spec.InitContainers, has)
}

// releaseNoticeBound is for how long the agent may not go by a pod that it was given, when it lets
// the machine go down: the request was on its way, or the pod came with many others.
const releaseNoticeBound = time.Second

// lacksFinalStatus reports whether the shutdown has ended a pod of the API server that is not
// reported as ended.
func (p *pod) lacksFinalStatus() bool {
	return p.shutDown && !p.static && p.spec != nil && !p.firstStartedAt.IsZero() &&
		p.firstStartedAt.Before(p.model.shutdown.since) && p.terminalAt.IsZero() && !p.rejected &&
		p.externalPhase == ""
}

// findStartInShutdown returns that a pod is started that the agent must not admit.
func (m *model) findStartInShutdown(f *truth.Fact) *finding {
	s, p := &m.shutdown, m.pods[f.PodUID]
	if !s.underWay || p == nil || p.spec == nil || p.timesDesired > 1 ||
		p.firstDesiredAt.Before(s.since.Add(transitSlack)) {
		return nil
	}
	if !m.mustKnowOfShutdown(p.firstDesiredAt, f.Time) {
		return nil
	}
	return findingf("pod %s came %v after a shutdown was announced, and is started", p,
		p.firstDesiredAt.Sub(s.since).Round(time.Millisecond))
}

// mustKnowOfShutdown reports whether the agent must not have acted by now on something that came
// during the shutdown as if there were none: it has heard of the shutdown, or has to wait for the
// answer of logind, or knows from the state file that an earlier agent has started to end the pods.
func (m *model) mustKnowOfShutdown(came, now time.Time) bool {
	s := &m.shutdown
	if s.missed && !m.agentStartedAt.After(s.since) {
		return false
	}
	mayNotKnow := m.lock.mayNotKnow(came, now)
	m.excuse(mayNotKnow, "the bus does not respond")
	return !mayNotKnow || m.hasReadOfShutdown(now)
}

// stateFileBound is how long after the announcement the state file is on the disk.
const stateFileBound = time.Second

// hasReadOfShutdown reports whether the agent has read in the state file, when it was started, that
// the pods are ending, and the time of all groups has not passed yet.
func (m *model) hasReadOfShutdown(now time.Time) bool {
	s := &m.shutdown
	if m.opts.ReadFile == nil || !m.agentStartedAt.After(s.since.Add(stateFileBound)) ||
		m.anyFaultPossible(s.since, now, "ReadFiles", "WriteFile") {
		return false
	}
	data, exists := m.opts.ReadFile(path.Dir(m.opts.PodsDir) + "/graceful_node_shutdown_state")
	var content struct{ StartTime, EndTime time.Time }
	if !exists || json.Unmarshal(data, &content) != nil || !content.EndTime.IsZero() {
		return false
	}
	past := now.Add(m.dateOffset(now)).Sub(content.StartTime)
	return past > 0 && past < m.opts.Shutdown.total()
}

// groupBeginBound is how long after its turn a group may begin to end: a relist, and a step.
const groupBeginBound = 5 * time.Second

// restartBeginBound is how much longer an agent that was started in the middle of a shutdown may
// take to begin with a group: it waits to know all pods, and asks the runtime for everything.
const restartBeginBound = 15 * time.Second

// podsAwaitedBound is how long an agent waits to know the pods of the API server before it ends
// those that it knows.
const podsAwaitedBound = 10 * time.Second

// shutdownBegins returns since when the agent that runs now ends the pods, at the latest, and
// whether it must know of the shutdown. An agent that was started in the middle begins with the
// first group again, once logind has answered.
func (m *model) shutdownBegins() (time.Time, bool) {
	s := &m.shutdown
	known := m.lock.knownAt
	switch {
	case m.agentDown:
		return time.Time{}, false
	case m.agentUpSince(s.since.Add(-startNoticeBound)):
		return later(s.since, m.podsAwaitedUntil()), !s.missed
	case known.Before(s.since) || known.Before(m.agentStartedAt):
		return time.Time{}, false
	}
	return known.Add(restartBeginBound), true
}

// podsAwaitedUntil returns until when an agent that did not know all pods when the shutdown was
// announced may wait for them: those of the API server, and those of the manifest URL, which may
// never have been fetched.
func (m *model) podsAwaitedUntil() time.Time {
	until, listed := m.shutdown.since.Add(podsAwaitedBound), m.given.listedAt
	isListed := m.given.watch == 0 || !listed.IsZero() && listed.Before(until)
	if isListed && !m.faultPossible("FetchManifest", m.agentStartedAt, m.shutdown.since) {
		return listed
	}
	return until
}

// findLateGroup returns which pod should end by now, because it is the turn of its group.
func (m *model) findLateGroup(now time.Time) *finding {
	s := &m.shutdown
	begins, isKnown := m.shutdownBegins()
	if !isKnown {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.liveContainers == 0 || !p.shutDown || p.timesDesired > 1 ||
			now.Before(p.setAsideUntil) || p.mayBeUnlisted(now) {
			continue
		}
		began := later(m.turnOf(p.shutdownGroup(), begins, now), m.given.at[p.uid])
		if now.Sub(began) <= groupBeginBound || p.isEndingSince(began) ||
			m.anyFaultPossible(s.since.Add(-startNoticeBound), now, endCalls...) {
			continue
		}
		return findingf("the group of pod %s has had its turn for %v in the shutdown, but the pod does "+
			"not end", p, now.Sub(began).Round(time.Millisecond))
	}
	return nil
}

// turnOf returns when the turn of a group comes at the latest, if the first one begins to end at a
// time. The pods of the groups before it and their volumes are waited for, within their time, also
// those that end for another reason, such as their deletion.
func (m *model) turnOf(group int, begins, now time.Time) time.Time {
	turn := begins
	for i := range group {
		deadline := turn.Add(m.opts.Shutdown.Groups[i].Period)
		for _, p := range m.podsInOrder {
			switch {
			case len(p.specs) == 0 || p.shutdownGroup() != i:
			case p.liveContainers > 0 || p.holdsVolumes(now):
				turn = deadline
			default:
				turn = later(turn, later(p.lastExitAt(), m.volumeCalls.changedAt[p.uid]))
			}
		}
		if turn.After(deadline) {
			turn = deadline
		}
	}
	return turn
}

// lastExitAt returns when a container of the pod last exited; zero: none has.
func (p *pod) lastExitAt() time.Time {
	var at time.Time
	for _, h := range p.histories { //ordered: the latest of all
		if h.last != nil {
			at = later(at, h.last.exitedAt)
		}
	}
	return at
}

// isEndingSince reports whether some container of the pod is being stopped, or may be unknown to
// the agent, at a time.
func (p *pod) isEndingSince(at time.Time) bool {
	for _, c := range p.containers {
		hook := c.handler(preStopHook)
		if !c.stopRequestedAt.IsZero() || hook != nil && !hook.latestAt.IsZero() || c.wasLost ||
			c.state == created || c.startedAt.Add(startNoticeBound).After(at) {
			return true
		}
	}
	return false
}

func (*nodeShutdown) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	s := &m.shutdown
	switch {
	case m.opts.Shutdown == nil:
		return nil
	case !s.underWay:
		return m.findUnadmitted(now, pods)
	}
	if f := m.findLateGroup(now); f != nil {
		return f
	}
	if f := m.findUnrejected(now, pods, func(p *pod) string {
		if !s.missed && s.since.Before(p.firstDesiredAt.Add(-time.Second)) {
			return "during the shutdown"
		}
		return ""
	}); f != nil {
		return f
	}
	if problem := readyProblem(m.objects.node); problem != "" &&
		now.Sub(s.since) > notReadyBound && !s.missed && m.agentUpSince(s.since) &&
		!m.objects.nodeCreatedAt.After(s.since) &&
		!m.anyFaultPossible(s.since, now, "GetObject", "CreateObject", "UpdateObject", "PatchObject") {
		return findingf("the machine has been shutting down for %v, and the Node %s",
			now.Sub(s.since).Round(time.Second), problem)
	}
	for _, p := range m.podsInOrder {
		if p.liveContainers > 0 || p.lacksFinalStatus() || p.keepsVolume(now, idleDelayBound) ||
			p.awaitsDriver(now) || p.awaitsSetUp(now) {
			s.idleSince = time.Time{}
			return nil
		}
	}
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if !s.lockHeld || s.missed || now.Sub(s.idleSince) < idleDelayBound || !m.agentUpSince(s.since) ||
		m.anyFaultPossible(s.since, now, shutdownCalls...) {
		return nil
	}
	return findingf("the shutdown is delayed, but nothing has run for %v", now.Sub(s.idleSince))
}

// admittedBound is how long after a shutdown has no effect any more a pod may wait for its end.
const admittedBound = 5 * time.Second

// findUnadmitted returns which pod is served as waiting for the end of a shutdown, although that
// was cancelled.
func (m *model) findUnadmitted(now time.Time, pods []*v1.Pod) *finding {
	if m.shutdown.endedAt.IsZero() || m.agentDown ||
		now.Sub(m.undisturbedSince(now)) <= admittedBound {
		return nil
	}
	for _, served := range pods {
		if served.Status.Phase == v1.PodPending && served.Status.Reason == reasonInShutdown {
			return findingf("pod %s/%s waits for the end of the shutdown that was cancelled at %s",
				served.Namespace, served.Name, m.shutdown.endedAt.Format(time.TimeOnly))
		}
	}
	return nil
}

// unsettledShutdown returns what is wrong with the lock that delays shutdowns.
func (m *model) unsettledShutdown() []string {
	switch s := &m.shutdown; {
	case m.opts.Shutdown == nil:
	case s.underWay:
		return []string{"a shutdown of the machine is under way"}
	case !s.lockHeld:
		return []string{"the agent does not hold the lock that delays shutdowns"}
	}
	return nil
}
