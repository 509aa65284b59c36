package oracle

import (
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// pod is the true state of the pod of one UID.
type pod struct {
	hadPowerLoss bool // the machine lost power while the pod had anything on it

	uid      string
	fullName *fullName
	model    *model

	spec             *v1.Pod          // of the newest manifest; nil: not desired
	timesDesired     int              // how often a manifest with this UID appeared or was rewritten
	timesRemoved     int              // how often the manifest was removed
	desiredAt        time.Time        // when that happened last
	removedAt        time.Time        // when that happened last
	specChanged      bool             // it was desired with specs that differ not only by isDebugged
	loosestPolicy    v1.RestartPolicy // the loosest restart policy of all specs; empty: never desired
	minGrace         time.Duration    // the shortest grace period of all specs
	initLists        [][]string       // the different lists of init containers of all specs
	sidecarPositions map[string]int   // positions of the sidecars of the newest spec, by name

	sandboxes      []*sandbox   // that exist, in order of creation
	containers     []*container // that exist, in order of creation
	liveContainers int          // containers of which a process runs
	dirs           []string     // those of the pod's directories that exist
	histories      map[string]*runHistory
	changedAt      time.Time // when its sandboxes or containers last changed
	reactAt        time.Time // the latest fact about it that the agent may have to react to
	servedTerminal v1.PodPhase
	endedBefore    bool        // it was terminal, or to become so, when its manifest was removed
	servedPhase    v1.PodPhase // in which it was served last
	rejected       bool        // for a valid reason
	preempted      bool        // as reported to the API server
	shutDown       bool        // a shutdown of the machine has reached its group
	terminalAt     time.Time   // when a terminal phase was first reported to the API server
	externalPhase  v1.PodPhase // the terminal phase that another client reported before the agent did

	firstStartedAt    time.Time // when its first container was started; zero: none was
	lastStartedAt     time.Time // when a container of it was last started
	lackedResourcesAt time.Time // when resources for it were last missing, if it is critical
	cachedRequests    resourceRequests
	requestsOf        *v1.Pod // the spec that cachedRequests was computed from

	specs            []*v1.Pod             // every different one it had
	asked            map[int64]askedResize // by generation, if it is a pod of the API server
	grantedSpec      *v1.Pod               // the last one that a resize was allocated for; nil: none
	static           bool                  // its first spec came from a manifest
	requiredRound    int                   // the newest restart round that an exit must have started
	possibleRound    int                   // the newest restart round that an exit may have started
	roundCause       *container            // the container whose exit began that round
	terminatingSince time.Time             // when its termination was first seen, if it is not desired
	servedStart      timeRange             // its start time as served
	// When it was desired for the first time since it last was not, and which incarnation of the agent
	// is the first that may have known of it.
	firstDesiredAt   time.Time
	firstIncarnation int
	maxGrace         time.Duration // the longest grace period of all specs and their probes

	removedByHand   bool      // an administrator has removed a sandbox of it
	removedByHandAt time.Time // the last time
	// endedRuns are the containers whose last run had ended for good when its record was removed,
	// which the agent may or may not have forgotten since.
	endedRuns []string
	countLost bool // and no agent knows the containers that were in it
	// endedBeforeRemoval is set if all its containers had ended for good before a record of them was
	// removed, and none has started since.
	endedBeforeRemoval bool
	collected          bool // the agent has removed a container of it for the space, after its end
	// unreportedLostAt is when the agent last did so before the API server had the end: an agent that
	// starts later knows of the run what was reported.
	unreportedLostAt time.Time

	sandboxesCreated []time.Time // the newest ones, as far as they count for sandboxRate

	usages []*usage        // of what has a limit
	peaks  map[string]peak // of what counts for limits of ephemeral-storage
	// When the agent has evicted the pod for the node, how long it may have to end at most, and the
	// message of the Event.
	pressureEvictedAt time.Time
	pressureGraceMax  time.Duration
	pressureMessage   string
	// When the agent has evicted the pod for a limit of its own, and when a container or volumes of it
	// were last removed since, and the runtime last freed a writable layer of it.
	limitEvictedAt     time.Time
	limitFreedAt       time.Time
	limitLayersFreedAt time.Time
	memoryOverflow     string // how far a volume in memory exceeds its limit

	// Panics of the agent over the pod in a row, until when it is to be set aside, and whether an
	// event has said so since the last one.
	panics        int
	setAsideUntil time.Time
	panicReported bool

	servedCorrectly bool   // since the heal, a served status was right
	servedProblem   string // what was wrong in the latest status that should have been right
	isServed        bool   // the latest response has it
	isUnserved      bool   // the latest response lacks it
}

// runHistory is what remains known of the runs of a container after their records are removed.
type runHistory struct {
	last           *container // the latest run that has exited
	maxAttempt     int64      // the highest attempt of which a start was at least tried; -1: none
	maxServedCount int32      // the highest restart count that was served
}

// historyOf returns the run history of a container.
func (p *pod) historyOf(name string) *runHistory {
	h := p.histories[name]
	if h == nil {
		h = &runHistory{maxAttempt: -1}
		p.histories[name] = h
	}
	return h
}

// wasRemoved reports whether the manifest was gone at some time. Whether the agent has noticed
// cannot be known: the run history may continue, or may have started over.
func (p *pod) wasRemoved() bool { return p.timesRemoved > 0 }

// noteChange notes which containers ran when their spec changed, for all that the agent had listed.
func (p *pod) noteChange() {
	listedAt := p.model.containersListedAt
	for _, c := range p.containers {
		isListed := c.state == exited && !c.exitedAt.Add(listReplyBound).After(listedAt) &&
			!p.model.faultPossible("ListContainers", c.exitedAt, listedAt) // it may show what was before
		c.ranAtChange = c.ranAtChange || !isListed
	}
}

func (p *pod) setDesired(now time.Time, spec *v1.Pod) {
	if p.spec == nil && p.timesDesired > 0 {
		p.servedTerminal, p.servedStart, p.requiredRound, p.roundCause = "", timeRange{}, 0, nil
		if len(p.containers) == 0 {
			clear(p.histories) // even if an administrator removed the records
		}
	}
	if p.spec == nil {
		p.firstDesiredAt, p.firstStartedAt = now, time.Time{}
		if p.firstIncarnation = p.model.agentStarts; p.model.agentDown {
			p.firstIncarnation++
		}
	}
	p.terminatingSince = time.Time{}
	p.recordSpec(spec)
	p.noteAsked(spec, now)
	p.maxGrace = max(p.maxGrace, maxGraceOf(spec))
	if len(p.specs) == 1 && p.timesDesired == 0 && p.isCritical() {
		p.model.criticalPods = append(p.model.criticalPods, p)
	}
	if s := &p.model.shutdown; s.underWay && p.shutdownGroup() < len(s.startsAt) {
		p.shutDown = true
	}
	previous := p.spec
	p.spec, p.desiredAt = spec, now
	p.timesDesired++
	if previous != nil && !reflect.DeepEqual(previous.Spec, spec.Spec) {
		p.specChanged = p.specChanged || !isDebugged(previous, spec)
		p.noteChange()
		if p.static { // the newest manifest ends up running (upstream #107733)
			p.servedTerminal = ""
		}
	}
	p.loosestPolicy = looserPolicy(p.loosestPolicy, spec.Spec.RestartPolicy)
	grace := defaultGrace
	if s := spec.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if p.timesDesired == 1 || grace < p.minGrace {
		p.minGrace = grace
	}
	p.sidecarPositions = sidecarPositionsOf(spec)
	var inits []string
	for i := range spec.Spec.InitContainers {
		inits = append(inits, spec.Spec.InitContainers[i].Name)
	}
	for _, list := range p.initLists {
		if slices.Equal(list, inits) {
			return
		}
	}
	p.initLists = append(p.initLists, inits)
}

// isDebugged reports whether a pod has only got ephemeral containers since an earlier spec: what is
// true of the others stays so.
func isDebugged(before, after *v1.Pod) bool {
	spec := after.Spec
	spec.EphemeralContainers = before.Spec.EphemeralContainers
	return reflect.DeepEqual(before.Spec, spec)
}

func (p *pod) unsetDesired(now time.Time) {
	if p.spec != nil {
		p.endedBefore = p.servedTerminal != "" || p.hasExitedForGood()
	}
	m := p.model
	isNew := m.agentStartedAt.After(p.firstDesiredAt) &&
		now.Sub(m.agentStartedAt) < manifestNoticeBound
	if m.agentDown || p.isUnserved || isNew {
		p.minGrace = min(p.minGrace, orphanGrace) // the agent may never have heard of the pod
	}
	p.spec, p.removedAt, p.terminatingSince = nil, now, time.Time{}
	p.timesRemoved++
}

// orphanGrace is the grace period of a pod that only the runtime has.
const orphanGrace = time.Second

// looserPolicy returns the policy that allows more restarts. The empty policy allows none.
func looserPolicy(a, b v1.RestartPolicy) v1.RestartPolicy {
	order := []v1.RestartPolicy{"", v1.RestartPolicyNever, v1.RestartPolicyOnFailure}
	rank := func(p v1.RestartPolicy) int {
		if i := slices.Index(order, p); i >= 0 {
			return i
		}
		return len(order)
	}
	if rank(a) >= rank(b) {
		return a
	}
	return b
}

// isInitContainer reports whether a container is an init container in any spec of the pod.
func (p *pod) isInitContainer(name string) bool {
	for _, inits := range p.initLists {
		if slices.Contains(inits, name) {
			return true
		}
	}
	return false
}

// newestSandbox returns the sandbox with the highest attempt; nil if there is none.
func (p *pod) newestSandbox() *sandbox {
	var newest *sandbox
	for _, s := range p.sandboxes {
		if newest == nil || s.attempt >= newest.attempt {
			newest = s
		}
	}
	return newest
}

// newestRun returns the newest run of a container that has a record; nil if there is none. A
// container that was created late in an old sandbox and never ran does not count: it can never
// run.
func (p *pod) newestRun(name string) *container {
	var newest *container
	current := p.newestSandbox()
	for _, c := range p.containers {
		stray := c.state == created && (c.sandbox == nil || c.sandbox != current)
		if c.name == name && !stray && (newest == nil || c.attempt >= newest.attempt) {
			newest = c
		}
	}
	return newest
}

// liveRun returns a run of a container whose process runs; nil if there is none.
func (p *pod) liveRun(name string) *container {
	for _, c := range p.containers {
		if c.name == name && c.state == running {
			return c
		}
	}
	return nil
}

// isOfNewestSpec reports whether a container was created from the newest spec.
func (p *pod) isOfNewestSpec(c *container) bool {
	container := containerOf(p.spec, c.name)
	return container != nil && (c.hash == "" || c.hash == p.model.hashOf(container))
}

// mustBeReplaced reports whether a running container is not of the newest spec. An init container
// that runs to completion is left to its work.
func (p *pod) mustBeReplaced(c *container) bool {
	return !p.isOfNewestSpec(c) && !p.runsToCompletion(c)
}

// runsToCompletion reports whether a container is an init container of the spec, and no sidecar.
func (p *pod) runsToCompletion(c *container) bool {
	return containerOf(p.spec, c.name) != nil && p.isInitContainer(c.name) &&
		p.sidecarPosition(c.name) == 0
}

func (p *pod) dropSandbox(s *sandbox) {
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(o *sandbox) bool { return o == s })
}

// dropContainer removes a container from the pod. If the manifest was once removed, the run
// history goes with the container's record: the agent may start over.
func (p *pod) dropContainer(c *container) {
	p.containers = slices.DeleteFunc(p.containers, func(o *container) bool { return o == c })
	if c.state == running {
		p.liveContainers--
	}
	if h := p.histories[c.name]; h != nil && p.wasRemoved() && h.last == c {
		delete(p.histories, c.name)
		if c.state == exited && p.spec != nil && p.isFinalRun(c) {
			p.endedRuns = append(p.endedRuns, c.name)
		}
	}
}

// applyManualRemoval records that an administrator removes a sandbox with its containers. An
// agent that never listed them starts over with its counts; a terminal phase stays terminal.
func (p *pod) applyManualRemoval(now time.Time) {
	p.removedByHand, p.removedByHandAt, p.requiredRound = true, now, 0
	if m := p.model; m.agentDown || !m.containersListedAt.After(m.agentStartedAt) {
		p.countLost = true
	}
	for _, h := range p.histories { //ordered: whether there is one
		if h.last != nil && !p.model.containersListedAt.After(h.last.startedAt.Add(listReplyBound)) {
			p.countLost = true // the agent may not know that it was started
		}
	}
}

func (p *pod) dropDir(dir string) {
	p.dirs = slices.DeleteFunc(p.dirs, func(d string) bool { return d == dir })
}

func (p *pod) String() string {
	if p.fullName == nil {
		return "uid " + p.uid
	}
	return p.fullName.name + " (uid " + p.uid + ")"
}
