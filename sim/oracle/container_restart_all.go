package oracle

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// restartAll fires when containers of two restart rounds run side by side, or when a round starts
// without a reason (KEP-5532). Other oracles check the rest: progress that a round does start,
// init-order that init containers run again, grace-period, hooks and needless-stop that no run is
// cut short otherwise. The agent writes the round on each container; facts show whether the round
// has a reason.
type restartAll struct{}

func (*restartAll) describe() Entry {
	return Entry{"restart-all", "All containers are restarted only when one has exited with a " +
		"code for which that is its rule, once for each such exit, and none starts again " +
		"before all have ended."}
}

// annotationRound is the annotation with the restart round that a container was created in.
// Containers of the first round have none.
const annotationRound = "seedlet.dev/round"

func (*restartAll) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil {
		return nil
	}
	p := c.pod
	if c.round > p.possibleRound {
		return findingf("%s runs in round %d, but no exit "+
			"began that round", c, c.round)
	}
	for _, o := range p.containers {
		if o.state != running || o.sandbox != c.sandbox || o.round == c.round || p.isEphemeral(o.name) {
			continue
		}
		return findingf("%s was started in round %d while %s runs, of round "+
			"%d", c, c.round, o.name, o.round)
	}
	return nil
}

// exitRule returns the action of the container's newest rules for its exit code.
func (c *container) exitRule() v1.ContainerRestartRuleAction {
	if c.pod.spec == nil {
		return ""
	}
	return matchingRule(containerOf(c.pod.spec, c.name), c.exitCode)
}

// advanceRound records that a container has exited, which may begin the next restart round of its
// pod. A pod that was terminal before begins none: only sidecars exit then. The exit begins no
// round for sure if the container is of an old spec, or of the time before the manifest was
// removed, or if an administrator removed a sandbox, or if a shutdown of the machine has stopped
// the container: by then all app containers may end for good.
func (p *pod) advanceRound(c *container, wasTerminal bool) {
	for _, spec := range p.specs {
		if matchingRule(containerOf(spec, c.name), c.exitCode) ==
			v1.ContainerRestartRuleActionRestartAllContainers {
			p.possibleRound = max(p.possibleRound, c.round+1)
		}
	}
	if c.exitRule() == v1.ContainerRestartRuleActionRestartAllContainers && !wasTerminal &&
		p.isOfNewestSpec(c) && (!p.wasRemoved() || p.model.isOfCurrentManifest(c)) &&
		!p.removedByHand && !c.wasStoppedForShutdown() {
		p.requiredRound, p.roundCause = max(p.requiredRound, c.round+1), c
	}
	p.retractRound(c)
}

// wasStoppedForShutdown reports whether the agent has stopped the container, which has exited,
// since a shutdown reached the group of its pod.
func (c *container) wasStoppedForShutdown() bool {
	at := c.pod.shutDownAt(c.exitedAt)
	return !at.IsZero() && c.stopRequestedAt.After(at) && c.exitCause == truth.CauseStop
}

// retractRound withdraws the round that a sidecar's exit had started, if the pod turns out to be
// terminal for another reason: the agent may see the two in either order.
func (p *pod) retractRound(c *container) {
	by := p.roundCause
	if p.spec == nil || c.round >= p.requiredRound || by == nil || p.sidecarPosition(by.name) == 0 {
		return
	}
	ended := c.stopRequestedAt.After(by.exitedAt) && c.sandbox != nil && c.sandbox.ready
	if ended && !p.model.mayHaveFailed(c, p.model.now) {
		return // the stop is for the new round
	}
	round := p.requiredRound
	if p.requiredRound = c.round; !p.hasExitedForGood() {
		p.requiredRound = round
	}
}

// mayBeSuperseded reports whether the agent may have stopped the container for a new round.
func (c *container) mayBeSuperseded() bool { return c.round < c.pod.possibleRound }

// isSuperseded reports whether a container is of a round before the current one.
func (p *pod) isSuperseded(c *container) bool {
	return c.round < p.currentRound() && !p.isEphemeral(c.name)
}

// currentRound returns the round that has to run: the newest of which a container was created, or
// the one that an exit has started.
func (p *pod) currentRound() int {
	round := p.requiredRound
	for _, c := range p.containers {
		round = max(round, c.round)
	}
	return round
}
