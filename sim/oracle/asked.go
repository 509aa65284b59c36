package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"seedlet.dev/sim/truth"
)

// purpose is what a container is asked for.
type purpose string

const (
	forStartup   purpose = "startup"
	forLiveness  purpose = "liveness"
	forReadiness purpose = "readiness"
	forPostStart purpose = "postStart"
	forPreStop   purpose = "preStop"
)

// ask is what is known of one probe or hook of one run of a container.
type ask struct {
	purpose purpose
	call    string    // as the faults know it
	texts   []string  // as the truth may have it
	probe   *v1.Probe // nil: a hook
	shared  bool      // another one asks for the same: which of the two is asked cannot be told

	times    int         // how often it has reached the container
	first    time.Time   // when it did first
	newest   time.Time   // and last
	pending  []pending   // those that have not ended and that an agent may wait for
	ended    time.Time   // when the newest one that has ended did
	reply    truth.Reply // of that one
	standing standing
	recalled time.Time // the start of the agent that has read how it was, or has failed to
}

// pending is one request that has not ended.
type pending struct {
	number uint64 // zero if they are not counted: they end in the order in which they came
	began  time.Time
}

// take takes out the request that has ended, and says when it began; false for one that nobody
// waited for any more.
func (a *ask) take(number uint64) (time.Time, bool) {
	i := 0
	if number != 0 {
		i = slices.IndexFunc(a.pending, func(p pending) bool { return p.number == number })
	}
	if i < 0 || i >= len(a.pending) {
		return a.newest, number == 0
	}
	began := a.pending[i].began
	a.pending = slices.Delete(a.pending, i, i+1)
	return began, true
}

// giveUp takes into account that an agent that asks again has given up what it asked long before.
// A command that the runtime forgot when it died may hang for ever.
func (a *ask) giveUp(now time.Time) {
	if a.probe == nil {
		return
	}
	a.pending = slices.DeleteFunc(a.pending, func(p pending) bool {
		late := p.number != 0 && now.Sub(p.began) > a.timeout()+wireSlack
		if late {
			a.standing.take(now, canBad|canNothing)
		}
		return late
	})
}

// wireSlack is more than a call takes on its way there or back when nothing is wrong.
const wireSlack = 25 * time.Millisecond

func (a *ask) timeout() time.Duration {
	return time.Duration(max(a.probe.TimeoutSeconds, 1)) * time.Second
}

func (a *ask) period() time.Duration {
	return time.Duration(max(a.probe.PeriodSeconds, 1)) * time.Second
}

// asksOf are the probes and hooks of a container.
func asksOf(c *v1.Container) []*ask {
	var all []*ask
	add := func(p purpose, probe *v1.Probe, call string, texts []string) {
		if call == "" {
			return
		}
		all = append(all, &ask{purpose: p, call: call, texts: texts, probe: probe,
			standing: undecidedOf(probe)})
	}
	for _, p := range []struct {
		purpose purpose
		probe   *v1.Probe
	}{
		{forStartup, c.StartupProbe}, {forLiveness, c.LivenessProbe},
		{forReadiness, c.ReadinessProbe},
	} {
		if p.probe != nil {
			call, texts := probeRequest(c, p.probe)
			add(p.purpose, p.probe, call, texts)
		}
	}
	if c.Lifecycle != nil {
		call, texts := hookRequest(c, c.Lifecycle.PostStart)
		add(forPostStart, nil, call, texts)
		call, texts = hookRequest(c, c.Lifecycle.PreStop)
		add(forPreStop, nil, call, texts)
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if slices.Contains(b.texts, a.texts[0]) {
				a.shared, b.shared = true, true
			}
		}
	}
	return all
}

func probeRequest(c *v1.Container, p *v1.Probe) (call string, texts []string) {
	switch {
	case p.TCPSocket != nil:
		return "TCPConnect", []string{"tcp :" + portOf(c, p.TCPSocket.Port)}
	case p.GRPC != nil:
		text, service := fmt.Sprintf("grpc :%d", p.GRPC.Port), ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		if service == "" {
			return "GRPCCheck", []string{text, text + "/"}
		}
		return "GRPCCheck", []string{text + "/" + service}
	}
	return request(c, p.Exec, p.HTTPGet)
}

// hookRequest has no call for a hook that nobody sees from outside: a sleep, or a TCP hook, which
// does nothing.
func hookRequest(c *v1.Container, h *v1.LifecycleHandler) (call string, texts []string) {
	if h == nil {
		return "", nil
	}
	return request(c, h.Exec, h.HTTPGet)
}

func request(c *v1.Container, exec *v1.ExecAction, get *v1.HTTPGetAction) (string, []string) {
	switch {
	case exec != nil:
		return "ExecSync", []string{"exec " + strings.Join(exec.Command, " ")}
	case get != nil:
		rest := " :" + portOf(c, get.Port) + "/" + strings.TrimPrefix(get.Path, "/")
		return "HTTPGet", []string{"http" + rest, "https" + rest}
	}
	return "", nil
}

func portOf(c *v1.Container, port intstr.IntOrString) string {
	for i := range c.Ports {
		if port.Type == intstr.String && c.Ports[i].Name == port.StrVal {
			return fmt.Sprint(c.Ports[i].ContainerPort)
		}
	}
	return port.String()
}

// ask is a container's probe or hook of a kind; nil if it has none, or none that can be judged.
func (c *container) ask(p purpose) *ask {
	for _, a := range c.asks {
		if a.purpose == p && !a.shared {
			return a
		}
	}
	return nil
}

// asked is the probe or hook that a fact is about; nil if none of the spec is.
func (c *container) asked(f *truth.Fact) *ask {
	for _, a := range c.asks {
		if !a.shared && slices.Contains(a.texts, f.Request) {
			return a
		}
	}
	return nil
}

// takeAsked brings a container up to date about what it was asked.
func (w *world) takeAsked(f *truth.Fact) {
	c := w.containers[f.ContainerID]
	if c == nil {
		return
	}
	a := c.asked(f)
	if a == nil {
		return
	}
	if a.probe != nil {
		w.loosen(c, a, f.Time)
	}
	if f.Kind == truth.Asked {
		if a.times++; a.times == 1 {
			a.first = f.Time
		}
		a.giveUp(f.Time)
		a.newest, a.pending = f.Time, append(a.pending, pending{f.Asking, f.Time})
		if first := c.ask(forStartup); first != nil && a.probe != nil && a != first {
			first.standing.believe(good)
		}
		if a.purpose == forPreStop {
			w.killBegins(c, a.call, f.Time)
		}
		return
	}
	began, awaited := a.take(f.Asking)
	if !awaited {
		return
	}
	a.ended, a.reply = f.Time, a.meant(f.Reply)
	if a.probe != nil {
		a.standing.take(f.Time, w.outcome(a, began, f))
		if s := c.sandbox; s != nil && a.purpose == forStartup && c.round == s.round &&
			a.standing.may(good) && !slices.Contains(s.passed, c.name) {
			s.passed = append(s.passed, c.name)
		}
	}
}

// meant is what a reply means: a hook has succeeded when a page has come, whatever its status.
func (a *ask) meant(reply truth.Reply) truth.Reply {
	reply = reply.Means()
	if a.probe == nil && a.call == "HTTPGet" && reply == truth.ReplyBad {
		return truth.ReplyGood
	}
	return reply
}

// failed says whether the container has said that it does not do what it was asked for.
func (a *ask) failed() bool {
	return a.reply == truth.ReplyBad || a.reply == truth.ReplyRefused
}

// outcome is what the end of a probe may have meant to the agent. What a runtime says that cannot
// run a command is no word about the container.
func (w *world) outcome(a *ask, began time.Time, f *truth.Fact) outcome {
	took, exec := f.Time.Sub(began), a.call == "ExecSync"
	var can outcome
	switch {
	case f.Reply == truth.ReplyNone && took < a.timeout()-2*wireSlack:
		can = canBad | canNothing // its process ended, or the agent
	case f.Reply == truth.ReplyNone:
		can = canBad
	case took > a.timeout()-2*wireSlack && took < a.timeout()+wireSlack:
		can = canGood | canBad | canNothing
	case took > a.timeout():
		can = canBad | canNothing
	case f.Reply == truth.ReplyRefused && exec:
		can = canNothing
	case f.Reply.Means() == truth.ReplyGood:
		can = canGood
	default:
		can = canBad
	}
	if w.dead || w.started.After(began.Add(-wireSlack)) { // nobody may have heard it
		can |= canNothing
	}
	if w.struck(a.call, began.Add(-wireSlack), f.Time.Add(wireSlack)) {
		can |= canBad | canNothing
	}
	return can
}

// loosen takes into account that probes may have failed on their way, unseen by the container.
func (w *world) loosen(c *container, a *ask, now time.Time) {
	since := later(c.startedAt, a.standing.at)
	w.recall(c, a, now)
	if a.call == "ExecSync" { // such errors mean nothing
		return
	}
	if w.struck(a.call, since, now) || c.sandbox == nil || !c.sandbox.ready {
		a.standing.loosen(now)
	}
}

// recall takes into account that an agent that has just begun may not have been able to read how
// a container was.
func (w *world) recall(c *container, a *ask, now time.Time) {
	if a.recalled.Equal(w.started) || !w.started.After(c.startedAt) {
		return
	}
	until := w.started.Add(noticedAfter)
	if w.struck("ReadFiles", w.started, until) {
		a.standing.mark(now)
		a.standing.can = slices.Clone(a.standing.can)
		a.standing.add(stand{})
	}
	a.recalled = w.started
}

// stands is what may have come of a probe by now.
func (w *world) stands(c *container, a *ask, now time.Time) standing {
	w.recall(c, a, now)
	s := a.standing.clone()
	if a.call != "ExecSync" && (c.sandbox == nil || !c.sandbox.ready ||
		w.struck(a.call, later(c.startedAt, s.at), now)) {
		s.loosen(now)
	}
	for _, p := range a.pending {
		if now.Sub(p.began) > a.timeout()-2*wireSlack {
			s.take(now, canBad|canNothing)
		}
	}
	return s
}

// killBegins notes the first sign that a container is being ended. A late sign of a request that
// the agent may know nothing of any more is none.
func (w *world) killBegins(c *container, call string, now time.Time) {
	if c.killBegan.IsZero() && !w.struck(call, now.Add(-time.Second), now) &&
		now.Sub(w.started) > wireSlack {
		c.killBegan = now
	}
}

// ends says since when a container is being ended; zero if it is not known to be.
func (c *container) ends() time.Time {
	if p := c.pod; c.killBegan.IsZero() && p.spec == nil {
		return p.ending
	}
	return c.killBegan
}

// struck says whether a fault may have struck a call of a kind that was under way in a time.
func (w *world) struck(call string, from, to time.Time) bool {
	return w.opts.Struck != nil && w.opts.Struck(call, from, to)
}

// struckAny is the same for several.
func (w *world) struckAny(from, to time.Time, calls ...string) bool {
	return slices.ContainsFunc(calls, func(c string) bool { return w.struck(c, from, to) })
}

// livedThrough says that one agent has lived all the time since.
func (w *world) livedThrough(since time.Time) bool {
	return !w.dead && !w.started.After(since.Add(-wireSlack))
}
