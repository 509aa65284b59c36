package oracle

import (
	"time"

	"seedlet.dev/world"
)

// csiStats fires when the usage that the agent serves of a CSI volume is not what the driver has
// answered last, when the volume of a pod that runs has not been measured for long, or is not
// served, and when it is measured more often than its period allows. A usage that is not known is
// not served, so a fault is an excuse for a missing one, and never for a wrong one.
type csiStats struct{}

func (*csiStats) describe() Entry {
	return Entry{"csi-stats", "The usage of each published CSI volume is what its driver has " +
		"answered last, and the driver is asked for it once a minute, and not more often."}
}

const (
	// csiStatsBound is how long a volume may be without a new measurement: a period, a call that hangs
	// until its deadline, and the time until the volume is known to be published.
	csiStatsBound = 4 * time.Minute
	// csiStatsPeriod is the least time between the calls of one agent: a period, from the answer on.
	csiStatsPeriod = time.Minute - time.Second
)

// csiStatsModel is what was asked and answered of the usage of volumes.
type csiStatsModel struct {
	inFlight map[world.OpID]string     // the paths that were asked about, of this agent
	askedAt  map[string]time.Time      // when, by path, of this agent
	answers  map[string]csiStatsAnswer // the last one that this agent has got, by path
}

type csiStatsAnswer struct {
	at    time.Time
	stats *world.CSIVolumeStats // nil: it was an error
}

func newCSIStatsModel() csiStatsModel {
	return csiStatsModel{inFlight: map[world.OpID]string{}, askedAt: map[string]time.Time{},
		answers: map[string]csiStatsAnswer{}}
}

// asked notes a call for the usage of a volume, and finds one that comes too early.
func (c *csiStatsModel) asked(now time.Time, eff *world.Effect) *finding {
	call, is := eff.Body.(*world.GetVolumeStats)
	if !is {
		return nil
	}
	last := c.askedAt[call.Path]
	c.inFlight[eff.Op], c.askedAt[call.Path] = call.Path, now
	if !last.IsZero() && now.Sub(last) < csiStatsPeriod {
		return findingf("GetVolumeStats is called for %s %v after the last call", call.Path,
			now.Sub(last))
	}
	return nil
}

// answered notes the answer of a call.
func (c *csiStatsModel) answered(ev *world.Event) {
	path, is := c.inFlight[ev.Op]
	if !is {
		return
	}
	delete(c.inFlight, ev.Op)
	stats, _ := ev.Body.(*world.CSIVolumeStats)
	c.answers[path] = csiStatsAnswer{ev.Time, stats}
}

// forget forgets the paths below a directory, which are others when they come again.
func (c *csiStatsModel) forget(path string) {
	delete(c.askedAt, path)
	delete(c.answers, path)
}

// CheckVolumeStats checks the usage of volumes that the agent serves.
func (s *Set) CheckVolumeStats(now time.Time, served []world.VolumeUsage) {
	m := s.model
	known := map[string]*world.VolumeUsage{}
	for i := range served {
		known[served[i].UID+"/"+served[i].Volume] = &served[i]
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.specChanged || p.wasRemoved() {
			continue
		}
		for _, use := range m.csiUses(p.spec) {
			f := m.findWrongUsage(p.uid, use, known[p.uid+"/"+use.volume])
			if f == nil {
				f = m.findNoUsage(now, p, use, known[p.uid+"/"+use.volume])
			}
			if f != nil {
				s.report(&csiStats{}, f, now)
			}
		}
		if f := m.findWrongDeviceSize(now, p, known); f != nil {
			s.report(&deviceSizes{}, f, now)
		}
	}
}

// findWrongUsage returns that the usage which is served of a volume is not the last answer.
func (m *model) findWrongUsage(uid string, use csiUse, served *world.VolumeUsage) *finding {
	if served == nil {
		return nil
	}
	answer := m.csi.stats.answers[use.path].stats
	switch {
	case answer == nil:
		return findingf("a usage of volume %s of pod %s is served, which its driver has not answered",
			use.volume, uid)
	case usageOf(&served.Stats) != usageOf(answer):
		return findingf("the usage of volume %s of pod %s is served as %+v, and its driver has answered "+
			"%+v", use.volume, uid, usageOf(&served.Stats), usageOf(answer))
	}
	return nil
}

// usageOf returns the numbers of a usage.
func usageOf(s *world.CSIVolumeStats) world.CSIVolumeStats {
	numbers := *s
	numbers.Condition = nil
	return numbers
}

// findNoUsage returns that a volume has not been measured for long, or that this is not served,
// although nothing has gone wrong.
func (m *model) findNoUsage(now time.Time, p *pod, use csiUse,
	served *world.VolumeUsage) *finding {
	since := now.Add(-csiStatsBound)
	is, isPublished := m.csi.published[use.path]
	if !isPublished || p.liveContainers == 0 || is.since.After(since) ||
		m.csi.unmeasured[use.driver] || m.isCSIDriverAway(now, use.driver, csiStatsBound) ||
		!m.agentUpSince(since) || m.lastFault(now).After(since) {
		return nil
	}
	if answer := m.csi.stats.answers[use.path]; answer.at.Before(since) {
		return findingf("volume %s of pod %s has not been measured since %s", use.volume, p,
			lastTime(answer.at))
	}
	if served == nil {
		return findingf("the usage of volume %s of pod %s is not served", use.volume, p)
	}
	return nil
}

func lastTime(at time.Time) string {
	if at.IsZero() {
		return "its start"
	}
	return at.Format(time.TimeOnly)
}
