package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// probes fires when a container is asked what it must not be asked any more, or not yet, and when
// the API shows what the answers do not say (upstream #100277, #105215, #135795, #141155,
// #141766). That a container is ended for nothing is for the oracle undisturbed.
type probes struct{}

func (*probes) entry() Entry {
	return Entry{"probes", "No probe reaches a container that is being ended, " +
		"and none but the startup probe one that has not started; ready and started are shown as " +
		"the answers of that container say, and a restart of the agent changes neither."}
}

// probesShownWithin is how long the answers to a probe may take to be shown.
const probesShownWithin = shownWithin

func (*probes) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.Asked || c == nil {
		return nil
	}
	a := c.asked(f)
	if a == nil || a.probe == nil || w.struck(a.call, f.Time.Add(-time.Second), f.Time) {
		return nil
	}
	if ends := c.ends(); !ends.IsZero() && f.Time.Sub(ends) > wireSlack {
		return &finding{message: fmt.Sprintf("the %s probe of %s was sent %v after its end had "+
			"begun", a.purpose, c, f.Time.Sub(ends).Round(time.Millisecond))}
	}
	first := c.ask(forStartup)
	if first == nil || a == first || !c.ran() {
		return nil
	}
	if s := w.stands(c, first, f.Time); !s.may(good) {
		return &finding{message: fmt.Sprintf("the %s probe of %s was sent although its startup "+
			"probe has not succeeded", a.purpose, c)}
	}
	return nil
}

func (*probes) answer(w *world, now time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		if shown.Status.Phase == v1.PodUnknown || shown.DeletionTimestamp != nil {
			continue
		}
		for _, list := range statuses(shown) {
			for i := range list {
				c := w.shownRun(&list[i])
				if c == nil || c.state != running || c.lost || c.pod.spec == nil ||
					!c.ends().IsZero() {
					continue
				}
				if what := w.misjudged(c, &list[i], now); what != "" {
					return &finding{message: fmt.Sprintf("%s is shown %s", c, what)}
				}
			}
		}
	}
	return nil
}

// misjudged is what a status says that the answers to the probes do not; empty if nothing.
func (w *world) misjudged(c *container, status *v1.ContainerStatus, now time.Time) string {
	if w.struckAny(now.Add(-noticedAfter), now, keptBy...) {
		return "" // how it is cannot be kept, and what is shown waits for that
	}
	startup, readiness := c.ask(forStartup), c.ask(forReadiness)
	if startup != nil {
		s := w.stands(c, startup, now)
		if status.Started != nil && *status.Started && !s.lately(good, now) {
			return "as started, but its startup probe has not succeeded"
		}
		if status.Ready && !s.lately(good, now) {
			return "as ready, but its startup probe has not succeeded"
		}
		if readiness == nil && !status.Ready && !s.otherLately(now) && !c.sharesProbes() {
			return "as not ready, but its startup probe has succeeded"
		}
	}
	if readiness == nil {
		return ""
	}
	s := w.stands(c, readiness, now)
	switch {
	case status.Ready && !s.lately(good, now):
		return "as ready, but its readiness probe does not say so"
	case status.Ready || s.otherLately(now):
		return ""
	case startup != nil:
		if s := w.stands(c, startup, now); s.otherLately(now) {
			return ""
		}
	}
	return "as not ready, but its readiness probe says that it is"
}

// keptBy are the calls by which an agent keeps how ready containers are for the next one.
var keptBy = []string{"WriteFile", "ReadFiles", "MakeDir"}

func (c *container) hasPostStart() bool {
	return c.spec != nil && c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil
}

// warm says whether the postStart hook of a container, if it has one, has surely ended well. Until
// then it may be shown as waiting: for as long as the answer does not come, if it was lost.
func (c *container) warm() bool {
	if c.spec != nil && !c.hasPostStart() {
		return true
	}
	a := c.ask(forPostStart)
	if a == nil || a.times == 0 || len(a.pending) > 0 || a.reply != truth.ReplyGood {
		return false
	}
	sent := later(c.startedAt, a.newest.Add(-wireSlack))
	return !c.pod.world.struck(a.call, sent, a.ended.Add(wireSlack))
}

// lately says whether the result was possibly r a short while ago.
func (s *standing) lately(r verdict, now time.Time) bool {
	was := s.wasGood
	if r == bad {
		was = s.wasBad
	}
	return s.may(r) || now.Sub(was) <= probesShownWithin
}

// otherLately says whether the result was possibly something else than good a short while ago.
func (s *standing) otherLately(now time.Time) bool {
	return s.mayBeOther() || now.Sub(s.wasOther) <= probesShownWithin
}

// sharesProbes says that probes of a container cannot be told apart.
func (c *container) sharesProbes() bool {
	for _, a := range c.asks {
		if a.shared {
			return true
		}
	}
	return false
}

// readyByProbe says that whether a container is ready is for its probes to say, or cannot be told.
func (c *container) readyByProbe() bool {
	return c.spec == nil || c.spec.ReadinessProbe != nil || c.spec.StartupProbe != nil ||
		c.hasPostStart()
}

// failed says whether a probe or a hook may be a reason to end a container, now or lately.
func (w *world) failed(c *container, now time.Time) bool {
	if c.spec == nil {
		return true
	}
	if c.hasPostStart() && c.ask(forPostStart) == nil {
		return true // nobody sees how it went
	}
	lately := 2*c.graceMost() + time.Minute // a hook, and a request that had to be repeated
	for _, a := range c.asks {
		switch {
		case a.shared:
			return true
		case a.purpose == forLiveness || a.purpose == forStartup:
			s := w.stands(c, a, now)
			if s.may(bad) || now.Sub(s.wasBad) <= lately ||
				w.struck("StopContainer", now.Add(-lately), now) && !s.wasBad.IsZero() {
				return true
			}
		case a.purpose == forPostStart:
			if a.times > 0 && a.reply != truth.ReplyGood ||
				w.struckAny(c.startedAt, now, a.call, "StartContainer") {
				return true
			}
		}
	}
	return false
}
