package oracle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// eviction fires when a pod is evicted that was never above a limit of local storage, and when a
// pod runs on although it has long been above one. The oracle terminal-phase checks
// that an eviction is never undone.
type eviction struct{}

func (*eviction) describe() Entry {
	return Entry{"eviction", "A pod is evicted if an emptyDir of it stays above its size limit, or " +
		"too large to be measured, or a container or the whole pod above its limit of " +
		"ephemeral-storage, and only if one was; its message says which. Its containers have a second " +
		"to end, and what a preStop hook leaves at least. A volume in memory never exceeds its limit."}
}

const (
	reasonEvicted = "Evicted"
	// evictionBound is how long a pod may be above a limit until it has ended: two measurements of
	// volumes and the termination.
	evictionBound = 150 * time.Second
	// unmeasurableBound is how much longer a volume may be too large to be measured: the agent may
	// measure it three times, a minute each, with a minute between two of them.
	unmeasurableBound      = 6 * time.Minute
	evictionGrace          = time.Second
	systemCriticalPriority = 2_000_000_000 // such pods are not evicted
	// directorySlack is the usage of directories, which do not count in a tmpfs.
	directorySlack = 64 << 10
)

// evictionCalls are the calls between a limit that is exceeded and the end of the pod.
var evictionCalls = []string{"MeasureTree", "ContainerStats", "StatPath", "MakeDir", "MountMemory",
	"WriteDir", "BindSubPath", "ShareWithGroup", "WriteFile", "ReadFiles", "ListContainers",
	"ListPodSandbox", "ContainerStatus", "PodSandboxStatus", "CreateContainer", "StartContainer",
	"StopContainer", "SetCgroup"}

func (*eviction) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, p := range m.podsInOrder {
		p.measureStorage(now) // logs grow without a fact
	}
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil || len(p.specs) == 0 || served.Status.Reason != reasonEvicted {
			continue
		}
		switch exceeded := p.limitsEverExceeded(); {
		case strings.HasPrefix(served.Status.Message, rejectedUnderPressure): // oracle admission
		case !p.pressureEvictedAt.IsZero() && served.Status.Message == p.pressureMessage:
		case len(exceeded) == 0:
			return findingf("pod %s is served as evicted with %q, but nothing of it was ever above a "+
				"limit", p, served.Status.Message)
		case p.isCritical() && !p.specChanged:
			return findingf("pod %s is served as evicted, but is critical", p)
		case !slices.ContainsFunc(p.usages, func(u *usage) bool {
			return !u.lastOverLimit.IsZero() && strings.Contains(served.Status.Message, u.named)
		}):
			return findingf("pod %s is served as evicted with %q, but what was above its limit is %v",
				p, served.Status.Message, exceeded)
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
		return fmt.Sprintf("%v has been above its limit for %v, and %s runs", p.limitsEverExceeded(),
			now.Sub(overSince).Round(time.Second), p.anyLiveContainer())
	}
	return ""
}

// usage compares what is used of the disk with its limit.
type usage struct {
	pod            *pod
	name           string    // of the volume, "container" and its name, or "pod"
	named          string    // what the message of an eviction for it contains
	overLimitSince time.Time // since when it has been above its limit; zero: it is not
	lastOverLimit  time.Time // when it was last above its limit, or may have seemed so; zero: never
	isUnmeasurable bool      // it is too large to be measured, rather than above its limit
}

// peak is the most that something has taken in the time in which a measurement may have seen it.
type peak struct {
	bytes int64
	at    time.Time
}

// peakMemory is how old a measurement may be that is added to others: logs, layers and volumes are
// measured one after the other, by calls that may be slow.
const peakMemory = 5 * time.Minute

// applyUsageChange measures what a pod uses after a change on the disk or of a writable layer.
func (m *model) applyUsageChange(f *truth.Fact) {
	switch f.Kind {
	case truth.PathCreated, truth.PathWritten, truth.PathRemoved, truth.FileResized, truth.Mounted,
		truth.Unmounted, truth.TreeGrown:
		if uid, below := childName(m.opts.PodsDir, f.Path); below && m.pods[uid] != nil {
			m.pods[uid].measureStorage(f.Time)
		}
	case truth.ContainerStarted, truth.ContainerExited, truth.ContainerRemoved, truth.LayerResized:
		if c := m.containers[f.ContainerID]; c != nil {
			if f.Kind == truth.LayerResized {
				c.layerBytes = f.Bytes
			}
			c.pod.measureStorage(f.Time)
		}
	case truth.PowerLost:
		for _, p := range m.podsInOrder {
			p.measureStorage(f.Time)
		}
	}
}

// measureStorage measures what has a limit in any spec of the pod.
func (p *pod) measureStorage(now time.Time) {
	if p.model.opts.DiskUsage == nil {
		return
	}
	for _, spec := range p.specs {
		p.measureVolumes(spec, now)
		p.measureEphemeral(spec, now)
	}
}

func (p *pod) measureVolumes(spec *v1.Pod, now time.Time) {
	dir := p.model.opts.PodsDir + "/" + p.uid
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
			continue
		}
		path := volumePath(dir, v)
		limit, bytes := v.EmptyDir.SizeLimit.Value(), p.model.opts.DiskUsage(path)
		switch v.EmptyDir.Medium {
		case v1.StorageMediumDefault:
			u := p.usageOf(v.Name, strconv.Quote(v.Name))
			if bytes <= limit && p.model.isUnmeasurable(path) {
				u.record(now, now.Add(unmeasurableBound), true, true)
			} else {
				u.record(now, now, bytes > limit, bytes > limit)
			}
		case v1.StorageMediumMemory:
			if bytes > limit+directorySlack {
				p.memoryOverflow = fmt.Sprintf("volume %s holds %d bytes in memory, its limit is %d",
					v.Name, bytes, limit)
			}
		}
	}
}

func (m *model) isUnmeasurable(path string) bool {
	return m.opts.IsUnmeasurable != nil && m.opts.IsUnmeasurable(path)
}

// measureEphemeral compares the writable layers, logs, volumes and other files of a pod with its
// limits of ephemeral-storage.
func (p *pod) measureEphemeral(spec *v1.Pod, now time.Time) {
	if !limitsEphemeralStorage(spec) {
		return
	}
	limit := podresources.PodLimits(spec,
		podresources.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	var all, most int64 // now, and as the agent may have added it up
	dir := p.model.opts.PodsDir + "/" + p.uid
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
			bytes, highest := p.measure("volume "+v.Name, p.model.opts.DiskUsage(volumePath(dir, v)), now)
			all, most = all+bytes, most+highest
			if p.model.isUnmeasurable(volumePath(dir, v)) {
				most = math.MaxInt64 / 2
			}
		}
	}
	for _, name := range []string{"etc-hosts", "containers"} { // /etc/hosts, termination messages
		bytes, highest := p.measure("files "+name, p.model.opts.DiskUsage(dir+"/"+name), now)
		all, most = all+bytes, most+highest
	}
	for _, name := range containerNames(spec) {
		logs, mostLogs := p.measure("logs "+name, p.model.opts.DiskUsage(p.model.logDir(p, name)), now)
		layer, mostLayer := p.measure("layer "+name, p.layerBytes(name), now)
		all, most = all+logs+layer, most+mostLogs+mostLayer
		own := ownLimit(spec, name)
		if own == nil {
			continue
		}
		if p.model.opts.LayersApart { // they do not count for a container then
			layer, mostLayer = 0, 0
		}
		u := p.usageOf("container "+name, "Container "+name+" exceeded its local ephemeral storage limit")
		u.record(now, now, logs+layer > own.Value(), mostLogs+mostLayer > own.Value())
	}
	u := p.usageOf("pod", "Pod ephemeral local storage usage exceeds the total limit of containers")
	u.record(now, now, all > limit.Value(), most > limit.Value())
}

func limitsEphemeralStorage(spec *v1.Pod) bool {
	isLimited := func(c v1.Container) bool {
		_, found := c.Resources.Limits[v1.ResourceEphemeralStorage]
		return found
	}
	return slices.ContainsFunc(spec.Spec.InitContainers, isLimited) ||
		slices.ContainsFunc(spec.Spec.Containers, isLimited)
}

// ownLimit returns the limit of a container that is neither an init nor an ephemeral one.
func ownLimit(spec *v1.Pod, name string) *resource.Quantity {
	for i := range spec.Spec.Containers {
		c := &spec.Spec.Containers[i]
		if limit, found := c.Resources.Limits[v1.ResourceEphemeralStorage]; found && c.Name == name {
			return &limit
		}
	}
	return nil
}

// containerNames returns the names of all containers of a spec.
func containerNames(spec *v1.Pod) []string {
	var names []string
	for i := range spec.Spec.InitContainers {
		names = append(names, spec.Spec.InitContainers[i].Name)
	}
	for i := range spec.Spec.Containers {
		names = append(names, spec.Spec.Containers[i].Name)
	}
	for i := range spec.Spec.EphemeralContainers {
		names = append(names, spec.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// measure records what something takes, and returns that and the most that an agent that has
// measured it lately may have seen.
func (p *pod) measure(key string, bytes int64, now time.Time) (current, most int64) {
	if p.peaks == nil {
		p.peaks = map[string]peak{}
	}
	if last := p.peaks[key]; bytes >= last.bytes || now.Sub(last.at) > peakMemory {
		p.peaks[key] = peak{bytes, now}
	}
	return bytes, p.peaks[key].bytes
}

// layerBytes returns what the writable layer of the running container of a name takes.
func (p *pod) layerBytes(name string) int64 {
	for _, c := range p.containers {
		if c.name == name && c.state == running {
			return c.layerBytes
		}
	}
	return 0
}

// usageOf returns the usage of a name.
func (p *pod) usageOf(name, named string) *usage {
	i := slices.IndexFunc(p.usages, func(u *usage) bool { return u.name == name })
	if i < 0 {
		i = len(p.usages)
		p.usages = append(p.usages, &usage{name: name, named: named, pod: p})
	}
	return p.usages[i]
}

// record records whether the usage is above its limit, and from when that counts, and whether it
// may seem so.
func (u *usage) record(now, countsFrom time.Time, isOver, maySeemOver bool) {
	if maySeemOver || !u.overLimitSince.IsZero() {
		u.lastOverLimit = now
		u.pod.minGrace = min(u.pod.minGrace, evictionGrace)
	}
	switch {
	case !isOver:
		u.overLimitSince = time.Time{}
	case u.overLimitSince.IsZero():
		u.overLimitSince, u.isUnmeasurable = countsFrom, countsFrom.After(now)
	}
}

// limitsEverExceeded returns what was above its limit at some time.
func (p *pod) limitsEverExceeded() []string {
	var names []string
	for _, u := range p.usages {
		if !u.lastOverLimit.IsZero() {
			names = append(names, u.name)
		}
	}
	return names
}

// overLimitSince returns since when some volume has been above its limit; zero if none is.
func (p *pod) overLimitSince() time.Time {
	var since time.Time
	for _, f := range p.usages {
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
	for _, f := range p.usages {
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
	for _, f := range p.usages {
		if !f.overLimitSince.IsZero() && f.isUnmeasurable {
			started = later(p.model.agentStartedAt.Add(unmeasurableBound), f.measuredThrice())
		}
	}
	if overSince.IsZero() {
		return overSince
	}
	return later(overSince, started)
}

// measuredThrice returns until when the agent has measured a volume three times that is too large
// for that, if a measurement that was lost is waited for and made again.
func (u *usage) measuredThrice() time.Time {
	m, until := u.pod.model, u.overLimitSince
	for until.Before(m.now) &&
		m.anyFaultPossible(until.Add(-unmeasurableBound), until, "MeasureTree") {
		until = until.Add(unmeasurableBound)
	}
	return until
}

// needsEviction reports whether the pod is above a limit now. Unless it shrinks, the pod has to be
// evicted. The logs of one that was evicted are left.
func (p *pod) needsEviction() bool {
	return !p.overLimitSince().IsZero() && p.isEvictable() && !p.hasExitedForGood() &&
		(p.servedTerminal == "" || p.liveContainers > 0)
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

// checkEvictionStop checks the grace period of a request to stop a container of a pod that was
// evicted. It is judged as it is issued: one of before the eviction may still be on its way.
func (s *Set) checkEvictionStop(now time.Time, eff *world.Effect) {
	request, isStop := eff.Body.(*runtimeapi.StopContainerRequest)
	if !isStop || s.model.containers[request.ContainerId] == nil {
		return
	}
	c := s.model.containers[request.ContainerId]
	if f := c.findLongGrace(request, c.pod.pressureEvictedAt, c.pod.pressureGraceMax); f != nil {
		s.report(&nodePressure{}, f, now)
	}
	if f := c.findLongGrace(request, c.pod.limitEvictedAt, evictionGrace); f != nil {
		s.report(&eviction{}, f, now)
	}
}

// findLongGrace returns that a container of a pod that this agent has evicted at a time has longer
// to end than an eviction leaves it. TERM always leaves two seconds, also after a preStop hook.
func (c *container) findLongGrace(request *runtimeapi.StopContainerRequest, evictedAt time.Time,
	most time.Duration) *finding {
	p := c.pod
	if evictedAt.IsZero() || len(p.specs) != 1 || p.timesDesired > 1 ||
		p.model.agentStartedAt.After(evictedAt) {
		return nil
	}
	if grace := time.Duration(request.Timeout) * time.Second; grace > max(most, minStopGrace) {
		return findingf("%s has %v to end, but its pod was evicted at %s, which leaves it %v", c, grace,
			evictedAt.Format(time.TimeOnly), most)
	}
	return nil
}

// mayBeKilled reports whether the agent may end the pod for good: for its deadline, its volumes,
// a critical pod, a shutdown of the machine, a full node, or because another client has given it a
// terminal phase.
func (p *pod) mayBeKilled(now time.Time) bool {
	return p.mayExceedDeadline(now) || p.mayBeEvicted(now) || p.mayBePreempted(now) ||
		p.mayBeShutDown(now) || p.mayBeAtVolumeLimit() || p.externalPhase != ""
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
			p.limitsEverExceeded(), reason)
	}
	return ""
}
