package oracle

import (
	"fmt"
	"time"

	"seedlet.dev/sim/truth"
)

// hooks fires when a container is stopped without its preStop hook, or while the hook has time
// left, when it is left to run past its grace period, when the next container does not wait for
// the postStart hook, and when a hook is delivered again for no reason. A fault on the way and the
// death of the agent excuse: a hook is delivered at least once. Sleeps are seen by nobody.
type hooks struct{}

func (*hooks) entry() Entry {
	return Entry{"hooks", "TERM comes after the preStop hook has ended or used the grace period " +
		"up, with 2 s left at least, and KILL in time; the next container starts after the " +
		"postStart hook; a hook is delivered once."}
}

const (
	stopGraceMin = 2 * time.Second // what is left when a hook has used its container's time up
	hookSlack    = 10 * time.Second
	// killSlack is for the whole seconds in which the runtime is told, and for a wait in line.
	killSlack = 3 * time.Second
)

func (h *hooks) fact(w *world, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		return w.overtaken(f)
	}
	c := w.containers[f.ContainerID]
	if c == nil || c.state != running || c.sandbox == nil || !c.sandbox.ready {
		return nil
	}
	what := ""
	switch a := c.ask(forPreStop); f.Kind {
	case truth.Asked:
		what = w.delivered(c, f)
	case truth.StopRequested:
		if a != nil && c.stopAt.IsZero() {
			what = w.stopped(c, a, f)
		}
	case truth.KillRequested:
		if a != nil && f.Cause == truth.CauseStop && a.times > 0 {
			what = w.killedLate(c, a, f)
		}
	}
	if what == "" {
		return nil
	}
	return &finding{message: fmt.Sprintf("%s %s", c, what)}
}

// delivered judges that a hook reaches a container once more.
func (w *world) delivered(c *container, f *truth.Fact) string {
	a := c.asked(f)
	if a == nil || a.probe != nil || a.times == 0 || !w.livedThrough(a.first) ||
		w.struckAny(a.first, f.Time, a.call, "StartContainer", "StopContainer") {
		return ""
	}
	return fmt.Sprintf("is sent its %s hook again, %v after the first time", a.purpose,
		f.Time.Sub(a.first).Round(time.Millisecond))
}

// stopped judges that TERM is sent to a container with a preStop hook.
func (w *world) stopped(c *container, a *ask, f *truth.Fact) string {
	due := w.graceDue(c, f.Time)
	since := f.Time.Add(-c.graceMost() - hookSlack)
	switch {
	case c.restarted(): // without hooks
		return ""
	case c.pod.graceLeast == 0 || due == 0 || w.dead || c.pod.sidecar(c.name) > 0 && a.times > 0:
		return ""
	case w.started.After(since) || c.pod.spec == nil && w.started.After(c.pod.removedAt):
		return "" // an agent died over it, or this one may know no more than the runtime does
	case w.struckAny(since, f.Time, a.call, "StopContainer", "StartContainer"):
		return ""
	case f.GraceSeconds < int64(min(due, stopGraceMin)/time.Second):
		return fmt.Sprintf("was asked to end with a grace period of %d s", f.GraceSeconds)
	case a.times == 0 && w.struck(a.call, c.startedAt, f.Time) &&
		w.struck("StopContainer", c.startedAt, f.Time):
		return "" // the hook was lost on its way, and the first stops after it failed
	case a.times == 0:
		return "was asked to end without its preStop hook"
	case len(a.pending) > 0 && f.Time.Sub(a.newest) < due-2*wireSlack:
		return fmt.Sprintf("was asked to end %v after its preStop hook was, which has not ended "+
			"and has %v", f.Time.Sub(a.newest).Round(time.Millisecond), due)
	}
	return ""
}

// killedLate judges that KILL comes long after the grace period. What waits for others to end is
// not judged.
func (w *world) killedLate(c *container, a *ask, f *truth.Fact) string {
	most := c.graceMost() + stopGraceMin + killSlack
	took := f.Time.Sub(a.first)
	if c.pod.sidecar(c.name) > 0 || took <= most || !w.livedThrough(a.first) ||
		w.struckAny(a.first, f.Time, a.call, "StopContainer") {
		return ""
	}
	return fmt.Sprintf("was killed only %v after its preStop hook was sent", took.Round(
		time.Millisecond))
}

// overtaken judges that a container starts while the postStart hook of one before it goes on.
func (w *world) overtaken(f *truth.Fact) *finding {
	p, s := w.pods[f.PodUID], w.sandboxes[f.SandboxID]
	if p == nil || s == nil || p.spec == nil || p.respecified || p.loose() {
		return nil
	}
	place := p.place(f.Container)
	for _, c := range p.containers {
		a := c.ask(forPostStart)
		if a == nil || c.state != running || c.sandbox != s || p.place(c.name) >= place ||
			a.times > 0 && len(a.pending) == 0 || !w.livedThrough(c.startedAt) ||
			w.struckAny(c.madeAt, f.Time, a.call, "StartContainer", "CreateContainer") {
			continue
		}
		return &finding{message: fmt.Sprintf("container %s (%.12s) was started while the postStart "+
			"hook of %s had not ended", f.Container, f.ContainerID, c)}
	}
	return nil
}

// place is that of a container in the order of its pod's.
func (p *pod) place(name string) int {
	for i := range p.spec.Spec.InitContainers {
		if p.spec.Spec.InitContainers[i].Name == name {
			return i
		}
	}
	for i := range p.spec.Spec.Containers {
		if p.spec.Spec.Containers[i].Name == name {
			return len(p.spec.Spec.InitContainers) + i
		}
	}
	return -1
}

// graceDue is how long a container has at least from the first sign of its end: less than the
// pod's if it may be ended for a probe with a grace period of its own.
func (w *world) graceDue(c *container, now time.Time) time.Duration {
	due := c.graceDue()
	if c.restarted() {
		due = min(due, stopGraceMin)
	}
	if c.spec == nil || !w.failed(c, now) {
		return due
	}
	for _, a := range c.asks {
		if a.probe != nil && a.probe.TerminationGracePeriodSeconds != nil {
			due = min(due, time.Duration(*a.probe.TerminationGracePeriodSeconds)*time.Second)
		}
	}
	return due
}

// hookTime is how much of its grace period a container may have spent in its hook before TERM.
func (w *world) hookTime(c *container) time.Duration {
	if c.spec == nil || c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		return 0
	}
	hook := c.spec.Lifecycle.PreStop
	if hook.Sleep != nil {
		return time.Duration(hook.Sleep.Seconds)*time.Second + time.Second
	}
	a := c.ask(forPreStop)
	switch {
	case a == nil:
		return graceForEver
	case a.times > 0 && !a.first.After(c.stopAt) &&
		!w.struck(a.call, c.stopAt.Add(-c.graceMost()), c.stopAt):
		return c.stopAt.Sub(a.first)
	case a.times > 0 || w.struck(a.call, c.stopAt.Add(-c.graceMost()), c.stopAt):
		return graceForEver
	}
	return 0
}

// graceForEver is more than any grace period that a scenario has.
const graceForEver = 24 * time.Hour
