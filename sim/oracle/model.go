package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// model is the true state of the node, built from facts: what is desired, what runs, and what is
// on the disk. Oracles read the model and never change it.
type model struct {
	pressure pressureModel
	opts     Options
	// allocatableBefore has what was allocatable before the configuration changed.
	allocatableBefore []v1.ResourceList
	pods              map[string]*pod // by UID: all that were ever desired, or were ever on the node
	podsInOrder       []*pod          // the same pods, in order of appearance
	fullNames         map[string]*fullName
	sandboxes         map[string]*sandbox
	containers        map[string]*container
	hashes            map[namedImage]string
	logLinks          map[string]*container   // by the names of the links to their logs
	cgroups           map[string]truth.Limits // by directory
	cgroupsSetAt      map[string]time.Time    // by directory, the last time
	objects           apiObjects              // of the API server
	criticalPods      []*pod                  // pods for which others may be pre-empted
	tiersBefore       *Tiers                  // before the last change of the configuration
	agentStartedAt    time.Time               // the latest start
	agentStarts       int                     // how many incarnations there were
	calmExcuse        string                  // the first excuse that was taken in a calm run
	agentDown         bool                    // no incarnation of the agent runs
	kubeletRuns       bool                    // a kubelet has the node, until the next agent
	incarnation       int                     // of agents and kubelets, as truth.Write has it
	healedAt          time.Time               // zero: faults may still apply
	now               time.Time
	periodicAt        map[string]time.Time // by what is repeated: the newest periodic call

	shutdown    machineShutdown
	plugins     pluginModel
	csi         csiModel
	volumeCalls volumeCalls
	volumes     volumeModel
	disks       diskModel
	images      privateImages
	// timedOutAt is when a call of a name last ended without an answer.
	timedOutAt map[string]time.Time
	// nextAllocatable is what is allocatable from the start of the next agent on; nil: as before. What
	// the agent before has sent arrives until then.
	nextAllocatable v1.ResourceList
	lock            lockRequests      // of this agent
	given           givenPods         // to this agent
	removals        containerRemovals // likewise
	runtime         runtimeReadiness  // as this agent knows it
	reads           readModel         // of objects of storage

	changedAt time.Time // the latest fact that the agent may have to react to

	sharedChangedAt time.Time // the same, of facts about no pod alone
	wroteNothing    string    // the latest file, cgroup or object that was written as it was
	wroteNothingAt  time.Time
	objectHistory   objectHistory // of the objects that volumes and variables are made of
	events          recordedEvents
	identities      identities
	certificates    certificateModel

	sandboxesListedAt, containersListedAt time.Time // when a complete list last reached the agent

	imageRemovalAskedAt time.Time              // when the agent last asked for one
	creates             map[createKey]*creates // see noteCreate
	imagesAbsent        map[string]bool        // those that were removed, or never there
	idleImages          []string               // that are present, unused, and named by no pod
	// imagesFreeSince is since when each image that is present could have been removed for an
	// eviction, and imagesPulledAt when one appeared that was absent.
	imagesFreeSince, imagesPulledAt map[string]time.Time
}

// fullName is a namespace and name, of which at most one pod may run.
type fullName struct {
	name string // NAMESPACE/NAME
	pods []*pod
}

// sandbox is a sandbox that exists, ready or not.
type sandbox struct {
	id            string
	pod           *pod
	attempt       uint32
	ready         bool
	readyAt       time.Time // when it has last become ready
	cgroup        string    // its directory
	ids           truth.IDs
	round         int      // the newest restart round started here; the fields below are of it
	started       []string // containers that were started here
	passedStartup []string // containers whose startup probe may have succeeded here
	completed     []string // containers of which a run here has exited with code 0
}

func newModel(opts Options) *model {
	if opts.BackoffMax <= 0 {
		opts.BackoffMax = 300 * time.Second
	}
	absent := map[string]bool{}
	for _, image := range opts.AbsentImages {
		absent[image] = true
	}
	return &model{given: newGivenPods(),
		opts: opts, pods: map[string]*pod{}, fullNames: map[string]*fullName{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		logLinks: map[string]*container{}, hashes: map[namedImage]string{},
		cgroups: map[string]truth.Limits{}, objects: newAPIObjects(),
		images:       newPrivateImages(),
		cgroupsSetAt: map[string]time.Time{}, imagesAbsent: absent,
		imagesFreeSince: map[string]time.Time{}, imagesPulledAt: map[string]time.Time{},
		pressure: newPressureModel(&opts.Pressure),
		events:   newRecordedEvents(), identities: newIdentities(), csi: newCSIModel(),
		volumeCalls: newVolumeCalls(), timedOutAt: map[string]time.Time{},
	}
}

// apply updates the model with a fact.
func (m *model) apply(f *truth.Fact) {
	m.now = f.Time
	if m.isChange(f) {
		m.noteChange(f)
	}
	if f.Kind == truth.WroteNothing {
		m.wroteNothing, m.wroteNothingAt = f.Path, f.Time
	}
	m.pressure.apply(m, f)
	m.plugins.apply(f)
	m.plugins.applyPlaces(f)
	m.csi.apply(f)
	m.volumes.apply(f)
	m.certificates.apply(f)
	m.disks.apply(m, f)
	m.applyUnmounted(f)
	switch f.Kind {
	case truth.SandboxCreated, truth.SandboxReady, truth.SandboxStopped, truth.SandboxRemoved:
		m.applySandbox(f)
	case truth.ContainerCreated, truth.ContainerStarted, truth.ContainerExited,
		truth.ContainerRemoved, truth.ContainerLost, truth.ContainerFound, truth.ContainerResized,
		truth.StopRequested:
		m.applyContainer(f)
	case truth.HandlerRequested, truth.HandlerEnded:
		m.applyHandler(f)
	case truth.ImageRemoved:
		m.imagesAbsent[f.Image] = true
		delete(m.imagesFreeSince, f.Image)
	case truth.ImagePulled:
		m.notePulled(f)
		if m.imagesAbsent[f.Image] {
			m.imagesPulledAt[f.Image] = f.Time
		}
		delete(m.imagesAbsent, f.Image)
	case truth.TokenIssued:
		m.objectHistory.apply(f)
	case truth.EventRecorded:
		m.applySetAsideEvent(f)
		m.removals.reported(f)
	case truth.CgroupCreated:
		m.cgroups[f.Path], m.cgroupsSetAt[f.Path] = f.Limits, f.Time
	case truth.CgroupRemoved:
		m.applyCgroupRemoved(f.Path)
	case truth.ObjectCreated, truth.ObjectUpdated, truth.ObjectDeleted:
		m.objectHistory.apply(f)
		m.applyObject(f)
	case truth.PathCreated, truth.PathWritten:
		m.applyPathCreated(f.Path)
		m.noteIntent(f)
	case truth.PathRemoved:
		m.applyPathRemoved(f.Path)
	case truth.PowerLost: // the latest writes and removals may be undone
		for _, p := range m.podsInOrder {
			p.hadPowerLoss = true
			for _, c := range p.containers {
				c.hadPowerLoss = true
			}
		}
		m.applyPathRemoved("/")
	}
	m.applyShutdown(f)
	m.identities.apply(f)
	m.applyUsageChange(f)
	m.events.apply(f, m.agentStartedAt)
}

func (m *model) applySandbox(f *truth.Fact) {
	s := m.sandboxes[f.SandboxID]
	if s == nil {
		s = &sandbox{id: f.SandboxID, pod: m.podOfFact(f), attempt: f.Attempt, cgroup: f.Cgroup,
			ids: f.IDs}
		m.sandboxes[s.id] = s
		s.pod.sandboxes = append(s.pod.sandboxes, s)
	}
	s.pod.changedAt = f.Time
	switch f.Kind {
	case truth.SandboxReady:
		s.ready, s.readyAt = true, f.Time
	case truth.SandboxStopped:
		s.ready = false
	case truth.SandboxRemoved:
		delete(m.sandboxes, s.id)
		s.pod.dropSandbox(s)
		if f.Cause == truth.CauseAdministrator {
			s.pod.applyManualRemoval(f.Time)
		}
	}
}

func (m *model) applyContainer(f *truth.Fact) {
	c := m.containers[f.ContainerID]
	if c == nil {
		c = m.newContainer(f)
		m.containers[c.id], m.logLinks[c.linkName] = c, c
		c.pod.containers = append(c.pod.containers, c)
		m.objects.containerOwners[c.id] = podIdentity{f.PodUID, c.podFullName}
	}
	c.pod.changedAt = f.Time
	switch f.Kind {
	case truth.ContainerCreated, truth.ContainerResized:
		c.limits, c.limitsHad = f.Limits, append(c.limitsHad, f.Limits)
	case truth.ContainerStarted:
		c.memoryUsage = f.Bytes
		c.applyStart(f.Time)
	case truth.ContainerExited:
		c.applyExit(f)
	case truth.ContainerLost:
		c.wasLost = true
	case truth.ContainerRemoved:
		byAgent := f.Cause != truth.CauseAdministrator
		_, wasShort := m.pressure.lastMet[v1.NodeDiskPressure]
		c.pod.collected = c.pod.collected || byAgent && c.pod.spec != nil &&
			(!c.pod.terminalAt.IsZero() || wasShort)
		if c.pod.collected && c.pod.terminalAt.IsZero() {
			c.pod.unreportedLostAt = f.Time
		}
		delete(m.containers, c.id)
		delete(m.removals.failing, c.id)
		if m.logLinks[c.linkName] == c {
			delete(m.logLinks, c.linkName)
		}
		if p := c.pod; p.spec != nil && p.hasExitedForGood() {
			p.endedBeforeRemoval = true
		}
		c.pod.dropContainer(c)
	case truth.StopRequested:
		if c.stopRequestedAt.IsZero() {
			c.stopRequestedAt, c.stopGraceSeconds = f.Time, f.GraceSeconds
		}
		m.noteKillStart(c, "StopContainer", f.Time)
		// The containers of a sandbox that has died are stopped to be restarted, too.
		if c.pod.spec == nil && c.pod.terminatingSince.IsZero() && c.hasNoKillingHandlers() &&
			c.sandbox != nil && c.sandbox.ready {
			c.pod.terminatingSince = c.killStartedAt
		}
	}
}

// podOfFact returns the pod of a fact.
func (m *model) podOfFact(f *truth.Fact) *pod {
	p := m.podByUID(f.PodUID)
	m.setFullName(p, f.PodNamespace, f.PodName)
	return p
}

func (m *model) podByUID(uid string) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{uid: uid, model: m, histories: map[string]*runHistory{}}
		m.pods[uid] = p
		m.podsInOrder = append(m.podsInOrder, p)
	}
	return p
}

// setFullName sets the full name of a pod that has none.
func (m *model) setFullName(p *pod, namespace, name string) {
	m.identities.names[podName{p.uid, namespace + "/" + name}] = true
	if p.fullName != nil {
		return
	}
	text := namespace + "/" + name
	full := m.fullNames[text]
	if full == nil {
		full = &fullName{name: text}
		m.fullNames[text] = full
	}
	full.pods = append(full.pods, p)
	p.fullName = full
}

// setDesired records that a manifest has a pod.
func (m *model) setDesired(now time.Time, spec *v1.Pod) {
	p := m.podByUID(string(spec.UID))
	if p.fullName != nil && p.fullName.name != spec.Namespace+"/"+spec.Name {
		p.fullName.pods = slices.DeleteFunc(p.fullName.pods, func(o *pod) bool { return o == p })
		p.fullName = nil // its UID is given to another name
	}
	m.setFullName(p, spec.Namespace, spec.Name)
	p.setDesired(now, spec)
}

func (m *model) unsetDesired(now time.Time, uid string) {
	if p := m.pods[uid]; p != nil {
		p.unsetDesired(now)
	}
}

// agentStarted begins an incarnation of the agent. The new incarnation cannot know that its
// predecessor was about to kill a container that is still desired.
func (m *model) agentStarted(now time.Time) {
	m.agentStartedAt, m.agentDown, m.kubeletRuns = now, false, false
	if m.nextAllocatable != nil {
		m.setAllocatable(m.nextAllocatable)
		m.nextAllocatable = nil
	}
	m.agentStarts++
	m.incarnation++
	m.pressure.agentStarted(m, now)
	m.plugins.agentStarted()
	clear(m.csi.inFlight)
	clear(m.csi.groupUntil)
	clear(m.csi.republished)
	m.volumeCalls.agentStarted()
	m.csi.stats = newCSIStatsModel()
	m.lock, m.removals, m.runtime = lockRequests{}, containerRemovals{}, runtimeReadiness{}
	m.given = newGivenPods()
	for _, p := range m.podsInOrder {
		if p.spec == nil {
			p.minGrace = min(p.minGrace, orphanGrace)
		}
		if p.removedByHand {
			p.countLost = true
		}
		for _, c := range p.containers {
			if p.spec != nil {
				c.killStartedAt = time.Time{}
			}
		}
	}
}

// agentKilled ends an incarnation of the agent. Counts of consecutive probe results are lost;
// results that were served are in the pod's record.
func (m *model) agentKilled(now time.Time) {
	m.agentDown = true
	for _, p := range m.podsInOrder {
		for _, c := range p.containers {
			for _, h := range c.handlers {
				switch {
				case h.probe == nil:
				case h.kind != readinessProbe || c.servedReadiness != resultSuccess ||
					m.anyFaultPossible(c.startedAt, now, recordCalls...):
					h.results.applyAgentRestart(now, resultUnknown, c.servedReadiness)
				default:
					h.results.applyAgentRestart(now, c.servedReadiness)
				}
			}
		}
	}
}

// heal begins the phase in which the node has to settle.
func (m *model) heal(now time.Time) {
	m.healedAt = now
	for _, p := range m.podsInOrder {
		p.servedCorrectly, p.servedProblem = false, ""
	}
}

func (m *model) applyPathCreated(path string) {
	p, dir := m.ownerOfPath(path)
	if p == nil {
		return
	}
	for _, have := range p.dirs {
		if have == dir {
			return
		}
	}
	p.dirs = append(p.dirs, dir)
}

func (m *model) applyPathRemoved(path string) {
	if p, dir := m.ownerOfPath(path); p != nil {
		if dir == path {
			p.dropDir(dir)
		}
		return
	}
	for _, p := range m.podsInOrder {
		for i := len(p.dirs) - 1; i >= 0; i-- {
			if isWithin(p.dirs[i], path) {
				p.dropDir(p.dirs[i])
			}
		}
	}
}

// ownerOfPath returns the pod in whose directory, or directory of logs, a path is, and that
// directory; nil if the path is in neither.
func (m *model) ownerOfPath(path string) (*pod, string) {
	if uid, ok := childName(m.opts.PodsDir, path); ok {
		return m.podByUID(uid), m.opts.PodsDir + "/" + uid
	}
	if name, ok := childName(m.opts.LogsDir, path); ok {
		if _, uid, ok := cutLast(name, "_"); ok {
			return m.podByUID(uid), m.opts.LogsDir + "/" + name
		}
	}
	return nil, ""
}

// childName returns the first name of a path below a directory.
func childName(dir, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, dir)
	if !ok || dir == "" || len(rest) < 2 || rest[0] != '/' {
		return "", false
	}
	name, _, _ := strings.Cut(rest[1:], "/")
	return name, name != ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// isWithin reports whether a path is the other path or below it.
func isWithin(path, above string) bool {
	return path == above || above == "/" ||
		len(path) > len(above) && path[len(above)] == '/' && strings.HasPrefix(path, above)
}
