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

// handlerKind is which of its probes and hooks a container serves.
type handlerKind string

const (
	startupProbe   handlerKind = "startup"
	livenessProbe  handlerKind = "liveness"
	readinessProbe handlerKind = "readiness"
	postStartHook  handlerKind = "postStart"
	preStopHook    handlerKind = "preStop"
)

// handler is the state of one probe or lifecycle hook of one run of a container.
type handler struct {
	kind        handlerKind
	call        string    // the port's call, as the faults name it
	requests    []string  // as facts may have them
	probe       *v1.Probe // nil: a hook
	isAmbiguous bool      // another handler has the same request, and facts do not distinguish the two

	count        int              // requests that have reached the container
	firstAt      time.Time        // the first one
	latestAt     time.Time        // the latest one
	beforeAt     time.Time        // the one before it
	inFlight     []handlerRequest // requests that have not ended and that an agent may wait for
	endedAt      time.Time        // when a request last ended
	latestReply  truth.Reply      // the reply of that request
	results      probeResults
	recordReadAt time.Time // the start of the agent whose load of the pod's record is accounted for
}

// handlerRequest is a request that has not ended.
type handlerRequest struct {
	number    uint64 // zero if requests are not numbered: they end in the order in which they came
	startedAt time.Time
}

// completeRequest removes the request that has ended, and returns when it started; false if no
// agent waited for it any more.
func (h *handler) completeRequest(number uint64) (time.Time, bool) {
	i := 0
	if number != 0 {
		i = slices.IndexFunc(h.inFlight, func(p handlerRequest) bool { return p.number == number })
	}
	if i < 0 || i >= len(h.inFlight) {
		return h.latestAt, number == 0
	}
	startedAt := h.inFlight[i].startedAt
	h.inFlight = slices.Delete(h.inFlight, i, i+1)
	return startedAt, true
}

// expireRequests removes requests that the agent gave up long before its next one. An exec that
// the runtime forgot when it died may hang for ever.
func (h *handler) expireRequests(now time.Time) {
	if h.probe == nil {
		return
	}
	h.inFlight = slices.DeleteFunc(h.inFlight, func(p handlerRequest) bool {
		late := p.number != 0 && now.Sub(p.startedAt) > h.timeout()+transitSlack
		if late {
			h.results.apply(now, mayFail|mayBeLost)
		}
		return late
	})
}

func (h *handler) timeout() time.Duration {
	return time.Duration(max(h.probe.TimeoutSeconds, 1)) * time.Second
}

func (h *handler) period() time.Duration {
	return time.Duration(max(h.probe.PeriodSeconds, 1)) * time.Second
}

// handlersOf returns the probes and hooks of a container.
func handlersOf(c *v1.Container) []*handler {
	var all []*handler
	add := func(p handlerKind, probe *v1.Probe, call string, requests []string) {
		if call == "" {
			return
		}
		all = append(all, &handler{kind: p, call: call, requests: requests, probe: probe,
			results: newProbeResults(probe)})
	}
	for _, p := range []struct {
		kind  handlerKind
		probe *v1.Probe
	}{
		{startupProbe, c.StartupProbe}, {livenessProbe, c.LivenessProbe},
		{readinessProbe, c.ReadinessProbe},
	} {
		if p.probe != nil {
			call, requests := probeCall(c, p.probe)
			add(p.kind, p.probe, call, requests)
		}
	}
	if c.Lifecycle != nil {
		call, requests := hookCall(c, c.Lifecycle.PostStart)
		add(postStartHook, nil, call, requests)
		call, requests = hookCall(c, c.Lifecycle.PreStop)
		add(preStopHook, nil, call, requests)
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if slices.Contains(b.requests, a.requests[0]) {
				a.isAmbiguous, b.isAmbiguous = true, true
			}
		}
	}
	return all
}

func probeCall(c *v1.Container, p *v1.Probe) (call string, requests []string) {
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
	return actionCall(c, p.Exec, p.HTTPGet)
}

// hookCall returns an empty call for a hook that no fact shows: a sleep, or a TCP hook, which
// does nothing.
func hookCall(c *v1.Container, h *v1.LifecycleHandler) (call string, requests []string) {
	if h == nil {
		return "", nil
	}
	return actionCall(c, h.Exec, h.HTTPGet)
}

func actionCall(c *v1.Container, exec *v1.ExecAction, get *v1.HTTPGetAction) (string, []string) {
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

// handler returns the container's probe or hook of a kind; nil if there is none, or if its
// requests are ambiguous.
func (c *container) handler(kind handlerKind) *handler {
	for _, h := range c.handlers {
		if h.kind == kind && !h.isAmbiguous {
			return h
		}
	}
	return nil
}

// handlerOfFact returns the probe or hook that a fact is about; nil if there is none, or if it is
// ambiguous.
func (c *container) handlerOfFact(f *truth.Fact) *handler {
	for _, h := range c.handlers {
		if !h.isAmbiguous && slices.Contains(h.requests, f.Request) {
			return h
		}
	}
	return nil
}

// isOfPostStart reports whether a fact is about the postStart hook of a container.
func (m *model) isOfPostStart(f *truth.Fact) bool {
	c := m.containers[f.ContainerID]
	if c == nil {
		return false
	}
	h := c.handlerOfFact(f)
	return h != nil && h.kind == postStartHook
}

// applyHandler updates the handler that a fact is about.
func (m *model) applyHandler(f *truth.Fact) {
	c := m.containers[f.ContainerID]
	if c == nil {
		return
	}
	h := c.handlerOfFact(f)
	if h == nil {
		return
	}
	if h.probe != nil {
		m.addTransitFailures(c, h, f.Time)
	}
	if f.Kind == truth.HandlerRequested {
		if h.count++; h.count == 1 {
			h.firstAt = f.Time
		}
		h.expireRequests(f.Time)
		h.beforeAt = h.latestAt
		h.latestAt, h.inFlight = f.Time, append(h.inFlight, handlerRequest{f.RequestNumber, f.Time})
		if first := c.handler(startupProbe); first != nil && h.probe != nil && h != first {
			first.results.assume(resultSuccess)
		}
		if h.kind == preStopHook {
			m.noteKillStart(c, h.call, f.Time)
		}
		return
	}
	startedAt, awaited := h.completeRequest(f.RequestNumber)
	if !awaited {
		return
	}
	h.endedAt, h.latestReply = f.Time, h.effectiveReply(f.Reply)
	if h.probe != nil {
		h.results.apply(f.Time, m.possibleReplies(h, startedAt, f))
		if s := c.sandbox; s != nil && h.kind == startupProbe && c.round == s.round &&
			h.results.canBe(resultSuccess) && !slices.Contains(s.passedStartup, c.name) {
			s.passedStartup = append(s.passedStartup, c.name)
		}
	}
}

// effectiveReply returns what a reply means for the handler: an HTTP hook succeeds with any
// response, whatever its status.
func (h *handler) effectiveReply(reply truth.Reply) truth.Reply {
	reply = reply.Class()
	if h.probe == nil && h.call == "HTTPGet" && reply == truth.ReplyFailure {
		return truth.ReplySuccess
	}
	return reply
}

// hasFailed reports whether the latest reply was a failure of the container.
func (h *handler) hasFailed() bool {
	return h.latestReply == truth.ReplyFailure || h.latestReply == truth.ReplyRefused
}

// possibleReplies returns what the end of a probe may have been to the agent. An error of the
// runtime that cannot run a command is no result.
func (m *model) possibleReplies(h *handler, startedAt time.Time, f *truth.Fact) replySet {
	duration, exec := f.Time.Sub(startedAt), h.call == "ExecSync"
	var replies replySet
	switch {
	case f.Reply == truth.ReplyNone && duration < h.timeout()-2*transitSlack:
		replies = mayFail | mayBeLost // the process of the container ended, or the agent did
	case f.Reply == truth.ReplyNone:
		replies = mayFail
	case duration > h.timeout()-2*transitSlack && duration < h.timeout()+transitSlack:
		replies = maySucceed | mayFail | mayBeLost
	case duration > h.timeout():
		replies = mayFail | mayBeLost
	case f.Reply == truth.ReplyRefused && exec:
		replies = mayBeLost
	case f.Reply.Class() == truth.ReplySuccess:
		replies = maySucceed
	default:
		replies = mayFail
	}
	if m.agentDown || m.agentStartedAt.After(startedAt.Add(-transitSlack)) {
		// No agent may have received the reply.
		replies |= mayBeLost
	}
	if m.faultPossible(h.call, startedAt.Add(-transitSlack), f.Time.Add(transitSlack)) {
		replies |= mayFail | mayBeLost
	}
	return replies
}

// addTransitFailures accounts for probes that may have failed in transit, which no fact shows.
func (m *model) addTransitFailures(c *container, h *handler, now time.Time) {
	since := later(c.startedAt, h.results.latestAt)
	m.addRecordLoss(c, h, now)
	if h.call == "ExecSync" { // an error of the runtime is no result
		return
	}
	if m.faultPossible(h.call, since, now) || c.sandbox == nil || !c.sandbox.ready {
		h.results.addFailures(now)
	}
}

// addRecordLoss accounts for an agent that may have failed to load the pod's record when it
// started.
func (m *model) addRecordLoss(c *container, h *handler, now time.Time) {
	if h.recordReadAt.Equal(m.agentStartedAt) || !m.agentStartedAt.After(c.startedAt) {
		return
	}
	until := m.agentStartedAt.Add(manifestNoticeBound)
	if m.faultPossible("ReadFiles", m.agentStartedAt, until) {
		h.results.noteTimes(now)
		h.results.states = slices.Clone(h.results.states)
		h.results.add(probeState{})
	}
	h.recordReadAt = m.agentStartedAt
}

// possibleResults returns the results that a probe may have now.
func (m *model) possibleResults(c *container, h *handler, now time.Time) probeResults {
	m.addRecordLoss(c, h, now)
	s := h.results.clone()
	if h.call != "ExecSync" && (c.sandbox == nil || !c.sandbox.ready ||
		m.faultPossible(h.call, later(c.startedAt, s.latestAt), now)) {
		s.addFailures(now)
	}
	for _, p := range h.inFlight {
		if now.Sub(p.startedAt) > h.timeout()-2*transitSlack {
			s.apply(now, mayFail|mayBeLost)
		}
	}
	return s
}

// noteKillStart records the first sign that the agent kills a container. A sign that may come
// from a delayed request of an earlier incarnation does not count.
func (m *model) noteKillStart(c *container, call string, now time.Time) {
	if c.killStartedAt.IsZero() && !m.faultPossible(call, now.Add(-time.Second), now) &&
		now.Sub(m.agentStartedAt) > transitSlack {
		c.killStartedAt = now
	}
}

// killStart returns since when a container is being killed; zero if that is not known.
func (c *container) killStart() time.Time {
	if p := c.pod; c.killStartedAt.IsZero() && p.spec == nil {
		return p.terminatingSince
	}
	return c.killStartedAt
}
