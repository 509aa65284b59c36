package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// eviction fires when a pod is evicted for a volume that was never above its limit, and when a
// pod runs on although a volume has long been above its limit. The oracle terminal-phase checks
// that an eviction is never undone.
type eviction struct{}

func (*eviction) describe() Entry {
	return Entry{"eviction", "A pod is evicted if an emptyDir of it stays above its limit, or " +
		"too large to be measured, and only if one was; its message names the volume. A volume in " +
		"memory never exceeds its limit."}
}

const (
	reasonEvicted = "Evicted"
	// evictionBound is how long a volume may be above its limit until its pod has ended: two
	// measurements and the termination.
	evictionBound = 150 * time.Second
	// unmeasurableBound is how much longer a volume may be too large to be measured: the agent may
	// measure it three times, a minute each, with a minute between two of them.
	unmeasurableBound      = 6 * time.Minute
	evictionGrace          = time.Second
	systemCriticalPriority = 2_000_000_000 // such pods are not evicted
	// directorySlack is the usage of directories, which do not count in a tmpfs.
	directorySlack = 64 << 10
)

// evictionCalls are the calls between a volume that exceeds its limit and the end of its pod.
var evictionCalls = []string{"MeasureTree", "StatPath", "MakeDir", "MountMemory", "WriteDir",
	"BindSubPath", "ShareWithGroup", "WriteFile", "ReadFiles", "ListContainers", "ListPodSandbox",
	"ContainerStatus", "PodSandboxStatus", "CreateContainer", "StartContainer", "StopContainer",
	"SetCgroup"}

func (*eviction) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil || len(p.specs) == 0 || served.Status.Reason != reasonEvicted {
			continue
		}
		switch volumes := p.volumesEverOverLimit(); {
		case strings.HasPrefix(served.Status.Message, rejectedUnderPressure): // oracle admission
		case !p.pressureEvictedAt.IsZero() && served.Status.Message == p.pressureMessage:
		case len(volumes) == 0:
			return findingf("pod %s is served as evicted with %q, but no volume of it was ever "+
				"above its limit", p, served.Status.Message)
		case p.isCritical() && !p.specChanged:
			return findingf("pod %s is served as evicted, but is critical", p)
		case !slices.ContainsFunc(volumes, func(name string) bool {
			return strings.Contains(served.Status.Message, strconv.Quote(name))
		}):
			return findingf("pod %s is served as evicted with %q, but the volumes above their limits are %v",
				p, served.Status.Message, volumes)
		}
	}
	for _, p := range m.podsInOrder {
		if problem := p.evictionProblem(now); problem != "" {
			return findingf("pod %s: %s", p, problem)
		}
	}
	return nil
}

// evictionProblem returns what the agent has failed to prevent or to do about the pod's volumes.
func (p *pod) evictionProblem(now time.Time) string {
	m, overSince := p.model, p.overLimitSince()
	from := p.evictableSince()
	switch {
	case p.memoryOverflow != "":
		return p.memoryOverflow
	case overSince.IsZero() || !p.isEvictable() || p.liveContainers == 0 || p.hasExitedForGood() ||
		m.agentDown:
	case now.Sub(from) <= evictionBound || m.anyFaultPossible(from, now, evictionCalls...):
	default:
		return fmt.Sprintf("%v has been above its limit for %v, and %s runs", p.volumesEverOverLimit(),
			now.Sub(overSince).Round(time.Second), p.anyLiveContainer())
	}
	return ""
}

// volumeUsage compares a volume with its limit.
type volumeUsage struct {
	name           string
	overLimitSince time.Time // since when it has been above its limit; zero: it is not
	lastOverLimit  time.Time // when it was last above its limit; zero: never
	isUnmeasurable bool      // it is too large to be measured, rather than above its limit
}

// applyUsageChange measures the volumes of a pod after a change on the disk.
func (m *model) applyUsageChange(f *truth.Fact) {
	switch f.Kind {
	case truth.PathCreated, truth.PathWritten, truth.PathRemoved, truth.FileResized, truth.Mounted,
		truth.Unmounted, truth.TreeGrown:
		if uid, below := childName(m.opts.PodsDir, f.Path); below && m.pods[uid] != nil {
			m.pods[uid].measureVolumes(f.Time)
		}
	case truth.PowerLost:
		for _, p := range m.podsInOrder {
			p.measureVolumes(f.Time)
		}
	}
}

// measureVolumes measures the volumes that have a limit in any spec of the pod.
func (p *pod) measureVolumes(now time.Time) {
	dir := p.model.opts.PodsDir + "/" + p.uid
	for _, spec := range p.specs {
		for i := range spec.Spec.Volumes {
			v := &spec.Spec.Volumes[i]
			if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || p.model.opts.DiskUsage == nil {
				continue
			}
			path := volumePath(dir, v)
			limit, bytes := v.EmptyDir.SizeLimit.Value(), p.model.opts.DiskUsage(path)
			switch v.EmptyDir.Medium {
			case v1.StorageMediumDefault:
				if isUnmeasurable := p.model.opts.IsUnmeasurable; bytes <= limit &&
					isUnmeasurable != nil && isUnmeasurable(path) {
					p.recordUsage(now, now.Add(unmeasurableBound), v.Name, true)
					continue
				}
				p.recordUsage(now, now, v.Name, bytes > limit)
			case v1.StorageMediumMemory:
				if bytes > limit+directorySlack {
					p.memoryOverflow = fmt.Sprintf("volume %s holds %d bytes in memory, its limit is %d",
						v.Name, bytes, limit)
				}
			}
		}
	}
}

// recordUsage records whether a volume is above its limit, and from when that counts.
func (p *pod) recordUsage(now, countsFrom time.Time, name string, isOver bool) {
	i := slices.IndexFunc(p.volumeUsages, func(f volumeUsage) bool { return f.name == name })
	if i < 0 {
		i = len(p.volumeUsages)
		p.volumeUsages = append(p.volumeUsages, volumeUsage{name: name})
	}
	f := &p.volumeUsages[i]
	if isOver || !f.overLimitSince.IsZero() {
		f.lastOverLimit = now
	}
	switch {
	case !isOver:
		f.overLimitSince = time.Time{}
	case f.overLimitSince.IsZero():
		f.overLimitSince, f.isUnmeasurable = countsFrom, countsFrom.After(now)
		p.minGrace = min(p.minGrace, evictionGrace)
	}
}

// volumesEverOverLimit returns the volumes that were above their limits at some time.
func (p *pod) volumesEverOverLimit() []string {
	var names []string
	for _, f := range p.volumeUsages {
		if !f.lastOverLimit.IsZero() {
			names = append(names, f.name)
		}
	}
	return names
}

// overLimitSince returns since when some volume has been above its limit; zero if none is.
func (p *pod) overLimitSince() time.Time {
	var since time.Time
	for _, f := range p.volumeUsages {
		if !f.overLimitSince.IsZero() && (since.IsZero() || f.overLimitSince.Before(since)) {
			since = f.overLimitSince
		}
	}
	return since
}

// isEvictable reports whether the pod has had one spec, under which it can be evicted.
func (p *pod) isEvictable() bool {
	return p.spec != nil && !p.specChanged && !p.wasRemoved() && !p.isCritical()
}

// isCritical reports whether the pod is static, or the priority of its newest spec is a system
// priority.
func (p *pod) isCritical() bool { return p.static || p.priority() >= systemCriticalPriority }

// mayBeEvicted reports whether the pod may have been evicted, or may be at any moment. A pod that
// has no terminal phase long after the heal was not evicted.
func (p *pod) mayBeEvicted(now time.Time) bool {
	var last time.Time
	for _, f := range p.volumeUsages {
		if last = later(last, f.lastOverLimit); !f.overLimitSince.IsZero() {
			last = now
		}
	}
	m := p.model
	if p.mayBeEvictedForNode() {
		return true
	}
	if last.IsZero() || len(p.specs) == 1 && p.isCritical() {
		return false
	}
	return m.healedAt.IsZero() || p.servedTerminal != "" || !p.isEvictable() ||
		now.Sub(later(later(last, m.healedAt), m.agentStartedAt)) <= evictionBound
}

// evictableSince returns since when the agent, without a fault, must have been about to evict the
// pod; zero if no volume is above its limit. An agent that was restarted measures again.
func (p *pod) evictableSince() time.Time {
	overSince, started := p.overLimitSince(), p.model.agentStartedAt
	for _, f := range p.volumeUsages {
		if !f.overLimitSince.IsZero() && f.isUnmeasurable {
			started = p.model.agentStartedAt.Add(unmeasurableBound)
		}
	}
	if overSince.IsZero() {
		return overSince
	}
	return later(overSince, started)
}

// needsEviction reports whether a volume is above its limit now. Unless the volume shrinks, the
// pod has to be evicted.
func (p *pod) needsEviction() bool {
	return !p.overLimitSince().IsZero() && p.isEvictable() && !p.hasExitedForGood()
}

// mustBeEvicted reports whether a volume has been above its limit for so long without a fault
// that no container of the pod may run any more.
func (p *pod) mustBeEvicted(now time.Time) bool {
	m, since := p.model, p.evictableSince()
	if p.mustBeEvictedForNode(now) {
		return true
	}
	return !since.IsZero() && !m.healedAt.IsZero() && p.isEvictable() &&
		now.Sub(later(since, m.healedAt)) > evictionBound
}

// mayBeKilled reports whether the agent may end the pod for good: for its deadline, its volumes,
// a critical pod, a shutdown of the machine, or because another client has given it a terminal
// phase.
func (p *pod) mayBeKilled(now time.Time) bool {
	return p.mayExceedDeadline(now) || p.mayBeEvicted(now) || p.mayBePreempted(now) ||
		p.mayBeShutDown(now) || p.externalPhase != ""
}

// mustBeKilled reports whether the agent must have ended the pod by now.
func (p *pod) mustBeKilled(now time.Time) bool {
	return p.mustExceedDeadline(now) || p.mustBeEvicted(now) || p.preempted || p.externalPhase != ""
}

// reasonProblem returns what is wrong with the served reason of the pod's end.
func (p *pod) reasonProblem(now time.Time, served *v1.Pod) string {
	switch reason := served.Status.Reason; {
	case p.externalPhase != "": // the reason is the other client's
	case p.removedByHand && p.servedTerminal != "": // it had ended before
	case p.hasExitedForGood() || p.mayExceedDeadline(now) && p.mayBeEvicted(now):
	case p.shutDown && reason == reasonShutdown: // it had ended before
	case p.mustExceedDeadline(now) && reason != reasonDeadline:
		return fmt.Sprintf("its active deadline has passed, but the served reason is %q",
			reason)
	case p.mustBeEvicted(now) && reason != reasonEvicted:
		return fmt.Sprintf("%v is above its limit, but the served reason is %q",
			p.volumesEverOverLimit(), reason)
	}
	return ""
}
