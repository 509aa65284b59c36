package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// apiTerminalPhase fires when the agent takes back a terminal phase (upstream #58711, #105358), or
// how a container has ended, as an agent may that has lost its run.
type apiTerminalPhase struct{}

func (*apiTerminalPhase) describe() Entry {
	return Entry{"api-terminal-phase", "The agent never changes a terminal phase at the API " +
		"server, nor its reason and message, nor the exit code of a run; only the mirror of a static " +
		"pod that runs again is Running again."}
}

func (*apiTerminalPhase) checkFact(m *model, f *truth.Fact) *finding {
	if !isAgentStatus(f) || f.Write.Before.Pod == nil {
		return nil
	}
	if finding := m.findChangedExit(f.Write.Before.Pod, f.Write.After.Pod); finding != nil {
		return finding
	}
	before, now := &f.Write.Before.Pod.Status, &f.Write.After.Pod.Status
	if !isTerminalPhase(before.Phase) ||
		now.Phase == before.Phase && now.Reason == before.Reason && now.Message == before.Message ||
		m.mayRunAgain(f.Write) {
		return nil
	}
	return findingf("pod %s/%s was reported as %s %s %q, and then as %s %s %q", f.Write.Namespace,
		f.Write.Name, before.Phase, before.Reason, before.Message, now.Phase, now.Reason, now.Message)
}

// mayRunAgain reports whether the agent writes to the mirror of a static pod that has ended and is
// still desired, as far as it knows, and not because the machine shuts down now.
func (m *model) mayRunAgain(write *truth.Write) bool {
	s := &m.shutdown
	if s.underWay && !s.missed && !write.SentAt.Before(s.since.Add(transitSlack)) {
		return false
	}
	object := write.After.Pod
	return isMirror(object) && slices.ContainsFunc(m.podsOfObject(object), func(p *pod) bool {
		isGone := p.spec == nil && m.now.Sub(p.removedAt) > manifestNoticeBound
		if !p.static || isGone || !p.shutDown && !m.agentStartedAt.After(p.terminalAt) {
			return false
		}
		if isTerminalPhase(object.Status.Phase) {
			return hasLaterRun(write.Before.Pod, object)
		}
		return object.Status.Phase == v1.PodRunning && object.Status.Reason == "" &&
			object.Status.Message == "" && (p.spec == nil || !p.hasExitedForGood())
	})
}

// hasLaterRun reports whether a status has the end of a run that is later than those of another.
func hasLaterRun(before, after *v1.Pod) bool {
	return slices.ContainsFunc(after.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		i := slices.IndexFunc(before.Status.ContainerStatuses, func(o v1.ContainerStatus) bool {
			return o.Name == c.Name
		})
		return i >= 0 && c.State.Terminated != nil &&
			c.RestartCount > before.Status.ContainerStatuses[i].RestartCount
	})
}

// findChangedExit returns which run is reported with another exit code than before. An exit code
// that was not known may be reported later.
func (m *model) findChangedExit(before, now *v1.Pod) *finding {
	if p := m.pods[string(now.UID)]; p == nil || p.countLost || p.wasRemoved() {
		return nil // its runs may be counted from the start again
	}
	old := containerStatuses(before)
	for i, list := range containerStatuses(now) {
		for k := range list {
			c := &list[k]
			j := slices.IndexFunc(old[i], func(o v1.ContainerStatus) bool { return o.Name == c.Name })
			if j < 0 || c.State.Terminated == nil || old[i][j].RestartCount != c.RestartCount {
				continue
			}
			was := old[i][j].State.Terminated
			if was != nil && was.Reason != reasonUnknownExit &&
				was.ExitCode != c.State.Terminated.ExitCode {
				return findingf("container %s of pod %s/%s was reported with exit code %d, and then with %d",
					c.Name, now.Namespace, now.Name, was.ExitCode, c.State.Terminated.ExitCode)
			}
		}
	}
	return nil
}

// apiTerminalStopped fires when a pod that the API server has in a terminal phase still runs, or
// runs again (upstream #104560, #106884, #37447).
type apiTerminalStopped struct{}

func (*apiTerminalStopped) describe() Entry {
	return Entry{"api-terminal-stopped", "The agent reports a terminal phase to the API server " +
		"only when no container of the pod runs, and starts none after that."}
}

func (*apiTerminalStopped) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		phase := m.objects.terminalPhases[f.PodUID]
		if phase != "" && !m.mayNotKnowTerminal(f.PodUID, f.Time) {
			return findingf("container %s (%.12s) of pod %s/%s was started, "+
				"but the API server has it as %s", f.Container, f.ContainerID, f.PodNamespace,
				f.PodName, phase)
		}
		return nil
	}
	if !isAgentStatus(f) || !isTerminalPhase(f.Write.After.Pod.Status.Phase) ||
		isTerminalPhase(f.Write.Before.Pod.Status.Phase) {
		return nil
	}
	runs := m.podsOfObject(f.Write.After.Pod)
	if len(runs) != 1 {
		return nil
	}
	// A static pod that has ended runs again with the next agent, or after a shutdown was cancelled,
	// while the request is still under way.
	mayRunAgain := isMirror(f.Write.After.Pod)
	for _, c := range runs[0].containers {
		if c.state == running && !(mayRunAgain && f.Write.SentAt.Before(c.startedAt)) {
			return findingf("pod %s is reported as %s, but %s runs", runs[0],
				f.Write.After.Pod.Status.Phase, c)
		}
	}
	return nil
}

// externalEndBound is how long the agent may still start containers of a pod that another client
// has given a terminal phase.
const externalEndBound = time.Minute

// mayNotKnowTerminal reports whether the agent may not know yet that another client has given a
// pod a terminal phase.
func (m *model) mayNotKnowTerminal(uid string, now time.Time) bool {
	p := m.pods[uid]
	return p != nil && p.externalPhase != "" && (now.Sub(p.terminalAt) <= externalEndBound ||
		!m.agentUpSince(p.terminalAt) || m.anyFaultPossible(p.terminalAt.Add(-reconnectBound), now,
		"WatchObjects", "ObjectChanged", "CreateContainer", "StartContainer"))
}

// apiIdentity fires when an object has the status of another pod of its name.
type apiIdentity struct{}

func (*apiIdentity) describe() Entry {
	return Entry{"api-identity", "A status at the API server has only containers of its own " +
		"pod, not of another pod that has, or had, its name."}
}

func (*apiIdentity) checkFact(m *model, f *truth.Fact) *finding {
	if !isAgentStatus(f) {
		return nil
	}
	object := f.Write.After.Pod
	full := object.Namespace + "/" + object.Name
	for _, list := range containerStatuses(object) {
		for i := range list {
			for _, id := range containerIDs(&list[i]) {
				owner, known := m.objects.containerOwners[id]
				if known && owner.fullName == full &&
					(owner.uid == string(object.UID) || isMirror(object)) ||
					!known {
					continue
				}
				return findingf("pod %s (uid %s) is reported with container "+
					"%.12s, which was created for %s (uid %s)", full, object.UID, id, owner.fullName, owner.uid)
			}
		}
	}
	return nil
}

// containerIDs returns the container IDs of a status.
func containerIDs(s *v1.ContainerStatus) []string {
	ids := []string{s.ContainerID}
	for _, ended := range []*v1.ContainerStateTerminated{s.State.Terminated,
		s.LastTerminationState.Terminated} {
		if ended != nil {
			ids = append(ids, ended.ContainerID)
		}
	}
	for i := range ids {
		_, ids[i], _ = strings.Cut(ids[i], "://")
	}
	return ids
}
