package oracle

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// restartAll fires when containers run side by side of which some were to end before all are
// restarted, or when all are restarted for no reason (KEP-5532). That they are at all, and that
// init containers run again, is for progress and init-order to judge, that nothing of a container's
// run is cut short otherwise for grace, hooks and undisturbed. In which round a container is the
// agent writes on it; whether there is such a round is for what really happened to say.
type restartAll struct{}

func (*restartAll) entry() Entry {
	return Entry{"restart-all", "All containers are restarted only when one has exited with a " +
		"code for which it has that rule, once for each such exit, and none starts anew before " +
		"all have ended."}
}

const annotationRound = "seedlet.dev/round"

func (*restartAll) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil {
		return nil
	}
	p := c.pod
	if c.round > p.mayRound {
		return &finding{message: fmt.Sprintf("%s runs in round %d, but nothing has exited that "+
			"would begin it", c, c.round)}
	}
	for _, o := range p.containers {
		if o.state != running || o.sandbox != c.sandbox || o.round == c.round {
			continue
		}
		return &finding{message: fmt.Sprintf("%s was started in round %d while %s runs, of round "+
			"%d", c, c.round, o.name, o.round)}
	}
	return nil
}

// rule is what the rules of a container's newest spec say about how it has exited.
func (c *container) rule() v1.ContainerRestartRuleAction {
	if c.pod.spec == nil {
		return ""
	}
	return ruleFor(containerOf(c.pod.spec, c.name), c.code)
}

// beginRound takes that a container has exited, which may begin the next round of its pod: not if
// the pod had come to its end before, for then it is only a sidecar. One of another image, or of
// when the manifest had not gone yet, or of which somebody removes the records, begins nothing for
// sure.
func (p *pod) beginRound(c *container, over bool) {
	for _, spec := range p.specs {
		if ruleFor(containerOf(spec, c.name), c.code) ==
			v1.ContainerRestartRuleActionRestartAllContainers {
			p.mayRound = max(p.mayRound, c.round+1)
		}
	}
	if c.rule() == v1.ContainerRestartRuleActionRestartAllContainers && !over && p.current(c) &&
		(!p.loose() || p.world.ofThisWish(c)) && !p.byHand {
		p.round, p.roundBy = max(p.round, c.round+1), c
	}
	p.doubtRound(c)
}

// doubtRound takes back that the next round must begin if the pod has come to its end for another
// reason after all, once a sidecar had exited: which of the two the agent sees first cannot be
// told.
func (p *pod) doubtRound(c *container) {
	by := p.roundBy
	if p.spec == nil || c.round >= p.round || by == nil || p.sidecar(by.name) == 0 {
		return
	}
	ended := c.stopAt.After(by.exitedAt) && c.sandbox != nil && c.sandbox.ready
	if ended && !p.world.failed(c, p.world.now) {
		return // for that
	}
	round := p.round
	if p.round = c.round; !p.ended() {
		p.round = round
	}
}

// restarted says whether a container may have been ended because all are restarted.
func (c *container) restarted() bool { return c.round < c.pod.mayRound }

// superseded says whether a container is of a round before the one that has to run.
func (p *pod) superseded(c *container) bool {
	return c.round < p.roundDue() && !p.isEphemeral(c.name)
}

// roundDue is the round that has to run: the newest of which anything was made, or the one that an
// exit has begun.
func (p *pod) roundDue() int {
	round := p.round
	for _, c := range p.containers {
		round = max(round, c.round)
	}
	return round
}
