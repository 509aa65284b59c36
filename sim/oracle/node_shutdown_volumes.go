package oracle

import (
	"slices"
	"time"

	"seedlet.dev/sim/truth"
)

// findMountedVolume returns which pod of a group before another one has a volume mounted, although
// the agent goes on with that group, and the period of the pod's own has not passed. A pod of a
// later group may provide the volume.
func (*nodeShutdown) findMountedVolume(m *model, before int, now time.Time) *finding {
	s := &m.shutdown
	if !s.underWay || s.missed || !m.agentUpSince(s.since) {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.timesDesired > 1 {
			continue
		}
		mounts := m.volumes.countMountsBelow(m.opts.PodsDir + "/" + p.uid)
		if mounts == 0 {
			continue
		}
		group := p.shutdownGroup()
		if group >= min(before, len(s.startsAt)) || !p.wasStoppedAfter(s.startsAt[group]) {
			continue
		}
		if period := m.opts.Shutdown.Groups[group].Period; now.Before(s.startsAt[group].Add(period)) {
			return findingf("pod %s has %d volumes mounted, and its group has had %v of its %v, but the "+
				"shutdown goes on", p, mounts,
				now.Sub(s.startsAt[group]).Round(time.Millisecond), period)
		}
	}
	return nil
}

// wasStoppedAfter reports whether a container of the pod was stopped at a time or after it, so that
// the pod had not ended before.
func (p *pod) wasStoppedAfter(at time.Time) bool {
	for _, h := range p.histories { //ordered: whether there is one
		if h.last != nil && !h.last.stopRequestedAt.Before(at) {
			return true
		}
	}
	return false
}

// groupOfStop returns the group of a pod whose first container is stopped because it is the turn of
// the group; 0 if there may be another reason.
func (m *model) groupOfStop(f *truth.Fact) int {
	c := m.containers[f.ContainerID]
	if c == nil || c.state != running || c.sandbox == nil || !c.stopRequestedAt.IsZero() {
		return 0
	}
	p := c.pod
	mayHaveOther := p.spec == nil || p.timesDesired > 1 || !p.isOfNewestSpec(c) ||
		!c.sandbox.ready || c.sandbox != p.newestSandbox() || c.mayBeSuperseded() ||
		p.mustBeTerminal() || p.externalPhase != "" || m.mayHaveFailed(c, f.Time) ||
		p.mayExceedDeadline(f.Time) || p.mayBeEvicted(f.Time) || p.mayBePreempted(f.Time)
	if mayHaveOther {
		return 0
	}
	return p.shutdownGroup()
}

// awaitsDriver reports whether a call for a volume of the pod is in flight, so that nothing else
// can be done with the volume.
func (p *pod) awaitsDriver(now time.Time) bool {
	return p.spec != nil && slices.ContainsFunc(p.model.csiUses(p.spec), func(u csiUse) bool {
		call, isInFlight := p.model.csi.inFlight[u.csiName]
		return isInFlight && now.Before(call.deadline)
	})
}
