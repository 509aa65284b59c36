// Package eviction ends pods while the node runs out of memory, of process IDs, or of space or
// inodes on a file system: node-pressure eviction (pkg/kubelet/eviction).
//
// Facts: the newest observation of each signal with the time at which it was asked for; for each
// threshold, since when it is met; for each pressure condition, when it was last observed; the
// usage of the pods while a threshold asks for a victim; since when all pods are known, and whether
// an attempt waits for their records; the victim that ends. Plan: observes the node every ten
// seconds; if a threshold has been met for its grace period, observes the pods and evicts the one
// that ranks first; for a file system with images, those that are unused are removed before, and
// for one with writable layers, before them, the containers of pods that have ended. Events:
// completions of observations, the ends of pods and of removals, and records that say that a pod
// was evicted.
//
// One observation of the node leads to one victim at most, and the next victim is chosen by an
// observation that is asked for after the last one has ended: a decision is never made on a sample
// that is older than what the last one has freed. The victim of a soft threshold may take minutes
// to end: the node is observed meanwhile, and a hard threshold that is met leaves the victim no
// time. All pods are observed by one request, their trees by a second one if it is about a file
// system, and only for a decision, so a node at rest costs the machine's counters and one statfs
// for each file system in ten seconds. The kernel can be asked to report a shortage of memory
// before that (alert.go).
//
// Start reading at Manager.Plan, then observe.go, threshold.go, layout.go and rank.go.
package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "eviction"}

const (
	period  = 10 * time.Second // evictionMonitoringPeriod of the kubelet
	timeout = 10 * time.Second
	// alertPeriod is the least time between two observations of the node's memory: usage may cross a
	// threshold again and again.
	alertPeriod = time.Second
	// infoPeriod is how often the runtime is asked where its images are: it may be started again with
	// another directory.
	infoPeriod = 5 * time.Minute
	// immediateGrace is the grace period of a pod that is evicted for a hard threshold
	// (immediateEvictionGracePeriodSeconds).
	immediateGrace = time.Second
	// CleanupMax is how much longer than its grace period a victim may take to end, and to give back
	// what it holds, until the node is observed again (podCleanupTimeout).
	CleanupMax = 30 * time.Second
	// containersIdleMax and imagesIdleMax are for how long no container, and no unused image, may be
	// removed until pods are evicted all the same. A removal in flight is waited for until removalMax
	// after the last one: it may take the runtime's timeout (two minutes), for which a kubelet waits,
	// too. reclaimValid is for how long after a reclaim pods are evicted without another one.
	containersIdleMax = 10 * time.Second
	imagesIdleMax     = 30 * time.Second
	removalMax        = 2*time.Minute + 10*time.Second
	reclaimValid      = 20*time.Second + layersHeldMax
	// containersReclaimMax bounds the removals of containers in one reclaim, however often one of them
	// ends: the content of a pod's volumes determines when its containers are removed, and a tenant
	// with many such pods would put off the eviction.
	containersReclaimMax = 2 * removalMax
	// layersHeldMax is how long after the removal of containers the runtime may hold their writable
	// layers. The garbage collector of containerd frees them, a second later, or fifty times as long
	// as a collection takes (pause_threshold).
	layersHeldMax = 10 * time.Second
	// statsTimeout is that of the stats of all pods. The port requests them at once within the first
	// half of it, and within the second half those of each sandbox.
	statsTimeout = 20 * time.Second
	// treesTimeout is that of a measurement of all trees.
	treesTimeout = 15 * time.Second
	// recordsMax is how long an attempt waits for the records of pods, after all pods are known.
	recordsMax = 10 * time.Second
	// usageFailuresMax bounds the failed observations of the pods for one victim. At the last one the
	// pods are ranked by what is known, even if that is stale, or nothing: a node that runs out of
	// memory cannot wait for its runtime.
	usageFailuresMax = 3
)

// Manager is the state of evictions.
type Manager struct {
	Settings
	Thresholds []Threshold            `json:"thresholds,omitempty"` // empty: nothing is observed
	Observed   map[Signal]Observation `json:"observed,omitempty"`   // the newest of each signal
	Sources    [sourceCount]Source    `json:"sources"`
	// ImagePath is in the file system of the images; empty before the runtime has answered. LayersPath
	// is in that of the writable layers, if the runtime has another directory for them.
	ImagePath  string `json:"imagePath,omitempty"`
	LayersPath string `json:"layersPath,omitempty"`
	// InfoAt is when the runtime was last asked for these paths, InfoAsked whether it is being asked.
	InfoAt    time.Time `json:"infoAt"`
	InfoAsked bool      `json:"infoAsked,omitempty"`
	// Nodefs, Imagefs and Containerfs are the devices of the file systems; zero: not known.
	// Containerfs is that of LayersPath.
	Nodefs      uint64 `json:"nodefs,omitempty"`
	Imagefs     uint64 `json:"imagefs,omitempty"`
	Containerfs uint64 `json:"containerfs,omitempty"`
	Layout      Layout `json:"layout,omitempty"` // of which copyThresholds has made thresholds
	// ReclaimSince is since when Reclaiming is being removed, before a pod is evicted for a file
	// system; zero: nothing is. ImagesSince is since when images are: after the containers, some of
	// which have used them. ContainersReclaimedAt and ImagesReclaimedAt are when the last removals
	// ended.
	ReclaimSince          time.Time `json:"reclaimSince"`
	Reclaiming            Reclaim   `json:"reclaiming,omitzero"`
	ImagesSince           time.Time `json:"imagesSince"`
	ContainersReclaimedAt time.Time `json:"containersReclaimedAt"`
	ImagesReclaimedAt     time.Time `json:"imagesReclaimedAt"`
	// RemovedAt is when the last removal of the reclaim has ended; before the first one, when that of
	// the containers or of the images started.
	RemovedAt time.Time `json:"removedAt"`
	// NotBefore is when the last victim or the last reclaim has ended: no earlier observation leads to
	// another victim. VictimEndedAt is when the last victim has.
	NotBefore     time.Time `json:"notBefore"`
	VictimEndedAt time.Time `json:"victimEndedAt"`

	// LastMet holds when a threshold of a condition was last met.
	LastMet  map[v1.NodeConditionType]time.Time `json:"lastMet,omitempty"`
	Pressure []v1.NodeConditionType             `json:"pressure,omitempty"` // conditions that are true
	// Decided is set once the node was observed: before that, the conditions stay as they are.
	Decided bool `json:"decided,omitempty"`
	Adopted bool `json:"adopted,omitempty"` // see Adopt

	// ListedAt is when all pods were known. Postponed is set while no pod is evicted because it is not
	// known yet whether an earlier agent has evicted one or, with PostponedForLimits, because a pod
	// ends that has exceeded its own limit of a disk.
	ListedAt           time.Time `json:"listedAt"`
	Postponed          bool      `json:"postponed,omitempty"`
	PostponedForLimits bool      `json:"postponedForLimits,omitempty"`
	// LimitsWaitSince is since when evictions for a disk have waited for such pods, whose authors
	// could make more of them; zero: they have not. LimitsFreedAt is when the last such pod has given
	// back what it held.
	LimitsWaitSince time.Time `json:"limitsWaitSince,omitzero"`
	LimitsFreedAt   time.Time `json:"limitsFreedAt,omitzero"`
	// LayersHeldUntil is until when the runtime may hold the writable layers of containers that were
	// removed for a file system.
	LayersHeldUntil time.Time `json:"layersHeldUntil,omitzero"`
	Attempt         *Attempt  `json:"attempt,omitempty"`
	// DisksAfterMemory is set while a file system is short of space and memory is being observed,
	// which comes first.
	DisksAfterMemory bool `json:"disksAfterMemory,omitempty"`
	UsageFailures    int  `json:"usageFailures,omitempty"` // to observe the pods, for this victim
	// AlertProblem is why the kernel does not report a shortage of memory, as it was logged.
	AlertProblem string `json:"alertProblem,omitempty"`
	// UsageStamp is the newest timestamp in the last statistics of the pods, by the runtime's clock.
	// Older statistics are refused and set it back, so that after that clock was set back one answer
	// is refused, and not all.
	UsageStamp int64   `json:"usageStamp,omitempty"`
	Victim     *Victim `json:"victim,omitempty"`
}

// Source is a request that observes signals, and is made again and again.
type Source struct {
	Op      world.OpID `json:"op,omitempty"` // of the observation in flight
	AskedAt time.Time  `json:"askedAt"`      // when it was issued
	NextAt  time.Time  `json:"nextAt"`       // when the next one is due
	// FailedAt is when an observation failed: those of before are too old to evict a pod for.
	FailedAt time.Time `json:"failedAt"`
}

// The sources.
const (
	sourceNode        = iota // memory and processes of the machine
	sourceNodefs             // the file system of the agent's root directory
	sourceImagefs            // the file system of the images
	sourceContainerfs        // the file system of the writable layers, if it is none of those
	sourceCount
)

// Reclaim is what is removed before a pod is evicted for a file system.
type Reclaim struct {
	Containers bool `json:"containers,omitempty"` // of pods that have ended
	Images     bool `json:"images,omitempty"`     // that no container uses
}

// Settings are the configuration. They do not change while the agent runs.
type Settings struct {
	Transition time.Duration `json:"transition,omitempty"` // evictionPressureTransitionPeriod
	GraceMax   time.Duration `json:"graceMax,omitempty"`   // evictionMaxPodGracePeriod
	RootDir    string        `json:"rootDir,omitempty"`    // of the agent
	// Alerts is set if the kernel is asked to report a shortage of memory (kernelMemcgNotification).
	Alerts bool `json:"alerts,omitempty"`
}

// Attempt is the search for a victim, for a threshold that was met by the newest observation.
type Attempt struct {
	Threshold int `json:"threshold"` // its index
	// Candidates has the candidates at the request for statistics, by UID, and whether each was idle.
	// Pods that have started since have no statistics in the answer.
	Candidates map[string]bool      `json:"candidates,omitempty"`
	Op         world.OpID           `json:"op,omitempty"`
	Answered   bool                 `json:"answered,omitempty"`
	Usage      map[string]*PodUsage `json:"usage,omitempty"` // by UID
	// Measured are the UIDs of the pods whose trees are measured; nil before that is asked for.
	Measured []string `json:"measured,omitempty"`
	HasTrees bool     `json:"hasTrees,omitempty"` // the trees were measured
}

// Victim is a pod that was evicted, until it has ended.
type Victim struct {
	UID      string    `json:"uid"`
	Deadline time.Time `json:"deadline"`
	// HoldsDisk is set if the pod was evicted for a file system: it has ended when its volumes and
	// containers are removed, which may take longer than the end of its processes.
	HoldsDisk bool `json:"holdsDisk,omitempty"`
	// Soft is set if the pod has longer to end than a hard threshold would give it.
	Soft bool `json:"soft,omitempty"`
}

// Eviction is how a pod is evicted.
type Eviction struct {
	Signal      Signal
	Grace       time.Duration // at most
	Message     string
	Annotations map[string]string // of the Event
}

// Env is what a plan sees and does outside the package.
type Env struct {
	Effects *op.Effects
	Node    v1.ObjectReference // for Events
	Request world.MeasureNode
	// PodsMemoryMax is the memory that all pods together may use; zero: there is no limit.
	PodsMemoryMax int64
	// RemoveContainers has the containers of pods that have ended removed, AreContainersRemoved
	// reports whether that is done, and KeepContainers has those kept that are left after a while.
	RemoveContainers     func()
	AreContainersRemoved func() bool
	KeepContainers       func()
	// IsRemoving reports whether a container or an image is being removed.
	IsRemoving func() bool
	// RemoveImages has all unused images removed, and AreImagesRemoved reports whether that is done
	// after a request of a time.
	RemoveImages     func()
	AreImagesRemoved func(since time.Time) bool
	// Candidates returns the pods that could be evicted, for a file system or for something else.
	Candidates func(forDisk bool) []Candidate
	// Listed is set if the pods of the API server and of the runtime are known. LacksRecords reports
	// whether the record of a pod of which something runs was not read yet: it may say that an earlier
	// agent has evicted the pod.
	Listed       bool
	LacksRecords func() bool
	// LimitsFreedBy returns by when the pods that were evicted for their own limits will have given
	// back what they hold of a disk; zero if there is none.
	LimitsFreedBy func() time.Time
	Evict         func(c Candidate, e Eviction)
	Hasten        func(uid string, grace time.Duration) // shortens the grace period of the victim
	RecordAge     func(s Signal, age time.Duration)     // of the observation behind a decision
}

// Candidate is a pod that could be evicted.
type Candidate struct {
	UID         string
	Pod         *v1.Pod
	Grace       time.Duration // its own grace period
	Idle        bool          // no container of it runs
	LogDir, Dir string        // the pod's directory of logs, and its own
}

// Plan takes the next step, and returns when to plan again.
func (m *Manager) Plan(env *Env) time.Time {
	now := env.Effects.Now()
	if m.ListedAt.IsZero() && env.Listed {
		m.ListedAt = now
	}
	if len(m.Thresholds) == 0 {
		return time.Time{}
	}
	if m.Attempt != nil && !m.planAttempt(env) {
		return m.planSources(env) // what an attempt waits for may take half a minute
	}
	var victimUntil time.Time
	switch v := m.Victim; {
	case v == nil:
	case !now.Before(v.Deadline):
		m.endVictim(now)
	case !v.Soft:
		return timer.Soonest(v.Deadline, m.planReclaim(env))
	default:
		victimUntil = v.Deadline
	}
	wake := timer.Soonest(victimUntil, timer.Soonest(m.planReclaim(env), m.planPostponed(env)))
	return timer.Soonest(wake, m.planSources(env))
}

// planSources observes the sources that are due, and returns when to plan again. During a reclaim
// the file systems are not observed.
func (m *Manager) planSources(env *Env) time.Time {
	var wake time.Time
	for i := range m.Sources {
		if i == sourceNode || m.ReclaimSince.IsZero() {
			wake = timer.Soonest(wake, m.planSource(i, env))
		}
	}
	return wake
}

// planPostponed has the node observed again once it is known which pods an earlier agent has
// evicted, or those have ended that were over their limits of a disk: their ends may have freed
// much since the observation that met the threshold.
func (m *Manager) planPostponed(env *Env) time.Time {
	if !m.Postponed {
		return time.Time{}
	}
	now := env.Effects.Now()
	if until := m.awaitedUntil(m.PostponedForLimits, env); now.Before(until) {
		return until
	}
	m.Postponed, m.PostponedForLimits = false, false
	m.observeAgain(now)
	return time.Time{}
}

// awaitedUntil returns until when an attempt waits to know which pods an earlier agent has evicted,
// and one for a file system, for pods that are over their own limits of it. It waits for the list
// of all pods as long as that takes: a pod without a spec cannot be evicted. It waits for records
// no longer than recordsMax: a disk may hang.
func (m *Manager) awaitedUntil(forDisk bool, env *Env) time.Time {
	var until time.Time
	if forDisk {
		if until = env.LimitsFreedBy(); !until.IsZero() && !m.LimitsWaitSince.IsZero() {
			until = timer.Soonest(until, m.LimitsWaitSince.Add(immediateGrace+CleanupMax))
		}
	}
	switch {
	case m.ListedAt.IsZero():
		return timer.Later(until, env.Effects.Now().Add(recordsMax))
	case env.LacksRecords():
		return timer.Later(until, m.ListedAt.Add(recordsMax))
	}
	return until
}

// postpone has an attempt wait, and reports whether it has to.
func (m *Manager) postpone(forDisk bool, env *Env) bool {
	now := env.Effects.Now()
	if !now.Before(m.awaitedUntil(forDisk, env)) {
		return false
	}
	m.Postponed, m.PostponedForLimits = true, m.PostponedForLimits || forDisk
	if forDisk && m.LimitsWaitSince.IsZero() && now.Before(env.LimitsFreedBy()) {
		m.LimitsWaitSince = now
	}
	return true
}

// NoteLimitFreed is called when a pod that was evicted for a limit of its own has given back what
// it held of a disk: no earlier observation of a file system leads to a victim, and none while the
// runtime may hold its layers, as long as the disks may wait for such pods.
func (m *Manager) NoteLimitFreed(now time.Time) {
	if m.LimitsWaitSince.IsZero() && m.isAnyMetForGrace(Signal.isForDisk) {
		m.LimitsWaitSince = now
	}
	until := now.Add(layersHeldMax)
	if !m.LimitsWaitSince.IsZero() {
		until = timer.Soonest(until,
			m.LimitsWaitSince.Add(immediateGrace+CleanupMax+layersHeldMax))
	}
	m.LimitsFreedAt, m.LayersHeldUntil = now, timer.Later(m.LayersHeldUntil, until)
	for i := sourceNodefs; i < sourceCount; i++ {
		m.Sources[i].NextAt = now
	}
}

// observeAgain has everything observed again before another victim is chosen.
func (m *Manager) observeAgain(now time.Time) {
	m.NotBefore = now
	for i := range m.Sources {
		m.Sources[i].NextAt = now
	}
}

// planReclaim goes on with the removal of containers and images, and returns the time after which
// pods are evicted without its end. The file systems are observed again after it; memory and
// processes are observed all the time.
func (m *Manager) planReclaim(env *Env) time.Time {
	now := env.Effects.Now()
	if m.ReclaimSince.IsZero() {
		return time.Time{}
	}
	what := m.Reclaiming
	if m.ImagesSince.IsZero() {
		until, bound := m.removalAwaited(containersIdleMax, env), m.ReclaimSince.Add(containersReclaimMax)
		if what.Containers && !until.IsZero() && now.Before(bound) && !env.AreContainersRemoved() {
			return timer.Soonest(until, bound)
		}
		if what.Images {
			m.ImagesSince, m.RemovedAt = now, now
			env.RemoveImages()
		}
	}
	until := m.removalAwaited(imagesIdleMax, env)
	if what.Images && !until.IsZero() && !env.AreImagesRemoved(m.ImagesSince) {
		return until
	}
	if what.Containers {
		m.ContainersReclaimedAt = now
		env.KeepContainers()
	}
	if what.Images {
		m.ImagesReclaimedAt = now
	}
	m.ReclaimSince, m.ImagesSince, m.Reclaiming = time.Time{}, time.Time{}, Reclaim{}
	m.observeAgain(now)
	return time.Time{}
}

// removalAwaited returns until when the next removal is waited for; zero if it is not: none has
// ended for idleMax, and none is in flight, or it takes too long.
func (m *Manager) removalAwaited(idleMax time.Duration, env *Env) time.Time {
	now := env.Effects.Now()
	if until := m.RemovedAt.Add(idleMax); now.Before(until) {
		return until
	}
	until := m.RemovedAt.Add(removalMax)
	if !now.Before(until) || !env.IsRemoving() {
		return time.Time{}
	}
	return timer.Soonest(until, now.Add(idleMax)) // it may fail meanwhile, and back off
}

// NoteRemoval is called when the removal of a container or of an image has ended, or a step of it.
func (m *Manager) NoteRemoval(now time.Time) {
	if m.ReclaimSince.IsZero() {
		return
	}
	if m.RemovedAt = now; m.ImagesSince.IsZero() {
		m.LayersHeldUntil = now.Add(layersHeldMax)
	}
}

// neededReclaim returns what may help a threshold if it is removed: the containers and images that
// are on its file system (buildSignalToNodeReclaimFuncs in pkg/kubelet/eviction/helpers.go).
func (m *Manager) neededReclaim(t *Threshold, now time.Time) Reclaim {
	source := m.sourceOf(t.Signal)
	if source == sourceNode {
		return Reclaim{}
	}
	return Reclaim{
		Containers: m.isOneDevice(source, sourceContainerfs) && m.isDue(m.ContainersReclaimedAt, now),
		Images:     m.isOneDevice(source, sourceImagefs) && m.isDue(m.ImagesReclaimedAt, now),
	}
}

// isDue reports whether a removal is due, whose last one was at a time: there was none, the last
// victim has ended since, so that its own can be removed, or reclaimValid has passed.
func (m *Manager) isDue(reclaimedAt, now time.Time) bool {
	return reclaimedAt.IsZero() || reclaimedAt.Before(m.VictimEndedAt) ||
		now.Sub(reclaimedAt) > reclaimValid
}

// planSource observes a source that is due, and returns when to plan it again.
func (m *Manager) planSource(source int, env *Env) time.Time {
	s, now := &m.Sources[source], env.Effects.Now()
	switch {
	case !m.observes(source) || s.Op != 0:
		return time.Time{}
	case now.Before(s.NextAt):
		return s.NextAt
	}
	var request any
	switch {
	case source == sourceNode:
		node := env.Request
		if m.Alerts {
			node.AlertAbove, node.AlertPodsAbove = m.alertAbove(MemoryAvailable),
				m.alertAbove(AllocatableMemoryAvailable)
		}
		request = &node
	case source == sourceNodefs:
		request = &world.MeasureFilesystem{Path: m.RootDir}
	case source == sourceContainerfs:
		request = &world.MeasureFilesystem{Path: m.LayersPath}
	case m.ImagePath == "" || now.Sub(m.InfoAt) >= infoPeriod:
		m.InfoAt, m.InfoAsked = now, true
		request = &runtimeapi.ImageFsInfoRequest{}
	default:
		request = &world.MeasureFilesystem{Path: m.ImagePath}
	}
	s.Op, s.AskedAt, s.NextAt = env.Effects.Issue(Owner, "", timeout, request), now, now.Add(period)
	return time.Time{}
}

// planAttempt observes the pods and then evicts one, and reports whether the attempt has ended.
func (m *Manager) planAttempt(env *Env) bool {
	a := m.Attempt
	if a.Op != 0 {
		return false
	}
	if m.Victim != nil { // see AdoptVictim
		m.Attempt = nil
		return true
	}
	if !a.Answered {
		a.noteCandidates(env.Candidates(m.Thresholds[a.Threshold].Signal.isForDisk()))
		a.Op = env.Effects.Issue(Owner, "", statsTimeout,
			&runtimeapi.ListPodSandboxStatsRequest{})
		return false
	}
	t := &m.Thresholds[a.Threshold]
	isForDisk := t.Signal.isForDisk()
	if isForDisk && !a.HasTrees {
		a.measureTrees(env)
		return false
	}
	m.Attempt = nil
	switch {
	case !m.needsVictim(t) || m.postpone(isForDisk, env) || m.mayHoldLayers(t):
		return true // what was lacking has been freed meanwhile, or is about to be
	case isForDisk && m.lacksMemory(): // memory comes first
		m.Sources[sourceNode].NextAt, m.DisksAfterMemory = env.Effects.Now(), true
		return true
	}
	first, found := m.first(a, a.knownOf(env.Candidates(isForDisk)), t.Signal)
	if !found {
		env.Effects.Log(world.LevelError, "eviction thresholds have been met, but no pods are active to "+
			"evict", "signal", string(t.Signal))
		return true
	}
	for i := range m.Thresholds {
		other := &m.Thresholds[i]
		if o, isObserved := m.Observed[other.Signal]; other.MetForGrace && isObserved {
			env.RecordAge(other.Signal, env.Effects.Now().Sub(o.AsOf))
		}
	}
	e := m.eviction(t, first, a.Usage[first.UID])
	env.Evict(first, e)
	m.UsageFailures = 0
	if isForDisk {
		m.LimitsWaitSince = time.Time{}
	}
	m.Victim = &Victim{UID: first.UID, Deadline: env.Effects.Now().Add(e.Grace + CleanupMax),
		HoldsDisk: isForDisk, Soft: e.Grace > immediateGrace}
	return true
}

func (a *Attempt) noteCandidates(candidates []Candidate) {
	a.Candidates = make(map[string]bool, len(candidates))
	for _, c := range candidates {
		a.Candidates[c.UID] = c.Idle
	}
}

// knownOf returns those of the present candidates that were candidates at the request for
// statistics. One that was idle then counts as idle.
func (a *Attempt) knownOf(candidates []Candidate) []Candidate {
	var known []Candidate
	for _, c := range candidates {
		if wasIdle, was := a.Candidates[c.UID]; was {
			c.Idle = c.Idle || wasIdle
			known = append(known, c)
		}
	}
	return known
}

// hastenVictim leaves the victim of a soft threshold no time to end if a hard one is met by the
// newest observation of a source: the node cannot wait for it. If a file system is short, and the
// victim is one of memory or processes, what can be removed is removed first. The kubelet waits: it
// observes nothing before the pod has ended.
func (m *Manager) hastenVictim(source int, env *Env) {
	v := m.Victim
	hard := slices.IndexFunc(m.Thresholds, func(t Threshold) bool {
		return t.Grace == 0 && m.sourceOf(t.Signal) == source && m.needsVictim(&t)
	})
	if !v.Soft || hard < 0 {
		return
	}
	if !v.HoldsDisk && (m.reclaimFirst(hard, env) || m.mayHoldLayers(&m.Thresholds[hard])) {
		return
	}
	v.Soft = false
	if at := env.Effects.Now().Add(immediateGrace + CleanupMax); at.Before(v.Deadline) {
		v.Deadline = at
	}
	env.Hasten(v.UID, immediateGrace)
}

// eviction returns how a pod is evicted for a threshold.
func (m *Manager) eviction(t *Threshold, c Candidate, usage *PodUsage) Eviction {
	e := Eviction{Signal: t.Signal, Grace: immediateGrace}
	if t.Grace > 0 {
		e.Grace = max(min(m.GraceMax, c.Grace), immediateGrace)
	}
	e.Message, e.Annotations = m.message(t, c.Pod, usage)
	return e
}

// PodEnded is called when nothing of a pod runs any more. It reports whether that ends an eviction.
func (m *Manager) PodEnded(uid string, now time.Time) bool {
	if m.Victim == nil || m.Victim.UID != uid {
		return false
	}
	if m.Victim.HoldsDisk {
		m.LayersHeldUntil = now.Add(layersHeldMax)
	}
	m.endVictim(now)
	return true
}

// AdoptVictim takes over a victim of an earlier agent, whose grace period was to end at a time: no
// other pod is evicted before it has ended, and has given back what it was evicted for.
func (m *Manager) AdoptVictim(uid string, graceEnds, now time.Time) {
	if most := now.Add(max(m.GraceMax, immediateGrace)); graceEnds.After(most) {
		graceEnds = most
	}
	deadline := graceEnds.Add(CleanupMax)
	if m.Victim == nil && now.Before(deadline) {
		m.Victim = &Victim{UID: uid, Deadline: deadline, HoldsDisk: true,
			Soft: graceEnds.Sub(now) > immediateGrace}
	}
}

func (m *Manager) endVictim(now time.Time) {
	m.Victim, m.VictimEndedAt = nil, now
	m.observeAgain(now)
}

// Undecided reports whether the node is to be observed, and was not yet.
func (m *Manager) Undecided() bool { return len(m.Thresholds) > 0 && !m.Decided }

// Adopt takes over the conditions of the Node that an earlier agent has left true: they end after a
// transition period of this agent, not at its start. The Node may be read long after that.
func (m *Manager) Adopt(conditions []v1.NodeCondition, bootedAt, now time.Time) {
	if m.Adopted || len(m.Thresholds) == 0 {
		return
	}
	m.Adopted = true
	for _, c := range conditions {
		if isPressure(c.Type) && c.Status == v1.ConditionTrue && m.LastMet[c.Type].Before(bootedAt) {
			m.noteMet(c.Type, bootedAt)
		}
	}
	m.updatePressure(now)
}
