package oracle

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// progress is the rule that things come right in the end. It finds nothing by itself: whoever
// runs the simulation polls Unsettled after the healing and knows how long it may take.
type progress struct{}

func (*progress) entry() Entry {
	return Entry{"progress", "When nothing goes wrong any more, every pod becomes what its " +
		"manifest demands, what nobody wants goes without a trace, and the API shows it."}
}

// restartedWithin is how long after its back-off a container is restarted at the latest.
const restartedWithin = 15 * time.Second

// Unsettled says what is not as it should be in the end, in lines; nothing if all is well. It is
// asked after Healed, as often as wanted. Whoever wants to know only whether there is anything
// stops at the first line, and the rest is not looked for.
func (p *Panel) Unsettled(now time.Time) iter.Seq[string] {
	return func(yield func(string) bool) {
		w, well := p.world, true
		w.now = now
		tell := func(lines []string) bool {
			for _, line := range lines {
				if well = false; !yield(line) {
					return false
				}
			}
			return true
		}
		for _, pod := range w.order {
			lacks := pod.due
			if pod.spec == nil {
				lacks = pod.remains
			}
			if !tell(lacks()) {
				return
			}
		}
		if tell(w.objectsUnsettled(now)) && well { // files are looked at last: that is the most work
			tell(w.logsUnsettled(now))
		}
	}
}

// remains says what is left of a pod that nobody wants.
func (p *pod) remains() []string {
	var lines []string
	for _, s := range p.sandboxes {
		lines = append(lines, fmt.Sprintf("pod %s: not wanted, but sandbox %.12s is left", p, s.id))
	}
	for _, c := range p.containers {
		lines = append(lines, fmt.Sprintf("pod %s: not wanted, but container %s #%d is left", p,
			c.name, c.attempt))
	}
	for _, dir := range p.dirs {
		lines = append(lines, fmt.Sprintf("pod %s: not wanted, but %s is left", p, dir))
	}
	for _, dir := range p.cgroupsLeft() {
		lines = append(lines, fmt.Sprintf("pod %s: not wanted, but cgroup %s is left", p, dir))
	}
	if p.shown {
		lines = append(lines, fmt.Sprintf("pod %s: not wanted, but still shown", p))
	}
	return lines
}

// due says what a wanted pod lacks. Of those of one full name one has to be well; as long as none
// is, the lack of the first is told.
func (p *pod) due() []string {
	var first []string
	for _, rival := range p.full.pods {
		if rival.spec == nil {
			continue
		}
		lacks := rival.lacks(p.world.now)
		if len(lacks) == 0 {
			return nil
		}
		if first == nil {
			first = lacks
		}
	}
	return first
}

// lacks says what a wanted pod lacks, in the runtime or in what is shown of it.
func (p *pod) lacks(now time.Time) []string {
	what := p.lacksRun(now)
	switch {
	case what != "":
	case !p.shown:
		what = "it is not shown"
	case p.complaint != "":
		what = p.complaint
	case !p.confirmed:
		what = "nothing that is true was shown of it yet"
	default:
		return nil
	}
	return []string{"pod " + p.String() + ": " + what}
}

// lacksRun is the first thing that is wrong with what runs; empty if all is well.
func (p *pod) lacksRun(now time.Time) string {
	if p.rejected {
		return p.lacksEnd()
	}
	what := p.lacksSandbox(now)
	if what != "" && p.waits() {
		return ""
	}
	return what
}

// lacksSandbox is the same for a pod that does not have to wait for others.
func (p *pod) lacksSandbox(now time.Time) string {
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
		case c.full != p.full.text:
			return fmt.Sprintf("container %s #%d was made for %s", c.name, c.attempt, c.full)
		case p.superseded(c):
			return fmt.Sprintf("container %s #%d runs, but all are to be restarted", c.name,
				c.attempt)
		case !p.current(c):
			return fmt.Sprintf("container %s #%d is not of the newest spec", c.name, c.attempt)
		}
	}
	switch {
	case p.toBeEvicted():
		return fmt.Sprintf("%v is above its limit, but the pod is not evicted", p.everOver())
	case p.maybeKilled(now) && !p.surelyKilled(now):
		return ""
	case p.over() && p.live > 0:
		return fmt.Sprintf("it has come to its end, but %s runs", p.anyLive().name)
	case p.over() && newest != nil && newest.ready:
		return "it has come to its end, but its sandbox is still ready"
	case p.over():
		return ""
	case p.byHand && p.terminal != "" && p.live == 0:
		return "" // it had come to its end, and somebody has tidied up
	case p.ranBefore() && p.live == 0 && (newest == nil || !newest.ready):
		return ""
	case newest == nil || !newest.ready:
		return "it has no sandbox that is ready"
	}
	if what := p.lacksCgroup(newest); what != "" {
		return what
	}
	if what := p.lacksContent(now); what != "" {
		return what
	}
	if what := p.lacksEphemeral(); what != "" {
		return what
	}
	return p.lacksContainer(newest, now)
}

// ranBefore says that a pod whose manifest went and came back is shown as having run to its end:
// the agent did not notice that the manifest was gone, or had died over removing what was left,
// and some of that was removed all the same when the old request took effect.
func (p *pod) ranBefore() bool { return p.loose() && p.terminal != "" }

// lacksContainer is what is wrong with the containers of a pod that should run in a sandbox.
func (p *pod) lacksContainer(s *sandbox, now time.Time) string {
	initialised := p.initialised(s)
	for i := range p.spec.Spec.InitContainers {
		name := p.spec.Spec.InitContainers[i].Name
		sidecar := p.sidecar(name) > 0
		if !sidecar && (initialised || s.round == p.roundDue() && slices.Contains(s.ended, name)) {
			continue
		}
		c := p.newest(name)
		here := c != nil && c.sandbox == s && !p.superseded(c)
		if sidecar && here && (initialised || c.state == running && c.begun(now)) {
			if what := p.lacksProcess(c, now); what != "" {
				return what
			}
			continue
		}
		if c == nil && p.barred(&p.spec.Spec.InitContainers[i]) {
			return ""
		}
		if c == nil || c.sandbox != s {
			return fmt.Sprintf("init container %s has not run in its sandbox", name)
		}
		return p.lacksProcess(c, now) // those after it wait for it
	}
	for i := range p.spec.Spec.Containers {
		c := p.newest(p.spec.Spec.Containers[i].Name)
		if c == nil && p.barred(&p.spec.Spec.Containers[i]) {
			continue
		}
		if c == nil {
			return fmt.Sprintf("container %s was never made", p.spec.Spec.Containers[i].Name)
		}
		if what := p.lacksProcess(c, now); what != "" {
			return what
		}
	}
	return ""
}

// initialised says whether an app container has run in a sandbox, in the round that has to run, so
// that its init containers are over and done with, whatever they are called now.
func (p *pod) initialised(s *sandbox) bool {
	for _, c := range p.containers {
		if c.sandbox == s && !p.isInit(c.name) && c.state != created && !p.superseded(c) {
			return true
		}
	}
	return false
}

// lacksProcess is what is wrong with the newest run of a container, if it should run or have run.
func (p *pod) lacksProcess(c *container, now time.Time) string {
	switch {
	case c.state == running:
		return p.lacksProbe(c, now)
	case c.state == created:
		return fmt.Sprintf("container %s #%d is not started", c.name, c.attempt)
	case p.final(c):
		return ""
	case now.After(c.exitedAt.Add(c.waitAtMost() + restartedWithin)):
		return fmt.Sprintf("container %s #%d exited %v ago, has to wait %v and is not restarted",
			c.name, c.attempt, now.Sub(c.exitedAt).Round(time.Second), c.waitAtMost())
	}
	return ""
}

// over says whether a pod has come to its end: no container will run any more.
func (p *pod) over() bool { return p.surelyKilled(p.world.now) || p.ended() }

// ended is the same, but for what the agent ends it for: a deadline, a limit.
func (p *pod) ended() bool {
	for i := range p.spec.Spec.InitContainers {
		c := p.newest(p.spec.Spec.InitContainers[i].Name)
		if c != nil && c.state == exited && c.code != 0 && p.sidecar(c.name) == 0 && p.final(c) {
			return true
		}
	}
	for i := range p.spec.Spec.Containers {
		c := p.newest(p.spec.Spec.Containers[i].Name)
		if c == nil || c.state != exited || !p.final(c) {
			return false
		}
	}
	return true
}

// final says whether the restart policy and rules leave an exited container as it is.
func (p *pod) final(c *container) bool {
	if p.sidecar(c.name) > 0 || p.superseded(c) {
		return false
	}
	return !restarts(containerOf(p.spec, c.name), p.spec.Spec.RestartPolicy, c.code)
}
