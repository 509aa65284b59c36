package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// sidecarOrder fires when a sidecar is asked to stop while other containers need it (KEP-753). A
// pod whose manifest changed, or was removed and came back, is not checked: a delayed request to
// stop may reach the new pod.
type sidecarOrder struct{}

func (*sidecarOrder) describe() Entry {
	return Entry{"sidecar-order", "A sidecar is asked to stop only when no app container of " +
		"its sandbox runs, and no sidecar that was started after it, unless its grace period is " +
		"used up or all containers are restarted."}
}

func (*sidecarOrder) checkFact(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if f.Kind != truth.StopRequested || c == nil || c.state != running {
		return nil
	}
	p := c.pod
	place := p.sidecarPosition(c.name)
	// The agent may not have noticed the removal of the manifest when a probe fails.
	probed := p.spec != nil || f.Time.Sub(p.removedAt) < manifestNoticeBound
	if place == 0 || c.wasLost || c.mayBeSuperseded() || p.specChanged ||
		p.timesRemoved > 1 || p.timesRemoved > 0 && p.spec != nil ||
		probed && m.mayHaveFailed(c, f.Time) || m.hasUsedUpGrace(c, f) {
		return nil
	}
	for _, o := range p.containers {
		if o.state != running || o == c || o.sandbox != c.sandbox {
			continue
		}
		if other := p.sidecarPosition(o.name); other == 0 || other > place {
			return findingf("sidecar %s was asked to stop while %s ran",
				c, o.name)
		}
	}
	return nil
}

// sidecarSlack is by how much more the first of two requests to stop may be delayed, if no fault
// strikes it.
const sidecarSlack = 2 * transitSlack

// hasUsedUpGrace reports whether a sidecar is asked to stop with the seconds that it has when its
// grace period is used up. That begins with the exit of its last app container, with the first
// request to stop a container that was not started again since, with the removal of the manifest,
// or when a shutdown of the machine reached its group, whichever came first. A container that was
// removed counts as one that has exited: who stopped it says nothing about the others.
func (m *model) hasUsedUpGrace(c *container, f *truth.Fact) bool {
	p, grace := c.pod, c.pod.minGrace
	if c.annotatedGrace >= 0 {
		grace = min(grace, c.annotatedGrace)
	}
	var firstStop time.Time
	for _, o := range p.containers {
		if o.sandbox == c.sandbox && !o.stopRequestedAt.IsZero() &&
			(o.state == running || o == p.newestRun(o.name)) &&
			(firstStop.IsZero() || o.stopRequestedAt.Before(firstStop)) {
			firstStop = o.stopRequestedAt
		}
	}
	since := firstStop
	if ended := p.lastExit(c.sandbox); since.IsZero() || !ended.IsZero() && ended.Before(since) {
		since = ended
	}
	if p.spec == nil && (since.IsZero() || p.removedAt.Before(since)) {
		since = p.removedAt
	}
	if at := p.shutDownAt(f.Time); !at.IsZero() && (since.IsZero() || at.Before(since)) {
		since, grace = at, m.shutdownGrace(c, f.Time, grace)
	}
	if f.GraceSeconds > int64(minStopGrace/time.Second) {
		return false
	}
	// The first request to stop may still be on its way, or may have failed.
	return !since.IsZero() && f.Time.Sub(since) >= grace-sidecarSlack ||
		m.faultPossible("StopContainer", f.Time.Add(-grace-sidecarSlack), f.Time)
}

// lastExit returns when the last app container of a sandbox exited; zero if one runs or none has
// exited.
func (p *pod) lastExit(s *sandbox) time.Time {
	var last time.Time
	for _, c := range p.containers {
		switch {
		case c.sandbox != s || p.isInitContainer(c.name):
		case c.state != exited:
			return time.Time{}
		default:
			last = later(last, c.exitedAt)
		}
	}
	return last
}

// sidecarPosition returns the position of a sidecar among the init containers, from 1; zero if
// the container is no sidecar.
func (p *pod) sidecarPosition(name string) int { return p.sidecarPositions[name] }

// sidecarPositionsOf returns the positions of a spec's sidecars, by name.
func sidecarPositionsOf(spec *v1.Pod) map[string]int {
	places := map[string]int{}
	for i := range spec.Spec.InitContainers {
		c := &spec.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			places[c.Name] = i + 1
		}
	}
	return places
}
