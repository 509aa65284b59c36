package oracle

import (
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The reference for node-pressure eviction: what follows from the answers that the agent got.

// Pressure are the settings of node-pressure eviction.
type Pressure struct {
	Thresholds []PressureThreshold
	Transition time.Duration // of conditions
	GraceMax   time.Duration // of pods that are evicted for a soft threshold
	// PodsMemoryMax is what all pods together may use; zero: unlimited.
	PodsMemoryMax int64
}

// PressureThreshold is an amount below which pods are evicted.
type PressureThreshold struct {
	Signal             string
	Amount, MinReclaim int64
	Grace              time.Duration // zero: a hard threshold
}

const (
	resourceMemory  = "memory"
	resourcePIDs    = "pids"
	resourceStorage = "ephemeral-storage"
	resourceInodes  = "inodes"
)

// The requests that observe signals.
const (
	fromNode    = "node"
	fromNodefs  = "nodefs"
	fromImagefs = "imagefs"
)

// observationTimeout is how long the agent waits for an observation that leads to evictions.
const observationTimeout = 10 * time.Second

var pressureConditions = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure,
	v1.NodePIDPressure}

func isPressureCondition(t v1.NodeConditionType) bool {
	return slices.Contains(pressureConditions, t)
}

func (t *PressureThreshold) resource() string {
	switch t.Signal {
	case "pid.available":
		return resourcePIDs
	case "nodefs.available", "imagefs.available":
		return resourceStorage
	case "nodefs.inodesFree", "imagefs.inodesFree":
		return resourceInodes
	}
	return resourceMemory
}

func (t *PressureThreshold) condition() v1.NodeConditionType {
	switch t.resource() {
	case resourceMemory:
		return v1.NodeMemoryPressure
	case resourcePIDs:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// source returns which request observes the signal.
func (t *PressureThreshold) source() string {
	if source, _, _ := strings.Cut(t.Signal, "."); source == fromNodefs || source == fromImagefs {
		return source
	}
	return fromNode
}

// availableOf returns what an observation says about a signal, and false if it says nothing.
func availableOf(signal string, observed any, podsMemoryMax int64) (int64, bool) {
	if fs, isFilesystem := observed.(*world.FilesystemMeasured); isFilesystem {
		if strings.HasSuffix(signal, ".inodesFree") {
			return fs.InodesFree, fs.Inodes > 0
		}
		return fs.AvailableBytes, fs.CapacityBytes > 0
	}
	n, _ := observed.(*world.NodeMeasured)
	switch signal {
	case "memory.available":
		return n.MemoryBytes - n.WorkingSetBytes, n.MemoryBytes > 0
	case "allocatableMemory.available":
		return podsMemoryMax - n.PodsWorkingSetBytes, podsMemoryMax > 0 && n.PodsMeasured
	}
	return n.ProcessesMax - n.Processes, n.ProcessesMax > 0
}

// pressureModel is what follows from the answers so far.
type pressureModel struct {
	asked   map[world.OpID]askedUsage // observations in flight
	samples map[string]*nodeSample    // the newest of the node, by source
	usage   *usageSample              // the newest of the pods
	// usageStamp is that of the last statistics of pods, by the runtime's clock; usageTries is how
	// often the agent has asked for some since the last victim, or since no threshold was met.
	usageStamp int64
	usageTries int
	// usageAskedAt is when the agent last asked for some: it has chosen the threshold by then.
	usageAskedAt time.Time
	trees        *usageSample     // the newest of their files
	states       []thresholdState // of each threshold
	lastMet      map[v1.NodeConditionType]time.Time
	stored       map[v1.NodeConditionType]bool // that are true in the Node at the API server

	// trueSince is since when a condition has been true without a break, as this agent can know.
	trueSince map[v1.NodeConditionType]time.Time
	flippedAt time.Time // when the agent last sent another condition

	victim                        *pod      // of this agent
	victimIsSoft                  bool      // it has the grace period of a soft threshold
	victimHardSince               time.Time // since when it has that of a hard one
	victimHoldsDisk               bool      // it was evicted for a file system
	victimEndedAt, victimDeadline time.Time
	// victimLayersFreedAt is when the runtime has freed a writable layer of the victim.
	victimLayersFreedAt time.Time
	// heldLayers has how many writable layers of removed containers the runtime has not freed yet, by
	// UID.
	heldLayers   map[string]int
	starvedSince []time.Time // in truth, of each threshold
	// starvedAt is when an observation of a source last met a threshold for its grace period, also one
	// of an earlier agent.
	starvedAt map[string]time.Time
	// failedAt is when the agent last learned that a source could not be observed. freedAt is when an
	// image or a container was last removed for a source before a pod is evicted, which happens while
	// reclaims is set.
	failedAt, freedAt map[string]time.Time
	reclaims          bool
	// heldUntil is when an observation last said that a threshold of a condition, which had been met
	// by the one before, is not any more. The condition may have stayed until then.
	heldUntil map[v1.NodeConditionType]time.Time
}

type askedUsage struct {
	at, deadline time.Time
	source       string
	paths        []string // of MeasureTrees
}

type nodeSample struct {
	askedAt, answeredAt time.Time
	used                bool // a victim followed
	// starved is set if a threshold of the source has been met for its grace period. Then starvedSince
	// is when the first sample was answered since which that is so: while the pods are observed for
	// it, others follow.
	starved      bool
	starvedSince time.Time
}

type usageSample struct {
	askedAt time.Time
	stale   bool                // not newer than the one before
	pods    map[string]podUsage // by UID
}

type podUsage struct {
	memoryBytes, processes  int64
	diskBytes, inodes       int64 // of its logs and directory
	layerBytes, layerInodes int64 // of the writable layers of its containers
	// lacksStats is set if the runtime has statistics of others and not of this one.
	lacksStats bool
}

// since returns the observation if it was asked for at a time or later. Otherwise it returns nil:
// the pods have not been observed since.
func (u *usageSample) since(at time.Time) *usageSample {
	if u == nil || u.askedAt.Before(at) {
		return nil
	}
	return u
}

// withLayers adds the writable layers of another observation. Without it the pods have not been
// observed.
func (u *usageSample) withLayers(layers *usageSample) *usageSample {
	if u == nil || layers == nil {
		return nil
	}
	sum := &usageSample{askedAt: u.askedAt, stale: layers.stale, pods: maps.Clone(u.pods)}
	for uid, p := range sum.pods { //ordered: each alone
		its, hasStats := layers.pods[uid]
		p.layerBytes, p.layerInodes = its.layerBytes, its.layerInodes
		p.lacksStats = !hasStats && len(layers.pods) > 0
		sum.pods[uid] = p
	}
	return sum
}

// on returns what the pods use of the file system that a source observes: their logs, directories
// and writable layers, as far as these are on it.
func (u *usageSample) on(m *model, source string) *usageSample {
	if u == nil {
		return nil
	}
	its := &usageSample{askedAt: u.askedAt, stale: u.stale, pods: maps.Clone(u.pods)}
	for uid, p := range its.pods { //ordered: each alone
		// It may have anything in its layers, unless nothing of it runs.
		if p.lacksStats && m.hasLayers(source) && (m.pods[uid] == nil ||
			!m.pods[uid].isKnownIdle(m.pressure.usageAskedAt)) {
			delete(its.pods, uid)
			continue
		}
		if !m.hasPodFiles(source) {
			p.diskBytes, p.inodes = 0, 0
		}
		if m.hasLayers(source) {
			p.diskBytes, p.inodes = p.diskBytes+p.layerBytes, p.inodes+p.layerInodes
		}
		its.pods[uid] = p
	}
	return its
}

// hasPodFiles reports whether the directories and logs of pods are on the file system that a source
// observes.
func (m *model) hasPodFiles(source string) bool {
	return source == fromNodefs || source == fromImagefs && !m.opts.ImagesApart
}

// hasLayers reports whether the writable layers are on the file system that a source observes.
func (m *model) hasLayers(source string) bool {
	if m.opts.LayersApart {
		return source == fromImagefs
	}
	return m.hasPodFiles(source)
}

// hasImages reports whether the images are on the file system that a source observes.
func (m *model) hasImages(source string) bool {
	return source == fromImagefs || source == fromNodefs && !m.opts.ImagesApart
}

// lastStarved returns when a threshold of a file system with certain content was last met for its
// grace period; zero: never.
func (n *pressureModel) lastStarved(has func(source string) bool) time.Time {
	var last time.Time
	for source, at := range n.starvedAt { //ordered: the latest
		if has(source) {
			last = later(last, at)
		}
	}
	return last
}

type thresholdState struct {
	resource, source string

	metSince time.Time
	starved  bool
}

func newPressureModel(settings *Pressure) pressureModel {
	n := pressureModel{lastMet: map[v1.NodeConditionType]time.Time{},
		stored:       map[v1.NodeConditionType]bool{},
		trueSince:    map[v1.NodeConditionType]time.Time{},
		starvedSince: make([]time.Time, len(settings.Thresholds)),
		heldLayers:   map[string]int{},
		starvedAt:    map[string]time.Time{}, heldUntil: map[v1.NodeConditionType]time.Time{}}
	n.restart(len(settings.Thresholds))
	return n
}

// restart forgets what an agent has learned.
func (n *pressureModel) restart(thresholds int) {
	n.asked, n.samples = map[world.OpID]askedUsage{}, map[string]*nodeSample{}
	n.usage, n.trees, n.usageStamp, n.usageTries = nil, nil, 0, 0
	n.states, n.victim, n.victimIsSoft = make([]thresholdState, thresholds), nil, false
	n.victimDeadline = time.Time{}
	n.failedAt, n.freedAt = map[string]time.Time{}, map[string]time.Time{}
	n.reclaims = false
}

// agentStarted is called for each incarnation, which takes over the conditions that are true at the
// API server, and knows of no other.
func (n *pressureModel) agentStarted(m *model, now time.Time) {
	n.restart(len(m.opts.Pressure.Thresholds))
	for _, c := range pressureConditions {
		if conditionOf(m.objects.node, c).Status == v1.ConditionTrue {
			n.lastMet[c] = now
		} else {
			delete(n.trueSince, c)
		}
	}
}

// starvedSources returns which requests have observed that a pod has to be evicted for a resource.
func (n *pressureModel) starvedSources(resource string) []string {
	var all []string
	for i := range n.states {
		if n.states[i].starved && n.states[i].resource == resource {
			all = append(all, n.states[i].source)
		}
	}
	return all
}

// UsageAsked reports that the agent asks for an observation of the node or its pods.
func (s *Set) UsageAsked(now time.Time, eff *world.Effect) {
	asked := askedUsage{at: now, deadline: eff.Deadline}
	switch body := eff.Body.(type) {
	case *world.MeasureNode:
		asked.source = fromNode
	case *world.MeasureFilesystem:
		if eff.Deadline.Sub(now) > observationTimeout {
			return // for the garbage collection of images, which has no part in evictions
		}
		asked.source = fromImagefs
		switch body.Path {
		case path.Dir(s.model.opts.PodsDir):
			asked.source = fromNodefs
		case s.model.opts.LayersPath:
			return // only its device matters
		}
	case *runtimeapi.ImageFsInfoRequest:
		if eff.Deadline.Sub(now) > observationTimeout {
			return
		}
		asked.source = fromImagefs
	case *world.MeasureTrees:
		asked.paths = body.Paths
	case *runtimeapi.ListPodSandboxStatsRequest:
		s.model.pressure.usageTries++
		s.model.pressure.reclaims = false
		s.model.pressure.usageAskedAt = now
	default:
		return
	}
	n := &s.model.pressure
	for op, earlier := range n.asked { //ordered: those of one source have one effect
		if earlier.source == asked.source && asked.source != "" {
			n.applyFailure(s.model, earlier.deadline, earlier.source)
			delete(n.asked, op)
		}
	}
	n.asked[eff.Op] = asked
}

// stampAheadMax is how far a time of statistics may be ahead of the machine's date.
const stampAheadMax = time.Second

// UsageAnswered reports that the agent gets the answer to an observation.
func (s *Set) UsageAnswered(now time.Time, ev *world.Event) {
	n := &s.model.pressure
	asked, known := n.asked[ev.Op]
	if !known {
		return
	}
	delete(n.asked, ev.Op)
	switch {
	case now.After(asked.deadline): // the agent has not waited for it
		n.applyFailure(s.model, asked.deadline, asked.source)
		return
	case ev.Err != nil:
		n.applyFailure(s.model, now, asked.source)
		return
	}
	switch body := ev.Body.(type) {
	case *world.NodeMeasured, *world.FilesystemMeasured:
		n.applySample(s.model, now, &asked, body)
	case *world.TreesMeasured:
		n.trees = &usageSample{askedAt: asked.at, pods: map[string]podUsage{}}
		for i, tree := range body.Trees {
			n.trees.addTree(uidOfTree(asked.paths[i], s.model.opts.PodsDir), tree)
		}
	case *runtimeapi.ListPodSandboxStatsResponse:
		stamp, latest := int64(0), now.Add(s.model.dateOffset(now)+stampAheadMax).UnixNano()
		for _, stats := range body.Stats {
			if at := stats.Linux.Memory.Timestamp; at <= latest { // one in the future says nothing
				stamp = max(stamp, at)
			}
		}
		before := n.usageStamp
		n.usageStamp = stamp
		n.usage = &usageSample{askedAt: asked.at, pods: podUsageOf(body.Stats),
			stale: stamp != 0 && stamp <= before}
	}
}

// podUsageOf returns what the runtime's statistics say of each pod, by UID. Of several sandboxes of
// a pod each has the memory and processes of its whole cgroup: those of the newest one count.
func podUsageOf(all []*runtimeapi.PodSandboxStats) map[string]podUsage {
	usage, newest := map[string]podUsage{}, map[string]uint32{}
	for _, stats := range all {
		uid, attempt := stats.Attributes.Metadata.Uid, stats.Attributes.Metadata.Attempt
		u := usage[uid]
		if attempt >= newest[uid] {
			newest[uid] = attempt
			u.memoryBytes = int64(stats.Linux.Memory.WorkingSetBytes.Value)
			u.processes = int64(stats.Linux.Process.ProcessCount.Value)
		}
		for _, c := range stats.Linux.Containers {
			u.layerBytes += int64(c.WritableLayer.UsedBytes.Value)
			u.layerInodes += int64(c.WritableLayer.InodesUsed.Value)
		}
		usage[uid] = u
	}
	return usage
}

// addTree adds a measured tree of a pod. One that was not finished counts as larger than any other.
func (u *usageSample) addTree(uid string, tree world.TreeMeasured) {
	p := u.pods[uid]
	p.diskBytes, p.inodes = p.diskBytes+tree.Bytes, p.inodes+tree.Inodes
	if tree.Unfinished {
		p.diskBytes, p.inodes = math.MaxInt64/2, math.MaxInt64/2
	}
	u.pods[uid] = p
}

// uidOfTree returns the pod of a directory of logs, "NAMESPACE_NAME_UID", or of its own.
func uidOfTree(tree, podsDir string) string {
	if isWithin(tree, podsDir) {
		return path.Base(tree)
	}
	return tree[strings.LastIndex(tree, "_")+1:]
}

// applyFailure applies that the signals of a source could not be observed: the conditions of
// thresholds that were met before stay, as nothing says that they are not met any more.
func (n *pressureModel) applyFailure(m *model, now time.Time, source string) {
	n.failedAt[source] = later(n.failedAt[source], now)
	for i := range m.opts.Pressure.Thresholds {
		if t := &m.opts.Pressure.Thresholds[i]; t.source() == source {
			n.noteUnknown(now, t, &n.states[i])
		}
	}
}

func (n *pressureModel) noteUnknown(now time.Time, t *PressureThreshold, state *thresholdState) {
	if c := t.condition(); !state.metSince.IsZero() {
		n.lastMet[c] = later(n.lastMet[c], now)
	}
}

func (n *pressureModel) applySample(m *model, now time.Time, asked *askedUsage, body any) {
	for i := range m.opts.Pressure.Thresholds {
		t, state := &m.opts.Pressure.Thresholds[i], &n.states[i]
		if t.source() != asked.source {
			continue
		}
		available, isKnown := availableOf(t.Signal, body, m.opts.Pressure.PodsMemoryMax)
		if !isKnown {
			n.noteUnknown(now, t, state)
			continue
		}
		least := t.Amount
		if state.starved {
			least += t.MinReclaim
		}
		if available >= least {
			if !state.metSince.IsZero() {
				n.heldUntil[t.condition()] = now
			}
			*state, n.starvedSince[i] = thresholdState{}, time.Time{}
			continue
		}
		if state.resource, state.source = t.resource(), t.source(); state.metSince.IsZero() {
			state.metSince = now
			m.changedAt, m.sharedChangedAt = now, now // the agent has to react
		}
		state.starved = !now.Before(state.metSince.Add(t.Grace))
		if state.starved && t.Grace == 0 {
			n.hastenVictims(m, state.source, now)
		}
		c := t.condition()
		_, isTrue := n.trueSince[c]
		if !isTrue || now.Sub(n.lastMet[c]) >= m.opts.Pressure.Transition {
			n.trueSince[c] = now
		}
		n.lastMet[c] = now
	}
	n.addSample(m, now, asked)
	n.forgetTries()
}

// addSample adds the newest sample of a source, once its thresholds are evaluated.
func (n *pressureModel) addSample(m *model, now time.Time, asked *askedUsage) {
	s, before := &nodeSample{askedAt: asked.at, answeredAt: now, starvedSince: now},
		n.samples[asked.source]
	s.starved = slices.ContainsFunc(n.states, func(t thresholdState) bool {
		return t.starved && t.source == asked.source
	})
	if before != nil && before.starved && !before.used &&
		(!before.askedAt.Before(n.victimFreedAt(m, asked.source)) ||
			n.victim != nil && !before.askedAt.Before(n.victimDeadline)) {
		s.starvedSince = before.starvedSince
	}
	n.samples[asked.source] = s
	switch {
	case !s.starved:
	case m.knowsDisks():
		n.starvedAt[asked.source] = now
	case asked.source != fromNode:
		n.starvedAt[fromNodefs], n.starvedAt[fromImagefs] = now, now
	}
}

// victimFreedAt returns when the last victim has ended, and has given back what a source observes.
func (n *pressureModel) victimFreedAt(m *model, source string) time.Time {
	if m.hasLayers(source) {
		return later(n.victimEndedAt, n.victimLayersFreedAt)
	}
	return n.victimEndedAt
}

// knowsDisks reports whether the agent knows that the file systems of the node and of the images
// are two. It takes them for one before it has observed both.
func (m *model) knowsDisks() bool {
	n := &m.pressure
	return !m.opts.ImagesApart || n.samples[fromNodefs] != nil && n.samples[fromImagefs] != nil
}

// reclaimTime is how long containers and images are removed, without a fault.
const reclaimTime = reclaimBound

// hastenVictims is called when a hard threshold is met: a victim that has the time of a soft one,
// also one of an earlier agent, may be killed. For a file system, containers and images are
// removed before a victim of something else is.
func (n *pressureModel) hastenVictims(m *model, source string, now time.Time) {
	for _, p := range m.podsInOrder {
		if !p.pressureEvictedAt.IsZero() {
			p.minGrace = min(p.minGrace, evictionGrace)
		}
	}
	hardSince := now
	if n.victim != nil && source != fromNode && !isForDisk(n.victim.pressureMessage) {
		hardSince = now.Add(reclaimTime)
	}
	if n.victim == nil || !n.victimIsSoft && !hardSince.Before(n.victimHardSince) {
		return
	}
	n.victimIsSoft, n.victimHardSince = false, hardSince
	if at := n.victimHardSince.Add(evictionGrace + victimEndBound); at.Before(n.victimDeadline) {
		n.victimDeadline = at
	}
}

// forgetTries is called after an observation of the node.
func (n *pressureModel) forgetTries() {
	if !slices.ContainsFunc(n.states, func(s thresholdState) bool { return s.starved }) {
		n.usageTries = 0
	}
}

// noteLayer counts the layers that are held.
func (n *pressureModel) noteLayer(f *truth.Fact) {
	switch {
	case f.Bytes == 0:
	case f.Kind == truth.LayerFreed:
		n.heldLayers[f.PodUID]--
	default:
		n.heldLayers[f.PodUID]++
	}
}

// apply applies a fact.
func (n *pressureModel) apply(m *model, f *truth.Fact) {
	switch f.Kind {
	case truth.EventRecorded:
		p := m.pods[f.PodUID]
		_, isLow := lowResource(f.Message)
		switch {
		case f.Reason == reasonReclaims:
			n.reclaims = true
		case p == nil || f.Reason != reasonEvicted:
		case isLow:
			n.applyVictim(m, p, f)
		default:
			p.limitEvictedAt = f.Time
		}
	case truth.ContainerExited, truth.SandboxStopped: // its records may be removed much later
		if n.victim != nil && n.victim.uid == f.PodUID && f.Time.After(n.victimEndedAt) {
			n.victimEndedAt = f.Time
		}
	case truth.ImageRemoved:
		if n.reclaims && f.Cause == "" {
			n.noteFreed(m.hasImages, f.Time)
		}
	case truth.ContainerRemoved, truth.LayerFreed: // with its writable layer and logs
		n.noteLayer(f)
		if p := m.pods[f.PodUID]; p != nil {
			p.noteLimitFreed(f)
		}
		n.applyContainerRemoved(m, m.containers[f.ContainerID], f)
		switch {
		case n.victim == nil || !n.victimHoldsDisk || n.victim.uid != f.PodUID:
		case f.Kind == truth.LayerFreed:
			n.victimLayersFreedAt = f.Time
		default:
			n.victimEndedAt = later(n.victimEndedAt, f.Time)
		}
	case truth.Unmounted: // a volume in memory
		if n.victim != nil && strings.HasPrefix(f.Path, m.opts.PodsDir+"/"+n.victim.uid+"/volumes/") {
			n.victimEndedAt = later(n.victimEndedAt, f.Time)
		}
	case truth.PathRemoved:
		if uid, below := childName(m.opts.PodsDir, f.Path); below && m.pods[uid] != nil &&
			f.Path == m.opts.PodsDir+"/"+uid+"/volumes" {
			m.pods[uid].noteLimitFreed(f)
		}
		// An eviction for a file system ends when the volumes are removed.
		if n.victim != nil && n.victimHoldsDisk &&
			f.Path == m.opts.PodsDir+"/"+n.victim.uid+"/volumes" && f.Cause == "" {
			n.victimEndedAt = later(n.victimEndedAt, f.Time)
		}
	case truth.ObjectUpdated, truth.ObjectCreated, truth.ObjectDeleted:
		if w := f.Write; w.Resource == world.ResourceNodes && w.Name == m.opts.NodeName {
			n.applyNode(m, w.After.Node)
		}
	}
}

// applyNode applies a write of the Node; nil: its deletion. An agent that has not met a condition
// itself may have read the Node without it.
func (n *pressureModel) applyNode(m *model, node *v1.Node) {
	for _, c := range pressureConditions {
		is := conditionOf(node, c).Status
		if is != "" {
			n.stored[c] = is == v1.ConditionTrue
		}
		if is != v1.ConditionTrue && n.lastMet[c].Equal(m.agentStartedAt) {
			delete(n.trueSince, c)
		}
	}
}

// reasonReclaims is that of the Event of the Node before the agent removes something, or observes
// the pods to evict one.
const reasonReclaims = "EvictionThresholdMet"

// noteFreed notes that something was removed before an eviction from the file systems that have it.
func (n *pressureModel) noteFreed(has func(source string) bool, at time.Time) {
	for _, source := range []string{fromNodefs, fromImagefs} {
		if has(source) {
			n.freedAt[source] = at
		}
	}
}

// applyContainerRemoved notes the removal of a container before an eviction: that of a pod that has
// ended by itself and is still desired, and its newest run. Older runs, and the containers of a pod
// that is deleted or was evicted, are removed without that.
func (n *pressureModel) applyContainerRemoved(m *model, c *container, f *truth.Fact) {
	if c == nil {
		return
	}
	p := c.pod
	if object := p.object(); n.reclaims && f.Cause == "" && object != nil &&
		object.DeletionTimestamp == nil && !p.terminalAt.IsZero() && !isEvictedOrPreempted(object) &&
		p.historyOf(c.name).last == c {
		n.noteFreed(m.hasLayers, f.Time)
	}
}

// noteLimitFreed notes that a pod that was evicted for a limit of its own has given something back.
func (p *pod) noteLimitFreed(f *truth.Fact) {
	switch {
	case p.limitEvictedAt.IsZero():
	case f.Kind == truth.LayerFreed:
		p.limitLayersFreedAt = f.Time
	default:
		p.limitFreedAt = f.Time
	}
}

// limitFreedFrom returns when a pod that was evicted for a limit of its own last gave back
// something of what a source observes. Layers that are freed long after the first such pod are not
// waited for.
func (p *pod) limitFreedFrom(source string) time.Time {
	waited := p.limitFreedAt.Sub(p.model.limitsWaitSince())
	if p.model.hasLayers(source) && waited <= evictionGrace+victimEndBound {
		return later(p.limitFreedAt, p.limitLayersFreedAt)
	}
	return p.limitFreedAt
}

// limitsWaitSince returns since when, at the earliest, evictions for a file system may have waited
// for pods that were evicted for limits of their own: the agent waits once for each of its victims,
// and for each shortage.
func (m *model) limitsWaitSince() time.Time {
	n, first, short := &m.pressure, m.now, m.now
	for _, p := range m.podsInOrder {
		if at := p.limitEvictedAt; !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	for i := range n.states {
		if s := &n.states[i]; s.starved && s.source != fromNode && s.metSince.Before(short) {
			short = s.metSince
		}
	}
	since := later(first, short)
	if n.victim != nil && n.victimHoldsDisk {
		since = later(since, n.victim.pressureEvictedAt)
	}
	return since
}

func (n *pressureModel) applyVictim(m *model, p *pod, f *truth.Fact) {
	grace := m.pressureGrace(p)
	p.minGrace, p.pressureEvictedAt, p.pressureMessage = min(p.minGrace, grace), f.Time, f.Message
	resource, _ := lowResource(f.Message)
	p.pressureGraceMax = n.mostGrace(m, resource)
	n.victim, n.victimEndedAt = p, f.Time
	n.victimHoldsDisk = isForDisk(f.Message)
	n.victimIsSoft, n.victimHardSince = m.isSoftNow(), f.Time
	n.victimDeadline = f.Time.Add(grace + victimEndBound)
	n.usageTries = 0
	clear(n.starvedSince)
	for _, s := range n.samples { //ordered: each by itself
		s.used = true
	}
}

// isSoftNow reports whether a pod that is evicted now has the time of a soft threshold.
func (m *model) isSoftNow() bool {
	for i := range m.opts.Pressure.Thresholds {
		if m.pressure.states[i].starved && m.opts.Pressure.Thresholds[i].Grace == 0 {
			return false
		}
	}
	return m.opts.Pressure.GraceMax > evictionGrace
}

// pressureGrace returns the grace period with which a pod is evicted now.
func (m *model) pressureGrace(p *pod) time.Duration {
	own := p.minGrace
	if !m.isSoftNow() {
		return min(own, evictionGrace)
	}
	return min(own, m.opts.Pressure.GraceMax)
}

// mostGrace returns how long a pod that is evicted for a resource may have to end. A hard threshold
// that was met when the agent began to observe the pods leaves it a second, but the agent may go by
// a soft one of another file system.
func (n *pressureModel) mostGrace(m *model, resource string) time.Duration {
	for _, source := range n.starvedSources(resource) {
		isHard := false
		for i := range m.opts.Pressure.Thresholds {
			t, met := &m.opts.Pressure.Thresholds[i], n.states[i].metSince
			isHard = isHard || t.Grace == 0 && t.source() == source && t.resource() == resource &&
				!met.IsZero() && !met.After(n.usageAskedAt)
		}
		if !isHard {
			return max(m.opts.Pressure.GraceMax, evictionGrace)
		}
	}
	return evictionGrace
}

// mayBeTrueUntil returns until when the agent may keep a condition true; zero: it was never met.
func (n *pressureModel) mayBeTrueUntil(m *model, c v1.NodeConditionType) time.Time {
	if _, met := n.lastMet[c]; !met {
		return time.Time{}
	}
	last := n.lastMetOf(m, c, m.now).Add(m.opts.Pressure.Transition)
	if n.isUnobservedSince(last) {
		last = later(last, m.now)
	}
	return later(last, n.heldUntil[c]).Add(pressureReportBound)
}

// isUnobservedSince reports whether the agent has observed nothing since a time: whatever it
// observes, it decides on all conditions, and one that is due to end stays until then.
func (n *pressureModel) isUnobservedSince(at time.Time) bool {
	for _, s := range n.samples { //ordered: whether there is one
		if !s.answeredAt.Before(at) {
			return false
		}
	}
	return true
}

// mayRejectForPressure reports whether a pod may have been rejected because of a condition that was
// true at some time since it was desired.
func (m *model) mayRejectForPressure(p *pod) bool {
	var all []v1.NodeConditionType
	for _, c := range pressureConditions {
		if m.pressure.mayBeTrueUntil(m, c).After(p.firstDesiredAt) {
			all = append(all, c)
		}
	}
	if len(all) == 0 || p.isCritical() {
		return false
	}
	return len(all) > 1 || all[0] != v1.NodeMemoryPressure || p.isRejectedForMemory()
}

// isRejectedForMemory reports whether the pod is not admitted while memory is short: it is
// BestEffort, and does not tolerate the taint of the condition.
func (p *pod) isRejectedForMemory() bool {
	taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
	spec := p.specs[len(p.specs)-1]
	return qosClass(spec) == v1.PodQOSBestEffort &&
		!slices.ContainsFunc(spec.Spec.Tolerations, func(t v1.Toleration) bool {
			return t.ToleratesTaint(logr.Logger{}, &taint, false)
		})
}

// mayBeEvictedForNode reports whether the agent evicts the pod for the node, or has. An agent that
// was started meanwhile does not know of an eviction that no status tells yet.
func (p *pod) mayBeEvictedForNode() bool {
	m := p.model
	if p.pressureEvictedAt.IsZero() {
		return false
	}
	return p.isEvictionKnown() || m.healedAt.IsZero() ||
		m.now.Sub(later(m.healedAt, m.agentStartedAt)) <= evictionBound
}

// isEvictionKnown reports whether the eviction has led to a status, or the agent knows of it.
func (p *pod) isEvictionKnown() bool {
	return !p.terminalAt.IsZero() || p.servedTerminal != "" ||
		!p.model.agentStartedAt.After(p.pressureEvictedAt)
}

// mustBeEvictedForNode reports whether the agent has evicted the pod for the node long ago.
func (p *pod) mustBeEvictedForNode(now time.Time) bool {
	m := p.model
	return !p.pressureEvictedAt.IsZero() && p.isEvictionKnown() && !m.healedAt.IsZero() &&
		p.isEvictable() && now.Sub(later(later(p.pressureEvictedAt, m.healedAt),
		m.agentStartedAt)) > evictionBound
}
