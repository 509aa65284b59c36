package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// csiRelease fires when a volume stays published for a pod that has ended, or staged for no pod,
// although the driver works and nothing has gone wrong for a while; and when the Node stops to say
// that a volume is in use that still is, so that the cluster may detach it. What is left in the end
// is reported by progress.
type csiRelease struct{}

func (*csiRelease) describe() Entry {
	return Entry{"csi-release", "The volumes of an ended pod are let go within a bound, whatever " +
		"has gone before, and the Node says that a volume is in use for as long as it is."}
}

// csiReleaseBound is how long the agent may take to let go of a volume without a fault: the
// back-off after earlier failures, and what is looked for once in a while.
const csiReleaseBound = 5 * time.Minute

// checkServed finds a volume that should have been let go by now.
func (*csiRelease) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown || now.Sub(later(m.agentStartedAt, m.lastFault(now))) <= csiReleaseBound {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(m.csi.published)) {
		place := m.csi.published[path]
		p := m.podOfTarget(path)
		if p == nil || p.spec != nil || m.isCSIDriverAway(now, place.driver, csiReleaseBound) ||
			m.mayChangeGroup(now, place.csiName) {
			continue
		}
		since := later(later(p.removedAt, p.changedAt), place.since)
		if p.liveContainers == 0 && now.Sub(since) > csiReleaseBound {
			return findingf("%s is published at %s, although pod %s has been gone for %v", place.csiName,
				path, p, now.Sub(since).Round(time.Second))
		}
	}
	return nil
}

// mayChangeGroup reports whether the agent may wait for a call that gives a volume to the group of
// a pod, or has done so a while ago: a volume has one operation at a time.
func (m *model) mayChangeGroup(now time.Time, volume csiName) bool {
	return now.Sub(m.csi.groupUntil[volume]) <= csiReleaseBound
}

// isCSIDriverAway reports whether no process of a driver has run all the time for as long.
func (m *model) isCSIDriverAway(now time.Time, driver string, span time.Duration) bool {
	since, isUp := m.csi.driverUpSince[driver]
	return !isUp || now.Sub(since) <= span
}

// keepsVolume reports whether a volume of a pod may be published by a driver that has not run all
// the time for as long, so that nothing can unpublish it. The file beside its target names the
// driver: it is there from before the volume is published until it is not any more.
func (p *pod) keepsVolume(now time.Time, span time.Duration) bool {
	m := p.model
	for path := range m.csi.dataFiles { //ordered: any of them will do
		if m.podOfTarget(path) != p || m.opts.ReadFile == nil {
			continue
		}
		var data struct{ DriverName string }
		if isBoundPath(path) {
			path = strings.TrimSuffix(path, "/dev/"+p.uid) + "/data/vol_data.json"
		}
		content, exists := m.opts.ReadFile(path)
		if exists && json.Unmarshal([]byte(content), &data) == nil &&
			m.isCSIDriverAway(now, data.DriverName, span) {
			return true
		}
	}
	return false
}

// checkFact finds a volume that the Node says is not in use any more, although it is staged, or
// published, for its driver.
func (*csiRelease) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ObjectUpdated || f.Write.Resource != api.ResourceNodes ||
		f.Write.Incarnation == 0 || f.Write.Before.Node == nil || f.Write.After.Node == nil {
		return nil
	}
	for _, name := range f.Write.Before.Node.Status.VolumesInUse {
		if slices.Contains(f.Write.After.Node.Status.VolumesInUse, name) {
			continue
		}
		for _, places := range []map[string]csiPlace{m.csi.staged, m.csi.published} {
			for _, path := range slices.Sorted(maps.Keys(places)) {
				if is := places[path]; is.unique() == name && m.mustBeAttached(f.Time, is.driver) {
					return findingf("the Node says that %s is not in use, although it is at %s", name, path)
				}
			}
		}
	}
	return nil
}

// unsettledCSI returns which volumes are left of pods that are not desired.
func (m *model) unsettledCSI() []string {
	lines := m.unsettledExpansions()
	used := map[csiName]bool{}
	for _, p := range m.podsInOrder {
		if p.spec == nil {
			continue
		}
		for _, use := range m.csiUses(p.spec) {
			used[use.csiName] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(m.csi.published)) {
		is, p := m.csi.published[path], m.podOfTarget(path)
		if (p == nil || p.spec == nil) && !m.isCSIDriverAway(m.now, is.driver, 0) {
			lines = append(lines, fmt.Sprintf("no pod has %s, but it is published at %s", is.csiName, path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(m.csi.staged)) {
		is := m.csi.staged[path]
		if !used[is.csiName] && !m.isCSIDriverAway(m.now, is.driver, 0) {
			lines = append(lines, fmt.Sprintf("no pod has %s, but it is staged at %s", is.csiName, path))
		}
	}
	for i := range m.volumes.mounts {
		at := m.volumes.mounts[i].path
		p := m.podOfTarget(at)
		if isBoundPath(at) && (p == nil || p.spec == nil) {
			lines = append(lines, fmt.Sprintf("no pod has %s, but it is bound to %s",
				m.volumes.mounts[i].source, at))
		}
	}
	return lines
}
