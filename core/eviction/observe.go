package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Observations of the node and of its pods, and what follows from those of the node.

// Observation is what is available of a resource.
type Observation struct {
	Available int64     `json:"available"`
	Capacity  int64     `json:"capacity"`
	AsOf      time.Time `json:"asOf"` // when it was asked for
}

// PodUsage is what a pod uses.
type PodUsage struct {
	MemoryBytes int64            `json:"memoryBytes"` // its working set
	Processes   int64            `json:"processes"`
	Containers  []ContainerUsage `json:"containers,omitempty"`
	Layers      DiskUsage        `json:"layers"` // the writable layers of its containers
	Files       DiskUsage        `json:"files"`  // its logs and directory
	// LacksStats is set if the runtime has statistics of other pods and not of this one.
	LacksStats bool `json:"lacksStats,omitempty"`
}

// DiskUsage is what is used of a file system.
type DiskUsage struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

func (d *DiskUsage) add(bytes, inodes int64) { d.Bytes, d.Inodes = d.Bytes+bytes, d.Inodes+inodes }

// ContainerUsage is what a container uses.
type ContainerUsage struct {
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// HandleCompletion handles the completion of an observation. It reports whether the pressure
// conditions have changed, or are known for the first time.
func (m *Manager) HandleCompletion(id world.OpID, ev world.Event, env *Env) bool {
	if a := m.Attempt; a != nil && a.Op == id {
		m.handleUsage(ev, env)
		return false
	}
	source := slices.IndexFunc(m.Sources[:], func(s Source) bool { return s.Op == id })
	m.Sources[source].Op = 0
	if m.InfoAsked && source == sourceImagefs {
		m.handleInfo(ev, env)
		return false
	}
	if ev.Err != nil {
		m.noteFailure(source, ev, env)
		if source == sourceNode && m.DisksAfterMemory {
			m.respond(source, env) // the disks need not wait any longer
		}
		return false // the conditions stay as they are
	}
	m.observe(source, ev.Body, env)
	before, decided := m.Pressure, m.Decided
	m.evaluate(source, ev.Time)
	m.respond(source, env)
	m.Decided = true
	return !decided || !slices.Equal(before, m.Pressure)
}

// handleInfo handles where the runtime has its images, which is measured at once then. If it does
// not answer, what it has said before counts.
func (m *Manager) handleInfo(ev world.Event, env *Env) {
	m.InfoAsked = false
	if ev.Err != nil {
		m.noteFailure(sourceImagefs, ev, env)
	} else if info, isInfo := ev.Body.(*runtimeapi.ImageFsInfoResponse); isInfo {
		m.applyInfo(info)
	}
	if m.ImagePath != "" {
		m.Sources[sourceImagefs].NextAt = ev.Time
	}
}

// noteFailure notes that a source could not be observed. If its path does not exist, the runtime is
// asked again where its images are.
func (m *Manager) noteFailure(source int, ev world.Event, env *Env) {
	env.Effects.Log(world.LevelError, "Eviction manager: failed to observe the node", "err",
		ev.Err.Error())
	m.Sources[source].FailedAt = ev.Time
	m.noteUnmeasured(source, ev.Time)
	if source != sourceNode && ev.Err.Has(world.KindNotFound) {
		m.InfoAt = time.Time{}
	}
}

// observe records the signals that an observation has.
func (m *Manager) observe(source int, body any, env *Env) {
	if m.Observed == nil {
		m.Observed = map[Signal]Observation{}
	}
	for i := range m.Thresholds {
		if m.sourceOf(m.Thresholds[i].Signal) == source {
			delete(m.Observed, m.Thresholds[i].Signal)
		}
	}
	asOf := m.Sources[source].AskedAt
	record := func(s Signal, available, capacity int64) {
		m.Observed[s] = Observation{Available: available, Capacity: capacity, AsOf: asOf}
	}
	switch body := body.(type) {
	case *world.NodeMeasured:
		m.noteAlertProblem(body.AlertProblem, env.Effects)
		if body.MemoryBytes > 0 {
			record(MemoryAvailable, max(0, body.MemoryBytes-body.WorkingSetBytes), body.MemoryBytes)
		}
		if limit := env.PodsMemoryMax; limit > 0 && body.PodsMeasured {
			record(AllocatableMemoryAvailable, max(0, limit-body.PodsWorkingSetBytes), limit)
		}
		if body.ProcessesMax > 0 {
			record(PIDAvailable, body.ProcessesMax-body.Processes, body.ProcessesMax)
		}
	case *world.FilesystemMeasured:
		m.setDevice(source, body.Device)
		for _, s := range []Signal{NodefsAvailable, ImagefsAvailable, ContainerfsAvailable} {
			if m.sourceOf(s) == source && body.CapacityBytes > 0 {
				record(s, body.AvailableBytes, body.CapacityBytes)
			}
		}
		for _, s := range []Signal{NodefsInodesFree, ImagefsInodesFree, ContainerfsInodesFree} {
			if m.sourceOf(s) == source && body.Inodes > 0 { // a file system may have no bound
				record(s, body.InodesFree, body.Inodes)
			}
		}
	}
}

// evaluate determines which thresholds of a source are met, and the conditions that follow.
func (m *Manager) evaluate(source int, now time.Time) {
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		if m.sourceOf(t.Signal) != source {
			continue
		}
		o, isObserved := m.Observed[t.Signal]
		switch {
		case isObserved && !t.isMet(&o):
			t.MetSince, t.MetForGrace = time.Time{}, false
		case isObserved:
			if t.MetSince.IsZero() {
				t.MetSince = now
			}
			t.MetForGrace = now.Sub(t.MetSince) >= t.Grace
			m.noteMet(t.Signal.condition(), now)
		case !t.MetSince.IsZero(): // the observation lacks the signal: the threshold stays met
			m.noteMet(t.Signal.condition(), now)
		}
	}
	m.updatePressure(now)
}

// noteUnmeasured keeps the conditions of the thresholds of a source that were met when it was last
// observed: a condition does not end while its signal cannot be measured. No pod is evicted without
// an observation.
func (m *Manager) noteUnmeasured(source int, now time.Time) {
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		if m.sourceOf(t.Signal) == source && !t.MetSince.IsZero() {
			m.noteMet(t.Signal.condition(), now)
		}
	}
}

// updatePressure determines which conditions are met, or were within the transition period. A
// threshold that was met stays so until its signal is observed again: nothing looks while images
// are removed, or a victim ends, which may take longer than the period.
func (m *Manager) updatePressure(now time.Time) {
	m.Pressure = nil
	for _, c := range pressureConditions {
		isMet := slices.ContainsFunc(m.Thresholds, func(t Threshold) bool {
			return t.Signal.condition() == c && !t.MetSince.IsZero()
		})
		if at, met := m.LastMet[c]; isMet || met && now.Sub(at) < m.Transition {
			m.Pressure = append(m.Pressure, c)
		}
	}
}

func (m *Manager) noteMet(c v1.NodeConditionType, now time.Time) {
	if m.LastMet == nil {
		m.LastMet = map[v1.NodeConditionType]time.Time{}
	}
	m.LastMet[c] = now
}

// respond does what the newest observation of a source asks for, if a threshold is met for its
// grace period: it has containers and images removed, hastens the victim of a soft threshold, or
// starts the search for a victim. Memory comes before all other resources, and a hard threshold
// before a soft one. A file system waits while memory is being observed or is short
// (byEvictionPriority in pkg/kubelet/eviction/helpers.go, by which a kubelet sorts all thresholds).
func (m *Manager) respond(source int, env *Env) {
	if m.Victim != nil {
		m.hastenVictim(source, env)
		return
	}
	if m.Attempt != nil {
		return
	}
	if !m.isAnyMetForGrace(Signal.isForDisk) {
		m.LimitsWaitSince = time.Time{}
	}
	isNode := source == sourceNode
	chosen := -1
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		isAsked := m.sourceOf(t.Signal) == source || isNode && m.DisksAfterMemory
		if isAsked && m.needsVictim(t) && (chosen < 0 || t.isBefore(&m.Thresholds[chosen])) {
			chosen = i
		}
	}
	if isNode {
		m.DisksAfterMemory = false
	} else if chosen >= 0 && (m.Sources[sourceNode].Op != 0 || m.lacksMemory()) {
		m.DisksAfterMemory = true
		return
	}
	if chosen < 0 {
		if !m.isAnyMetForGrace(func(Signal) bool { return true }) {
			m.UsageFailures = 0
		}
		return
	}
	if m.reclaimFirst(chosen, env) {
		return
	}
	t := &m.Thresholds[chosen]
	if m.postpone(t.Signal.isForDisk(), env) || m.mayHoldLayers(t) {
		return
	}
	m.Attempt = &Attempt{Threshold: chosen}
	m.reportReclaim(chosen, env)
}

// reclaimFirst reports whether containers or images are to be removed before a pod is evicted for a
// threshold, and has them removed.
func (m *Manager) reclaimFirst(threshold int, env *Env) bool {
	what := m.neededReclaim(&m.Thresholds[threshold], env.Effects.Now())
	if what == (Reclaim{}) {
		return false
	}
	if m.ReclaimSince.IsZero() {
		m.ReclaimSince, m.Reclaiming = env.Effects.Now(), what
		m.RemovedAt = m.ReclaimSince
		m.reportReclaim(threshold, env)
		if what.Containers {
			env.RemoveContainers()
		}
	}
	return true
}

// needsVictim reports whether a threshold is met for its grace period by an observation that was
// asked for after the last victim and the last reclaim.
func (m *Manager) needsVictim(t *Threshold) bool {
	o, isObserved := m.Observed[t.Signal]
	return t.MetForGrace && isObserved && !o.AsOf.Before(m.NotBefore) &&
		(!t.Signal.isForDisk() || !o.AsOf.Before(m.LimitsFreedAt)) &&
		!o.AsOf.Before(m.Sources[m.sourceOf(t.Signal)].FailedAt)
}

// mayHoldLayers reports whether the runtime may still have held, at the newest observation,
// writable layers of removed containers on the file system of a threshold. No pod is evicted for
// them. An earlier agent may have removed containers until this one knows all pods.
func (m *Manager) mayHoldLayers(t *Threshold) bool {
	if !t.Signal.isForDisk() || !m.isOneDevice(m.sourceOf(t.Signal), sourceContainerfs) {
		return false
	}
	until := timer.Later(m.LayersHeldUntil, m.ListedAt.Add(layersHeldMax))
	return m.Observed[t.Signal].AsOf.Before(until)
}

// isAnyMetForGrace reports whether the threshold of a signal of a kind is met for its grace period.
func (m *Manager) isAnyMetForGrace(isOfKind func(Signal) bool) bool {
	return slices.ContainsFunc(m.Thresholds, func(t Threshold) bool {
		return t.MetForGrace && isOfKind(t.Signal)
	})
}

// lacksMemory reports whether a threshold of memory is met for its grace period by an observation
// that counts.
func (m *Manager) lacksMemory() bool {
	return slices.ContainsFunc(m.Thresholds, func(t Threshold) bool {
		return t.Signal.condition() == v1.NodeMemoryPressure && m.needsVictim(&t)
	})
}

// reportReclaim records that the agent frees a resource, be it by a removal or by an eviction.
func (m *Manager) reportReclaim(threshold int, env *Env) {
	env.Effects.RecordEvent(env.Node, v1.EventTypeWarning, "EvictionThresholdMet",
		"Attempting to reclaim %s", m.Thresholds[threshold].Signal.resource())
}

// handleUsage handles the observation of the pods. After a failure the next observation of the node
// starts another attempt. Statistics that are not newer than the last ones are a failure too: what
// a pod has freed meanwhile is not in them. The kubelet compares times in the same way
// (thresholdsUpdatedStats in pkg/kubelet/eviction/helpers.go). After usageFailuresMax failures the
// pods are ranked by what is known.
func (m *Manager) handleUsage(ev world.Event, env *Env) {
	a := m.Attempt
	a.Op = 0
	problem := "no answer"
	if ev.Err != nil {
		problem = ev.Err.Error()
	}
	switch body := ev.Body.(type) {
	case *world.TreesMeasured:
		a.HasTrees = true
		a.addTrees(body)
		return
	case *runtimeapi.ListPodSandboxStatsResponse:
		a.Usage = usageOf(body)
		before := m.UsageStamp
		m.UsageStamp = newestStamp(body, env.Effects.Date())
		if m.UsageStamp == 0 || m.UsageStamp > before {
			a.Answered = true
			return
		}
		problem = "the runtime's statistics are not newer than those of before"
	}
	m.UsageFailures++
	env.Effects.Log(world.LevelError, "Eviction manager: failed to observe the pods", "err", problem)
	switch {
	case m.UsageFailures < usageFailuresMax:
		m.Attempt = nil
	case a.Measured != nil:
		a.HasTrees = true // the pods are ranked by their writable layers
	default:
		a.Answered = true
	}
}

// stampAheadMax is how far the runtime's clock may be ahead of the agent's: the two are of one
// machine, and are read at different moments while its date is being corrected.
const stampAheadMax = time.Second

// newestStamp returns the newest timestamp of the pods' statistics; zero if they have none. One
// that lies in the future says nothing.
func newestStamp(listed *runtimeapi.ListPodSandboxStatsResponse, date time.Time) int64 {
	newest, latest := int64(0), date.Add(stampAheadMax).UnixNano()
	for _, s := range listed.GetStats() {
		if stamp := s.GetLinux().GetMemory().GetTimestamp(); stamp <= latest {
			newest = max(newest, stamp)
		}
	}
	return newest
}

// usageOf returns the usage of each pod that has a sandbox, by UID. Of several sandboxes of a pod
// each has the memory and processes of its whole cgroup: those of the newest one count.
func usageOf(listed *runtimeapi.ListPodSandboxStatsResponse) map[string]*PodUsage {
	usage, newest := map[string]*PodUsage{}, map[string]uint32{}
	for _, s := range listed.GetStats() {
		metadata, linux := s.GetAttributes().GetMetadata(), s.GetLinux()
		uid := metadata.GetUid()
		if uid == "" || linux.GetMemory().GetWorkingSetBytes() == nil {
			continue
		}
		u := usage[uid]
		if u == nil {
			u = &PodUsage{}
			usage[uid] = u
		}
		if attempt := metadata.GetAttempt(); attempt >= newest[uid] {
			newest[uid] = attempt
			u.MemoryBytes = int64(linux.GetMemory().GetWorkingSetBytes().GetValue())
			u.Processes = int64(linux.GetProcess().GetProcessCount().GetValue())
		}
		for _, c := range linux.GetContainers() {
			u.Layers.add(int64(c.GetWritableLayer().GetUsedBytes().GetValue()),
				int64(c.GetWritableLayer().GetInodesUsed().GetValue()))
			if memory := c.GetMemory().GetWorkingSetBytes(); memory != nil {
				u.Containers = append(u.Containers, ContainerUsage{
					Name: c.GetAttributes().GetMetadata().GetName(), MemoryBytes: int64(memory.GetValue())})
			}
		}
	}
	return usage
}

// measureTrees measures the logs and directories of all candidates by one request. The directory of
// a pod has its volumes, and what its containers can write besides: /etc/hosts and the files of
// termination messages (CVE-2020-8557). Volumes in memory are other mounts, which do not count.
func (a *Attempt) measureTrees(env *Env) {
	request := &world.MeasureTrees{}
	a.Measured = []string{}
	for _, c := range env.Candidates(true) {
		a.Measured = append(a.Measured, c.UID)
		request.Paths = append(request.Paths, c.LogDir, c.Dir)
		request.Owners = append(request.Owners, c.Pod.Namespace, c.Pod.Namespace)
	}
	a.Op = env.Effects.Issue(Owner, "", treesTimeout, request)
}

// addTrees adds what was measured to the usage of the pods. A pod counts as larger than all that
// were measured if one tree of it, or both, could not be finished.
func (a *Attempt) addTrees(trees *world.TreesMeasured) {
	hasStats := len(a.Usage) > 0
	for i, uid := range a.Measured {
		if len(trees.Trees) < 2*(i+1) {
			delete(a.Usage, uid)
			continue
		}
		u := a.Usage[uid]
		if u == nil {
			u = &PodUsage{LacksStats: hasStats}
			if a.Usage == nil {
				a.Usage = map[string]*PodUsage{}
			}
			a.Usage[uid] = u
		}
		logs, dir := &trees.Trees[2*i], &trees.Trees[2*i+1]
		u.Files.add(logs.Bytes, logs.Inodes)
		u.Files.add(dir.Bytes, dir.Inodes)
		if logs.Unfinished || dir.Unfinished {
			u.Files.add(unfinishedUsage, unfinishedUsage)
		}
	}
}

// unfinishedUsage is added to the usage of a pod with a tree that could not be finished.
const unfinishedUsage = 1 << 60
