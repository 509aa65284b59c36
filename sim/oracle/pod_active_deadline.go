package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// activeDeadline fires when a pod is served as past its active deadline before it is, or starts a
// container long after it. The deadline counts from the served start time.
type activeDeadline struct{}

func (*activeDeadline) describe() Entry {
	return Entry{"active-deadline", "A pod is ended for its active deadline only when the " +
		"deadline has passed since the served start time, and starts no container long after " +
		"that."}
}

const reasonDeadline = "DeadlineExceeded"

// deadlineSlack is how long a pod may start containers after its deadline and the grace periods
// of its containers.
const deadlineSlack = 30 * time.Second

func (*activeDeadline) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil || !p.mustExceedDeadline(f.Time) {
		return nil
	}
	if m.agentDown || f.Time.Sub(m.agentStartedAt) < deadlineSlack ||
		m.faultPossible("StartContainer", f.Time.Add(-deadlineSlack), f.Time) {
		return nil
	}
	return findingf("container %s of pod %s was started %v after the pod's "+
		"active deadline", f.Container, p, f.Time.Sub(p.servedStart.latest.Add(p.activeDeadline())))
}

func (*activeDeadline) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if served.Status.Reason != reasonDeadline || p == nil || p.spec == nil || p.specChanged ||
			p.wasRemoved() {
			continue
		}
		if p.activeDeadline() == 0 {
			return findingf("pod %s is served as past its active deadline, "+
				"but has none", p)
		}
		if at := served.Status.StartTime; at != nil && now.Before(at.Add(p.activeDeadline())) {
			return findingf("pod %s is served as past its active deadline "+
				"of %v, but its served start time is only %v ago", p, p.activeDeadline(), now.Sub(at.Time))
		}
	}
	return nil
}

// timeRange is the earliest and the latest time that was served for one moment.
type timeRange struct{ earliest, latest time.Time }

// recordServedStart records the served start time. An agent that starts over may serve a later
// one for a static pod, which no API server keeps.
func (p *pod) recordServedStart(served *v1.Pod) {
	at := served.Status.StartTime
	if at == nil || p.spec == nil {
		return
	}
	if p.servedStart.earliest.IsZero() || at.Time.Before(p.servedStart.earliest) {
		p.servedStart.earliest = at.Time
	}
	p.servedStart.latest = later(p.servedStart.latest, at.Time)
}

// activeDeadline returns the active deadline of the newest spec; zero if it has none.
func (p *pod) activeDeadline() time.Duration {
	if p.spec == nil || p.spec.Spec.ActiveDeadlineSeconds == nil {
		return 0
	}
	return time.Duration(*p.spec.Spec.ActiveDeadlineSeconds) * time.Second
}

// mayExceedDeadline reports whether the pod may be past its active deadline. An agent that has lost
// the start time with the pod's record has only the runtime's timestamps.
func (p *pod) mayExceedDeadline(now time.Time) bool {
	start := p.firstDesiredAt
	if !p.servedStart.earliest.IsZero() {
		start = p.servedStart.earliest
	}
	for _, c := range p.containers {
		stamped := c.createdAt.Add(p.model.clockSkew(c.createdAt))
		if p.model.agentStartedAt.After(c.createdAt) && stamped.Before(start) {
			start = stamped
		}
	}
	return p.activeDeadline() > 0 && !now.Before(start.Add(p.activeDeadline()-time.Second))
}

// mustExceedDeadline reports whether the pod is so long past its active deadline that no
// container of it may run any more.
func (p *pod) mustExceedDeadline(now time.Time) bool {
	if p.activeDeadline() == 0 || p.servedStart.latest.IsZero() {
		return false
	}
	last := later(p.servedStart.latest, p.desiredAt)
	return now.Sub(last) > p.activeDeadline()+p.maxGrace+deadlineSlack
}
