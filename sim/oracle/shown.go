package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// shownWithin is how long the API may take to show what has happened, when nothing goes wrong.
const shownWithin = 5 * time.Second

// answered remembers what an answer claims, once the oracles have judged it.
func (w *world) answered(now time.Time, pods []*v1.Pod) {
	for _, p := range w.order {
		p.shown = false
	}
	for _, shown := range pods {
		p := w.pods[string(shown.UID)]
		if p == nil {
			p = w.pod(string(shown.UID))
			w.name(p, shown.Namespace, shown.Name)
		}
		p.shown = true
		p.claim(now, shown)
		p.begin(shown)
		if shown.DeletionTimestamp != nil && p.spec == nil && p.ending.IsZero() {
			p.ending = now
		}
		w.remember(p, shown)
		if !w.healed.IsZero() && p.spec != nil {
			w.compare(p, now, shown)
		}
	}
}

// remember keeps what must not be taken back.
func (w *world) remember(p *pod, shown *v1.Pod) {
	for _, list := range statuses(shown) {
		for i := range list {
			h := p.runsOf(list[i].Name)
			h.restarts = max(h.restarts, list[i].RestartCount)
			c := w.shownRun(&list[i])
			if c == nil || c.state != running || shown.Status.Phase == v1.PodUnknown {
				continue
			}
			c.shown = c.shown || list[i].Ready
			if c.ready = undecided; list[i].Ready {
				c.ready = good
			}
		}
	}
}

// compare holds what is shown of a pod against the truth, if that has been the same for a while.
func (w *world) compare(p *pod, now time.Time, shown *v1.Pod) {
	still := later(later(p.changed, p.wishedAt), w.started)
	if now.Sub(still) <= shownWithin || shown.Status.Phase == v1.PodUnknown {
		return
	}
	p.complaint = w.misshown(p, shown)
	if p.complaint == "" {
		p.confirmed = true
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// misshown is the first thing that is shown of a pod and not true; empty if there is none.
func (w *world) misshown(p *pod, shown *v1.Pod) string {
	if shown.DeletionTimestamp != nil {
		return "it is shown as being deleted"
	}
	if p.rejected && shown.Status.Phase == v1.PodFailed {
		return ""
	}
	if right := p.phase(); right != "" && shown.Status.Phase != right {
		return fmt.Sprintf("it is shown as %s, but is %s", shown.Status.Phase, right)
	}
	if what := p.misexplained(w.now, shown); what != "" {
		return what
	}
	if p.maybeKilled(w.now) {
		return "" // what is shown of its containers may be how they were
	}
	for i := range p.spec.Spec.InitContainers {
		name := p.spec.Spec.InitContainers[i].Name
		c := p.newest(name)
		done := c != nil && c.state == exited && c.code == 0 && !p.superseded(c)
		if p.sidecar(name) > 0 {
			done = c != nil && c.state == running
		}
		what := w.misshownRun(name, c, done, shown, shown.Status.InitContainerStatuses)
		if what != "" {
			return what
		}
	}
	for i := range p.spec.Spec.Containers {
		name := p.spec.Spec.Containers[i].Name
		c := p.newest(name)
		ready := c != nil && c.state == running
		what := w.misshownRun(name, c, ready, shown, shown.Status.ContainerStatuses)
		if what != "" {
			return what
		}
	}
	return w.misshownEphemeral(p, shown)
}

// misshownRun holds a container status against the newest run.
func (w *world) misshownRun(name string, c *container, ready bool, shown *v1.Pod,
	list []v1.ContainerStatus) string {
	if c == nil || c.state == created {
		return "" // what is shown of the run before it, if anything, is judged elsewhere
	}
	for i := range list {
		status := &list[i]
		if status.Name != name {
			continue
		}
		switch {
		case w.shownRun(status) != c:
			return fmt.Sprintf("container %s is shown with id %.23q, the newest is %.12s (#%d)",
				name, status.ContainerID, c.id, c.attempt)
		case status.RestartCount != int32(c.attempt):
			return fmt.Sprintf("container %s is shown with restart count %d, it is %d", name,
				status.RestartCount, c.attempt)
		case status.Ready != ready && !w.excusesReady(c, status.Ready):
			return fmt.Sprintf("container %s is shown with ready %t, it is %t", name,
				status.Ready, ready)
		case c.state == running && status.State.Running == nil && c.warm():
			return fmt.Sprintf("container %s runs, but is not shown as running", name)
		case c.state == exited && status.State.Running != nil:
			return fmt.Sprintf("container %s has exited (%s), but is shown as running", name,
				causeOf(c))
		}
		return w.missaid(shown, status.State.Terminated)
	}
	return fmt.Sprintf("container %s is not shown", name)
}

func causeOf(c *container) string {
	if c.cause == "" {
		return truth.CauseOwn
	}
	return c.cause
}

// phase is the phase that a pod should be shown with; empty if more than one is right.
func (p *pod) phase() v1.PodPhase {
	switch now := p.world.now; {
	case p.called != "":
		return p.called
	case p.terminal != "" && p.maybeKilled(now):
		return p.terminal
	case p.surelyKilled(now) && !p.ended():
		return v1.PodFailed
	case p.maybeKilled(now):
		return "" // it ended by itself, or was ended
	case p.over():
		return p.outcome()
	}
	s := p.newestSandbox()
	if s == nil || !s.ready {
		return "" // it is being made anew
	}
	if !p.initialised(s) {
		for i := range p.spec.Spec.InitContainers {
			name := p.spec.Spec.InitContainers[i].Name
			c := p.newest(name)
			switch {
			case c == nil || c.sandbox != s || p.superseded(c):
				return v1.PodPending
			case p.sidecar(name) > 0 && (c.state != running || !c.begun(p.world.now)):
				return v1.PodPending
			case p.sidecar(name) == 0 && (c.state != exited || c.code != 0):
				return v1.PodPending
			}
		}
	}
	for i := range p.spec.Spec.Containers {
		if c := p.newest(p.spec.Spec.Containers[i].Name); c == nil || c.state == created ||
			c.state == running && !c.warm() {
			return ""
		}
	}
	return v1.PodRunning
}

// outcome is the terminal phase of a pod that has come to its end.
func (p *pod) outcome() v1.PodPhase {
	for i := range p.spec.Spec.Containers {
		c := p.newest(p.spec.Spec.Containers[i].Name)
		if c == nil || c.code != 0 || c.state != exited || p.superseded(c) {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}
