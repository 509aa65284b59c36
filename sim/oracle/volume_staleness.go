package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	api "seedlet.dev/world"
)

// volumeStaleness fires when a change of an object does not reach the volumes of a running pod,
// although no fault prevents that: soon if the agent watches the object, else when its cache has
// expired.
type volumeStaleness struct {
	upToDate map[string]time.Time // by volume: the latest change that it is known to hold
}

func (*volumeStaleness) describe() Entry {
	return Entry{"volume-staleness", "A change of an object of the API server reaches the " +
		"volumes of running pods within a bound, when no fault applies."}
}

// Bounds on the write of a volume after the agent knows of a change, and on the cache's lifetime.
const (
	volumeUpdateBound = 3 * time.Minute
	maxCacheTTL       = 150 * time.Second // the longest that a plan writes into the Node
)

// bundlesKey stands for all trust bundles in the times of changes.
var bundlesKey = string(api.ResourceTrustBundles)

// updateCalls are the calls that bring a change into a volume.
var updateCalls = []string{"WatchObjects", "ObjectChanged", "GetObject", "CreateToken", "MakeDir",
	"MountMemory", "WriteDir", "ListPodSandbox", "ListContainers"}

func (o *volumeStaleness) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.opts.ReadFile == nil || m.agentDown {
		return nil
	}
	within := volumeUpdateBound + m.opts.ChangeDetection.ageMax()
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.liveContainers == 0 || p.spec.DeletionTimestamp != nil {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			v := &p.spec.Spec.Volumes[i]
			if !usesVolume(p.spec, v.Name) {
				continue
			}
			if problem := o.checkVolume(m, p, v, now, within); problem != nil {
				return problem
			}
		}
	}
	return nil
}

// checkVolume checks one volume. A volume is written once all its objects exist.
func (o *volumeStaleness) checkVolume(m *model, p *pod, v *v1.Volume, now time.Time,
	within time.Duration) *finding {
	all, _ := volumeSources(v, p.spec.Namespace)
	path := volumePath(m.opts.PodsDir+"/"+p.uid, v)
	since := time.Time{}
	for k := range all {
		states := m.objectHistory.statesOf(&all[k])
		if len(states) == 0 || states[len(states)-1] == nil && !all[k].optional {
			return nil
		}
		since = later(since, m.objectHistory.lastChange(&all[k]))
	}
	if len(all) == 0 || o.upToDate[path].Equal(since) {
		return nil
	}
	from := later(later(since, p.desiredAt), later(m.agentStartedAt, p.firstStartedAt))
	healed := !m.healedAt.IsZero() && now.Sub(later(from, m.healedAt)) > within
	if !healed && (now.Sub(from) <= within ||
		m.anyFaultPossible(from.Add(-reconnectBound), now, updateCalls...)) {
		return nil
	}
	for k := range all {
		states := m.objectHistory.statesOf(&all[k])
		if !m.volumeMatches(path, &all[k], states[len(states)-1]) {
			return findingf("%s does not hold the newest version of %s, "+
				"which is %v old, and %s runs", path, all[k].object,
				now.Sub(since).Round(time.Second), p.anyLiveContainer())
		}
	}
	if o.upToDate == nil {
		o.upToDate = map[string]time.Time{}
	}
	o.upToDate[path] = since
	return nil
}

// lastChange returns when a source last changed.
func (o *objectHistory) lastChange(s *volumeSource) time.Time {
	if s.bundle != nil {
		return o.changedAt[bundlesKey]
	}
	return o.changedAt[s.object]
}
