package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// terminalPhase fires when a pod that is served as Succeeded or Failed runs, runs again, or is
// served in another phase later (upstream #58711, #105358, #104560, #106884, #37447). The phase
// Unknown states nothing. A pod whose manifest was removed and came back is a new one; for a
// while either of the two may be served.
type terminalPhase struct{}

func (*terminalPhase) describe() Entry {
	return Entry{"terminal-phase", "A pod is served as Succeeded or Failed only when no " +
		"container of it runs; from then on the phase stays, and no container starts. With the phase, " +
		"and not before, the API server is given the reason and the condition DisruptionTarget of a " +
		"pod that was preempted, evicted for the node or ended by a shutdown, and of no other one."}
}

// manifestNoticeBound is how long the agent may take to act on a changed manifest: the check
// period, and the deadline of a read.
const manifestNoticeBound = 150 * time.Second

func (*terminalPhase) checkFact(m *model, f *truth.Fact) *finding {
	if isAgentStatus(f) {
		return m.findWrongEnd(f.Write.Before.Pod, f.Write.After.Pod)
	}
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil || p.servedTerminal == "" ||
		p.mayHaveLostRecord(f.Time) || m.mayStartAfterExternalEnd(p, f.Time) {
		return nil
	}
	return findingf("container %s (%.12s) of pod %s was started, but the "+
		"pod had been served as %s", f.Container, f.ContainerID, p, p.servedTerminal)
}

// mayStartAfterExternalEnd reports whether a container may start after another client has reported
// that the pod has ended, which says nothing about a request that was in flight: a fault delays it.
func (m *model) mayStartAfterExternalEnd(p *pod, now time.Time) bool {
	return p.externalPhase != "" && now.Sub(p.terminalAt) <= callBound &&
		m.faultPossible("StartContainer", p.terminalAt.Add(-callBound), p.terminalAt)
}

func (*terminalPhase) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil || served.Status.Phase == v1.PodUnknown || p.externalPhase != "" {
			continue // another client's phase is served while the pod terminates
		}
		if p.hasDesiredTwin() {
			continue // it is removed while the agent prefers the other one
		}
		if p.mayHaveLostRecord(now) {
			continue
		}
		phase := served.Status.Phase
		if isTerminalPhase(phase) && p.liveContainers > 0 {
			return findingf("pod %s is served as %s, but %s runs", p, phase,
				p.anyLiveContainer())
		}
		if p.servedTerminal != "" && phase != p.servedTerminal && served.DeletionTimestamp == nil {
			return findingf("pod %s is served as %s after it was served as %s",
				p, phase, p.servedTerminal)
		}
	}
	return nil
}

// findWrongEnd returns whether a pod is given the reason of its end before its terminal
// phase, or the condition DisruptionTarget without a reason, or ends without one that it should
// have: by it a Job does not count the end as a failure of the pod (KEP-3329). As in the kubelet,
// an eviction for a limit of the pod has none, one for the node has it also if the pod ended for
// another reason already, and the mirror of a static pod that runs again after a shutdown keeps it.
func (m *model) findWrongEnd(before, after *v1.Pod) *finding {
	if before == nil {
		return nil
	}
	status, p := &after.Status, m.pods[string(after.UID)]
	ends := isTerminalPhase(status.Phase) && !isTerminalPhase(before.Status.Phase)
	wants := status.Reason == reasonPreempted || status.Reason == reasonShutdown ||
		status.Reason == reasonEvicted && strings.HasPrefix(status.Message, lowPrefix)
	mayHave := wants || p != nil && !p.pressureEvictedAt.IsZero()
	switch has := isDisruptionTarget(after); {
	case status.Phase == v1.PodRunning && before.Status.Reason == "" &&
		slices.Contains(reasonsOfEnds, status.Reason):
		return findingf("pod %s/%s is given the reason %q while it runs", after.Namespace, after.Name,
			status.Reason)
	case has && !(ends && mayHave) && !isDisruptionTarget(before):
		return findingf("pod %s/%s is given the condition DisruptionTarget in phase %s for %q: %q",
			after.Namespace, after.Name, status.Phase, status.Reason, status.Message)
	case ends && wants && !has:
		return findingf("pod %s/%s is reported as ended for %q without the condition DisruptionTarget",
			after.Namespace, after.Name, status.Reason)
	}
	return nil
}

// reasonsOfEnds are those that come with a terminal phase.
var reasonsOfEnds = []string{reasonPreempted, reasonShutdown, reasonEvicted, reasonDeadline,
	reasonVolumeLimit}

// isDisruptionTarget reports whether a pod has the condition from an agent.
func isDisruptionTarget(p *v1.Pod) bool {
	c := podCondition(p.Status.Conditions, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
}

// hasDesiredTwin reports whether another manifest has a pod of the same full name: one of the two
// is skipped, after a restart of the agent maybe the other one.
func (p *pod) hasDesiredTwin() bool {
	return slices.ContainsFunc(p.fullName.pods, func(o *pod) bool { return o != p && o.spec != nil })
}

// mayHaveLostRecord reports whether the agent may have given up reading the pod's record when it
// was started.
func (p *pod) mayHaveLostRecord(now time.Time) bool {
	m := p.model
	return m.agentStarts > 1 && now.Sub(m.agentStartedAt) < manifestNoticeBound &&
		m.faultPossible("ReadFiles", m.agentStartedAt, now)
}

// recordTerminalPhase records a served terminal phase that is final.
func (p *pod) recordTerminalPhase(now time.Time, served *v1.Pod) {
	switch {
	case p.servedTerminal != "" && served.Status.Phase == v1.PodRunning && p.mayHaveLostRecord(now):
		p.servedTerminal = "" // it runs again
	case !isTerminalPhase(served.Status.Phase), served.DeletionTimestamp != nil, p.spec == nil:
	case p.specChanged && p.static: // the phase may be that of an earlier spec
	case p.static && p.mayRunAgainAfterShutdown(now, served):
	case p.static && p.hasEndedForShutdown(served) && p.expectedTerminalPhase() == v1.PodSucceeded:
		// The agent may learn only later how it had exited.
	case p.wasRemoved() && now.Sub(p.desiredAt) < manifestNoticeBound:
	default:
		p.servedTerminal = served.Status.Phase
	}
}

func isTerminalPhase(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

func (p *pod) anyLiveContainer() *container {
	for _, c := range p.containers {
		if c.state == running {
			return c
		}
	}
	return nil
}
