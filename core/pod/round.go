package pod

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The restart of all containers of a pod, because one of them has exited with a code for which it
// has a rule of that action (KEP-5532). Every container belongs to a round, which is written on it
// when it is made. The exit begins the next round: what is of an earlier one is ended at once, and
// when nothing of it runs, everything is made anew in its order, init containers first, in the
// same sandbox, with the same volumes. Records of earlier rounds stay as those of former runs do,
// so that counts and back-off go on.

// Round is how often all containers were begun anew, and why the last time.
type Round struct {
	Number   int    `json:"number,omitempty"`
	By       string `json:"by,omitempty"`       // the container that exited; empty: not known
	ExitCode int32  `json:"exitCode,omitempty"` // with which it did
}

// annotationRound is the round that a container was made in; absent on those of the first.
const annotationRound = "seedlet.dev/round"

// superseded says whether a container is of an earlier round. Ephemeral ones are of none.
func (p *Pod) superseded(c *Container) bool {
	return c.Round < p.Round.Number && p.role(c.Name) != Ephemeral
}

// recallRound finds out which round it was before this agent: what is written tells, and what was
// made.
func (p *Pod) recallRound() {
	number := p.Record.Round
	for i := range p.Containers {
		number = max(number, p.Containers[i].Round)
	}
	if number > p.Round.Number {
		p.Round = Round{Number: number}
	}
}

// takeRound takes an exit that begins the next round. Which of several exits it is, and whether the
// pod has come to its end before, cannot be told until all are known: an app container that has
// ended for good ends the sidecars, and how they take it begins nothing.
func (p *Pod) takeRound(env *Env) {
	if !p.restartsAll() || p.awaitInspections() || p.completed() {
		return
	}
	if by := p.trigger(); by != nil {
		p.Round = Round{Number: p.Round.Number + 1, By: by.Name, ExitCode: by.ExitCode}
		env.Out.Log(world.LevelInfo, "restarting all containers", "pod", p.FullName(),
			"container", by.Name, "exitCode", strconv.Itoa(int(by.ExitCode)))
	}
}

// trigger is the container of this round that was the first to exit with a code that has all of
// them restarted; nil if there is none.
func (p *Pod) trigger() *Container {
	var first *Container
	for i := range p.Containers {
		c := &p.Containers[i]
		want := p.want(c.Name)
		if want == nil || !c.ended() || p.superseded(c) || p.newest(c.Name) != c ||
			p.role(c.Name) == Ephemeral || !p.matches(c) {
			continue
		}
		if ruleFor(want, c.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers &&
			(first == nil || c.FinishedAt.Before(first.FinishedAt)) {
			first = c
		}
	}
	return first
}

// restartsAll says whether any container of the spec has such a rule.
func (p *Pod) restartsAll() bool {
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

// endRounds ends what runs of an earlier round: all at once, without preStop hooks and without
// more than the least grace. It is kept before that the next round has begun, for what is ended
// now looks later as if it had ended for good.
func (p *Pod) endRounds(env *Env, w *waits) {
	if p.Record.Round < p.Round.Number && p.Record.Failures == 0 && p.hasDir() {
		return
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.live() && p.superseded(c) {
			p.stop(c, 0, stopRound, env, w)
		}
	}
}

// ending says whether anything of an earlier round runs, or could still be started.
func (p *Pod) ending() bool {
	for i := range p.Containers {
		c := &p.Containers[i]
		startable := c.State == Created && p.current() != nil && c.SandboxID == p.current().ID
		if p.superseded(c) && (c.live() || startable) {
			return true
		}
	}
	return false
}

// betweenRounds says whether nothing may be made or started now: an earlier round is being ended,
// or it is not known yet whether one has to be.
func (p *Pod) betweenRounds() bool {
	return p.ending() || p.restartsAll() && p.awaitInspections()
}

// noteRound records the condition that shows it. It is over when all containers have ended; that
// they back off then is theirs to show.
func (p *Pod) noteRound(env *Env) {
	if !p.restartsAll() {
		return
	}
	reason, message := p.ended(), ""
	restarting := p.Stage == Syncing && reason == "" && p.ending()
	if restarting {
		reason = "RestartAllContainersStarted"
		if p.Round.By != "" {
			message = "container " + p.Round.By + " exited with code " +
				strconv.Itoa(int(p.Round.ExitCode))
		}
	}
	p.setCondition(v1.AllContainersRestarting, restarting, reason, message, env.Out.Now())
}
