package oracle

import (
	"fmt"
	"time"
)

// askedWithin is how much longer than its period a probe may take to come, when nothing goes wrong.
const askedWithin = 20 * time.Second

// lacksProbe is what is wrong with what a running container is asked, or with what comes of it, in
// the end; empty if all is well.
func (p *pod) lacksProbe(c *container, now time.Time) string {
	w := p.world
	what := func(format string, args ...any) string {
		return fmt.Sprintf("container %s #%d ", c.name, c.attempt) + fmt.Sprintf(format, args...)
	}
	since := later(later(c.startedAt, w.started), w.healed)
	if a := c.ask(forPostStart); c.hasPostStart() {
		if !c.warm() {
			return p.lacksWarmth(c, a, what)
		}
		since = later(since, a.ended)
	}
	if first := c.ask(forStartup); first != nil {
		s := w.stands(c, first, now)
		if s.mayBeOther() {
			if s.may(good) {
				return "" // what comes next cannot be told
			}
			return w.lacksAnswer(c, first, since, now, what)
		}
		since = later(since, s.wasOther)
	}
	for _, kind := range []purpose{forLiveness, forReadiness} {
		if a := c.ask(kind); a != nil {
			if lack := w.lacksAnswer(c, a, since, now, what); lack != "" {
				return lack
			}
		}
	}
	return ""
}

// lacksWarmth is what is wrong with a container that runs and whose postStart hook has not ended
// well.
func (p *pod) lacksWarmth(c *container, a *ask,
	what func(string, ...any) string) string {
	w := p.world
	switch {
	case a == nil: // nobody sees it
	case a.times == 0:
		return what("has not had its postStart hook")
	case a.times > 0 && len(a.pending) == 0 && a.failed() &&
		w.livedThrough(c.startedAt) && !w.struck(a.call, c.startedAt, a.ended.Add(wireSlack)):
		return what("runs although its postStart hook has failed")
	}
	return ""
}

// lacksAnswer is what is wrong with one probe that should be asked since a time.
func (w *world) lacksAnswer(c *container, a *ask, since, now time.Time,
	what func(string, ...any) string) string {
	initial := time.Duration(a.probe.InitialDelaySeconds) * time.Second
	due := later(later(since, c.startedAt.Add(initial)), a.newest)
	switch {
	case now.Sub(due) > a.period()+a.timeout()+askedWithin:
		return what("has not had its %s probe for %v", a.purpose, now.Sub(due).Round(time.Second))
	case a.newest.Before(w.healed):
		return what("has not had its %s probe yet", a.purpose)
	}
	if a.purpose == forReadiness {
		return ""
	}
	s := w.stands(c, a, now)
	switch {
	case !s.may(undecided) && !s.may(good):
		return what("runs although its %s probe has failed", a.purpose)
	case a.purpose == forLiveness && s.may(bad): // the next answers will tell
		return what("runs although its %s probe may have failed", a.purpose)
	}
	return ""
}

// mayBeReady says whether a running container may rightly be shown as ready, and as not ready.
func (w *world) mayBeReady(c *container, now time.Time) (ready, not bool) {
	if c.spec == nil || c.sharesProbes() {
		return true, true
	}
	ready, not = true, !c.warm()
	for _, kind := range []purpose{forStartup, forReadiness} {
		if a := c.ask(kind); a != nil {
			s := w.stands(c, a, now)
			ready, not = ready && s.lately(good, now), not || s.otherLately(now)
		}
	}
	return ready, not
}

// excusesReady says whether a container is rightly shown as ready or not because of its probes.
func (w *world) excusesReady(c *container, shown bool) bool {
	if c.state != running || !c.readyByProbe() {
		return false
	}
	ready, not := w.mayBeReady(c, w.now)
	return shown && ready || !shown && not
}

// begun says whether what comes after a sidecar may go on: it has no startup probe, or that has
// succeeded.
func (c *container) begun(now time.Time) bool {
	a := c.ask(forStartup)
	if a == nil {
		return true
	}
	s := c.pod.world.stands(c, a, now)
	return s.may(good)
}
