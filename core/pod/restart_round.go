package pod

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The restart of all containers of a pod, because one of them has exited with a code that matches a
// restart policy rule with the action RestartAllContainers (KEP-5532). Every container belongs to a
// restart round, whose number is an annotation of the container. The exit starts the next round:
// containers of earlier rounds are stopped at once, and when none of them runs, all containers are
// created again in their order, init containers first, in the same sandbox and with the same
// volumes. Containers of earlier rounds are retained like earlier runs, so that restart counts and
// back-off continue.

// Round is how many restarts of all containers there were, and the exit that has caused the last
// one.
type Round struct {
	Number      int    `json:"number,omitempty"`
	TriggeredBy string `json:"triggeredBy,omitempty"` // the container that exited, if known
	ExitCode    int32  `json:"exitCode,omitempty"`    // of that container
}

// IsSuperseded reports whether a container is of an earlier round. Ephemeral containers belong to
// no round.
func (p *Pod) IsSuperseded(c *Container) bool {
	return c.Round < p.Round.Number && p.roleOf(c.Name) != Ephemeral
}

// restoreRound restores the round that an earlier agent has started, from the pod's record and the
// annotations of its containers.
func (p *Pod) restoreRound() {
	number := p.Record.Round
	for i := range p.Containers {
		number = max(number, p.Containers[i].Round)
	}
	if number > p.Round.Number {
		p.Round = Round{Number: number}
	}
}

// startRoundOnExit starts the next round if an exit demands it. The decision waits until all exits
// are known, because only then is it clear which exit was the first and whether the pod has
// completed before: the sidecars are stopped after the last app container, and their exit codes
// start no round.
func (p *Pod) startRoundOnExit(env *Env) {
	if !p.HasRestartAllRule() || p.HasUnknownExits() || p.hasCompleted() {
		return
	}
	if by := p.roundTrigger(); by != nil {
		p.Round = Round{Number: p.Round.Number + 1, TriggeredBy: by.Name, ExitCode: by.ExitCode}
		env.Effects.Log(world.LevelInfo, "restarting all containers", "pod", p.FullName(),
			"containerName", by.Name, "exitCode", strconv.Itoa(int(by.ExitCode)))
	}
}

// roundTrigger returns the container of this round that was the first to exit with a code that
// restarts all containers; nil if none exists.
func (p *Pod) roundTrigger() *Container {
	var first *Container
	for i := range p.Containers {
		c := &p.Containers[i]
		container := p.specContainer(c.Name)
		if container == nil || !c.HasKnownExit() || p.IsSuperseded(c) || p.NewestRun(c.Name) != c ||
			p.roleOf(c.Name) == Ephemeral || p.mustBeReplaced(c) || c.isStoppedAsChanged() {
			continue
		}
		action := restartRuleAction(container, c.ExitCode)
		if action == v1.ContainerRestartRuleActionRestartAllContainers &&
			(first == nil || c.FinishedAt.Before(first.FinishedAt)) {
			first = c
		}
	}
	return first
}

// HasRestartAllRule reports whether any container of the spec has a rule with the action
// RestartAllContainers.
func (p *Pod) HasRestartAllRule() bool {
	for _, list := range [][]v1.Container{p.Spec.Spec.InitContainers, p.Spec.Spec.Containers} {
		for i := range list {
			for k := range list[i].RestartPolicyRules {
				action := list[i].RestartPolicyRules[k].Action
				if action == v1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// stopSuperseded stops the containers of earlier rounds: all at once, without preStop hooks and
// with the least grace period. The record of the next round must be durable before, because
// afterwards the exits look as if the containers had completed.
func (p *Pod) stopSuperseded(env *Env, w *wakeTimer) {
	if p.Record.Round < p.Round.Number && p.Record.Failures == 0 && p.hasDir() {
		return
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.isLive() && p.IsSuperseded(c) {
			p.stopContainer(c, 0, stopReasonRestartAll, env, w)
		}
	}
}

// HasActiveSuperseded reports whether a container of an earlier round runs, or could still be
// started.
func (p *Pod) HasActiveSuperseded() bool {
	sandbox := p.CurrentSandbox()
	for i := range p.Containers {
		c := &p.Containers[i]
		startable := c.State == Created && sandbox != nil && c.SandboxID == sandbox.ID
		if p.IsSuperseded(c) && (c.isLive() || startable) {
			return true
		}
	}
	return false
}

// isBetweenRounds reports whether no container may be created or started now: containers of an
// earlier round are being stopped, or it is not known yet whether a new round starts.
func (p *Pod) isBetweenRounds() bool {
	return p.HasActiveSuperseded() || p.HasRestartAllRule() && p.HasUnknownExits()
}
