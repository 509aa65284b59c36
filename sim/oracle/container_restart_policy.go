package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// restartPolicy fires when a container runs again against its restart policy. A container that ran
// when its spec changed may run again, and a new sandbox is initialized again.
type restartPolicy struct{}

func (*restartPolicy) describe() Entry {
	return Entry{"restart-policy", "Under Never no container runs twice, not even if its record is " +
		"removed while it runs; under OnFailure none runs again after exit code 0. A container's own " +
		"policy and rules take precedence. No init container runs again in a sandbox in which it has " +
		"completed."}
}

func (*restartPolicy) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil || c.pod.loosestPolicy == "" {
		return nil
	}
	last := c.pod.historyOf(c.name).last
	if last == nil || last == c || !last.hasRun() || last.hash != c.hash && last.mayBeReplaced() {
		return nil
	}
	if m.mayHaveLostExit(last) && m.mayRunAgainLost(last, f.Time) {
		return nil
	}
	if c.round > last.round {
		return nil // checked by restart-all and init-order
	}
	if last.exitRule() == v1.ContainerRestartRuleActionRestartAllContainers && !c.pod.specChanged {
		return findingf("%s ran again alone, but had exited with %d, for "+
			"which its rule is to restart all containers", c, last.exitCode)
	}
	if c.pod.sidecarPosition(c.name) > 0 || c.spec == nil && c.pod.hasOwnPolicy(c.name) {
		return nil // a sidecar runs again under every policy; the other spec is not known
	}
	if !last.stopRequestedAt.IsZero() && last.spec != nil && (last.spec.LivenessProbe != nil ||
		last.spec.StartupProbe != nil) && c.pod.loosestPolicy != v1.RestartPolicyNever {
		return nil // killed by a probe to be restarted, whatever the exit code
	}
	init := c.pod.isInitContainer(c.name)
	if init && last.sandbox != c.sandbox {
		return nil
	}
	reason := ""
	switch {
	case init && c.sandbox != nil && slices.Contains(c.sandbox.completed, c.name):
		reason = "it had completed in this sandbox"
	case runsAgain(last.spec, c.pod.loosestPolicy, last.exitCode):
		return nil
	case last.spec != nil && last.spec.RestartPolicy != nil:
		reason = fmt.Sprintf("its restart policy is %s, and no rule of it is for exit code %d",
			*last.spec.RestartPolicy, last.exitCode)
	case c.pod.loosestPolicy == v1.RestartPolicyNever:
		reason = "its pod's restart policy is Never"
	default:
		reason = "its pod's restart policy is OnFailure and it had exited with 0"
	}
	return findingf("%s ran again, but %s", c, reason)
}

// mayHaveLostExit reports whether an administrator has removed a run whose exit code the agent may
// not know, or no agent any more: only the one that saw the exit does.
func (m *model) mayHaveLostExit(c *container) bool {
	p := c.pod
	return p.removedByHand && (p.countLost || m.mayHaveMissedExit(c) ||
		m.anyFaultPossible(c.exitedAt, p.removedByHandAt,
			"ListContainers", "ContainerStatus", "ReadTail"))
}

// lostExitCode is that of a run whose exit is not known: its work may be half done.
const lostExitCode = 137

// mayRunAgainLost reports whether a container may run again although the agent, or an earlier one,
// has reported its last run, of which the runtime has no record.
func (m *model) mayRunAgainLost(last *container, now time.Time) bool {
	at, code := last.reportedRunningAt, int32(lostExitCode)
	mayNotKnow := func(reportedAt time.Time) bool { // the first list of an agent may be older
		return reportedAt.IsZero() || m.agentStartedAt.After(reportedAt) &&
			m.anyFaultPossible(m.agentStartedAt.Add(-reconnectBound), now, "WatchObjects")
	}
	if !mayNotKnow(last.reportedEndAt) {
		at, code = last.reportedEndAt, last.exitCode
	}
	return mayNotKnow(at) || runsAgain(last.spec, last.pod.loosestPolicy, code)
}

// mayBeReplaced reports whether the container may run again because its spec has changed: it was
// stopped, or it ran then for all that the agent had listed. One that was listed as exited before
// stays as it is, unless its policy is to restart it.
func (c *container) mayBeReplaced() bool {
	return !c.stopRequestedAt.IsZero() || c.pod.wasRemoved() || c.exitCause != truth.CauseSelf ||
		c.ranAtChange
}
