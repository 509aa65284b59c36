package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// probes fires when a probe reaches a container that it must not reach any more, or not yet, and
// when a served status does not follow from the probes' replies (upstream #100277, #105215,
// #135795, #141155, #141766). The oracle needless-stop checks that no container is killed without
// a failed probe.
type probes struct{}

func (*probes) describe() Entry {
	return Entry{"probes", "No startup or liveness probe reaches a container that is being killed, " +
		"and only the startup probe reaches one that has not started; none comes more often than its " +
		"period says; ready and started are served as the probe results have it, and an agent restart " +
		"changes neither."}
}

// probeStatusBound is how long the replies to a probe may take to be served.
const probeStatusBound = statusBound

func (*probes) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.HandlerRequested || c == nil {
		return nil
	}
	h := c.handlerOfFact(f)
	if h == nil || h.probe == nil || m.faultPossible(h.call, f.Time.Add(-time.Second), f.Time) {
		return nil
	}
	// A probe of a hostile pod may have waited for the slots that hung ones take, and is sent when the
	// containers of those are killed.
	if killStart := c.killStart(); h.kind != readinessProbe && !killStart.IsZero() &&
		!c.pod.isHostile() && f.Time.Sub(killStart) > transitSlack {
		return findingf("the %s probe of %s was sent %v after its termination had "+
			"begun", h.kind, c, f.Time.Sub(killStart).Round(time.Millisecond))
	}
	if problem := m.findTooOften(c, h, f.Time); problem != nil {
		return problem
	}
	first := c.handler(startupProbe)
	if first == nil || h == first || !c.hasRun() {
		return nil
	}
	if s := m.possibleResults(c, first, f.Time); !s.canBe(resultSuccess) {
		return findingf("the %s probe of %s was sent although its startup "+
			"probe has not succeeded", h.kind, c)
	}
	return nil
}

// findTooOften returns why a probe comes too soon. A probe may wait on its way, and the next one is
// requested after its response, a period after its request at the soonest: so there is a period
// between a probe and the one after the next. A command that cannot be run is tried three times,
// and one of a hostile pod may be run when the agent has given it up.
func (m *model) findTooOften(c *container, h *handler, now time.Time) *finding {
	gap := now.Sub(h.beforeAt)
	if h.isAmbiguous || c.pod.isHostile() ||
		h.call == "ExecSync" && h.latestReply == truth.ReplyRefused ||
		h.beforeAt.IsZero() || gap >= h.period()-transitSlack ||
		!m.agentUpSince(h.beforeAt.Add(-transitSlack)) || m.faultPossible(h.call, h.beforeAt, now) {
		return nil
	}
	return findingf("the %s probe of %s was sent a third time within %v, and its period is %v", h.kind,
		c, gap.Round(time.Millisecond), h.period())
}

func (*probes) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		if served.Status.Phase == v1.PodUnknown || served.DeletionTimestamp != nil {
			continue
		}
		for _, list := range containerStatuses(served) {
			for i := range list {
				c := m.servedRun(&list[i])
				if c == nil || c.state != running || c.wasLost || c.pod.spec == nil ||
					!c.killStart().IsZero() {
					continue
				}
				if problem := m.probeStatusProblem(c, &list[i], now); problem != "" {
					return findingf("%s is served %s", c, problem)
				}
			}
		}
	}
	return nil
}

// probeStatusProblem returns a statement of a status that does not follow from the replies to the
// probes; empty if there is none.
func (m *model) probeStatusProblem(c *container, status *v1.ContainerStatus, now time.Time) string {
	if m.anyFaultPossible(now.Add(-manifestNoticeBound), now, recordCalls...) {
		return "" // a result is served only once it is durable
	}
	startup, readiness := c.handler(startupProbe), c.handler(readinessProbe)
	if startup != nil {
		s := m.possibleResults(c, startup, now)
		if status.Started != nil && *status.Started && !s.mayHaveBeenLately(resultSuccess, now) {
			return "as started, but its startup probe has not succeeded"
		}
		if status.Ready && !s.mayHaveBeenLately(resultSuccess, now) {
			return "as ready, but its startup probe has not succeeded"
		}
		if readiness == nil && !status.Ready && !s.mayHaveBeenOtherLately(now) &&
			!c.hasAmbiguousHandlers() {
			return "as not ready, but its startup probe has succeeded"
		}
	}
	if readiness == nil {
		return ""
	}
	s := m.possibleResults(c, readiness, now)
	switch {
	case status.Ready && !s.mayHaveBeenLately(resultSuccess, now):
		return "as ready, but its readiness probe has not succeeded"
	case status.Ready || s.mayHaveBeenOtherLately(now):
		return ""
	case startup != nil:
		if s := m.possibleResults(c, startup, now); s.mayHaveBeenOtherLately(now) {
			return ""
		}
	}
	return "as not ready, but its readiness probe has succeeded"
}

// recordCalls are the calls by which the agent persists readiness in the pod's record, and loads
// it.
var recordCalls = []string{"WriteFile", "ReadFiles", "MakeDir"}

func (c *container) hasPostStart() bool {
	return c.spec != nil && c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil
}

// isPostStartDone reports whether the container has no postStart hook, or the hook has certainly
// succeeded. Until then the container may be served as waiting, for as long as a lost reply does
// not come. The next kubelet, and so the agent, finds a running container and does not ask for its
// hook (startContainer in pkg/kubelet/kuberuntime runs it).
func (c *container) isPostStartDone() bool {
	if c.spec != nil && !c.hasPostStart() || c.byKubelet {
		return true
	}
	h := c.handler(postStartHook)
	if h == nil || h.count == 0 || len(h.inFlight) > 0 || h.latestReply != truth.ReplySuccess {
		return false
	}
	sent := later(c.startedAt, h.latestAt.Add(-transitSlack))
	return !c.pod.model.faultPossible(h.call, sent, h.endedAt.Add(transitSlack))
}

// postStartEndedAt returns when the postStart hook of the container last ended; zero if it has not.
func (c *container) postStartEndedAt() time.Time {
	if h := c.handler(postStartHook); h != nil {
		return h.endedAt
	}
	return time.Time{}
}

// mayHaveBeenLately reports whether the result may have been r a short while ago.
func (s *probeResults) mayHaveBeenLately(r probeResult, now time.Time) bool {
	was := s.lastSuccess
	if r == resultFailure {
		was = s.lastFailure
	}
	return s.canBe(r) || now.Sub(was) <= probeStatusBound
}

// mayHaveBeenOtherLately reports whether the result may have been another one than success a
// short while ago.
func (s *probeResults) mayHaveBeenOtherLately(now time.Time) bool {
	return s.canBeOther() || now.Sub(s.lastOther) <= probeStatusBound
}

// hasAmbiguousHandlers reports whether facts do not distinguish some handlers of the container.
func (c *container) hasAmbiguousHandlers() bool {
	for _, h := range c.handlers {
		if h.isAmbiguous {
			return true
		}
	}
	return false
}

// needsProbeForReadiness reports whether the container's readiness depends on probes or hooks, or
// on a spec that is not known.
func (c *container) needsProbeForReadiness() bool {
	return c.spec == nil || c.spec.ReadinessProbe != nil || c.spec.StartupProbe != nil ||
		c.hasPostStart()
}

// mayHaveFailed reports whether a probe or hook may be a reason to kill the container, now or
// lately.
func (m *model) mayHaveFailed(c *container, now time.Time) bool {
	if c.spec == nil {
		return true
	}
	if c.hasPostStart() && c.handler(postStartHook) == nil {
		return true // no fact shows the hook
	}
	lately := 2*c.maxGrace() + time.Minute // a hook, and a repeated request
	for _, h := range c.handlers {
		switch {
		case h.isAmbiguous:
			return true
		case h.kind == livenessProbe || h.kind == startupProbe:
			s := m.possibleResults(c, h, now)
			if s.canBe(resultFailure) || now.Sub(s.lastFailure) <= lately ||
				m.faultPossible("StopContainer", now.Add(-lately), now) && !s.lastFailure.IsZero() {
				return true
			}
		case h.kind == postStartHook && !c.byKubelet:
			if h.count > 0 && h.latestReply != truth.ReplySuccess ||
				m.anyFaultPossible(c.startedAt, now, h.call, "StartContainer") {
				return true
			}
		}
	}
	return false
}
