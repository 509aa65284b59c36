package pod

import (
	"slices"
	"time"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/podcertificate"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Node holds the facts about the node that the plans of all its pods need.
type Node struct {
	criconfig.Node // what the messages to the runtime depend on

	Name           string        `json:"name"`
	LogLinksDir    string        `json:"logLinksDir"`
	RuntimeTimeout time.Duration `json:"runtimeTimeout"` // of one request to the runtime
	BackoffMax     time.Duration `json:"backoffMax"`     // between restarts of a container
	Seed           uint64        `json:"seed"`           // spreads first probes and token renewals
	// NoStorageLimits reports that limits of what pods keep on the node's disks are not enforced
	// (localStorageCapacityIsolation is false).
	NoStorageLimits bool `json:"noStorageLimits,omitempty"`
	// RestartAllContainers reports that an exit may restart all containers of a pod, by a rule
	// (KEP-5532).
	RestartAllContainers bool `json:"restartAllContainers"`
	// PodCertificates reports that certificates are requested for volumes (feature gate
	// PodCertificateRequest).
	PodCertificates bool          `json:"podCertificates,omitempty"`
	IDs             userns.Layout `json:"ids"` // of pods with a user namespace of their own

	Wall timer.WallClock `json:"wall"` // the dates of the agent's times
}

// Env is the input of a plan besides the pod.
type Env struct {
	Node      *Node
	Effects   *op.Effects
	Images    *image.Store
	Objects   *objectcache.Store // objects watched at the API server; nil without an API server
	CSI       CSI
	Devices   Devices
	Disks     Disks
	Runtime   *runtime.Runtime
	Enqueue   func(timer.Key) // enqueues another component for planning
	NameTaken bool            // another pod of the same full name still runs
	// CountRefusal counts that a pod exceeds a bound, by its name in package budget; nil to count
	// nothing.
	CountRefusal func(name string)
	// CountRejection counts that a pod ends as a rejected one, by the reason; nil to count nothing.
	CountRejection func(reason string)
	// CountImageRequest counts a container's request for an image, CountShortenedSleep a hook's sleep
	// that did not last; nil to count nothing.
	CountImageRequest   func(policy v1.PullPolicy, result *image.Result)
	CountShortenedSleep func()
	// NoteImageUse notes that a container which is created now uses the image with an ID; nil to note
	// nothing.
	NoteImageUse func(id string)
	// CountVolumeOperation counts how long an operation on a volume took; nil to count nothing.
	CountVolumeOperation func(plugin volume.Plugin, operation VolumeOperation, took time.Duration,
		failed bool)
	// CountResize counts an attempt to carry out a resize; nil to count nothing.
	CountResize func(took time.Duration, succeeded bool)
	// RuntimeNotReady is why no sandbox or container can be created now, NetworkNotReady why no
	// sandbox with a network namespace of its own can be created; each is empty if that is possible.
	// Running containers keep running, and terminations go on.
	RuntimeNotReady, NetworkNotReady string
	MachineShutsDown                 bool
	// LayersApart reports that writable layers are not, or may not be, in the file system of the node.
	LayersApart       bool
	CleanupInProgress bool // housekeeping is removing a directory or cgroup of this UID
	// AllocatedIDs returns the ranges of host IDs that are allocated to other pods than the one with
	// the UID. Without sandboxes, ranges that only a sandbox has are left out.
	AllocatedIDs func(uid string, sandboxes bool) []userns.Range
	// AreIDsKnown reports whether the ranges of all other pods are known.
	AreIDsKnown func(uid string) bool
	// ObjectOwner returns the UID of the pod that has the sandbox or container with an ID; empty if
	// none is known.
	ObjectOwner func(id string) string
	// RecordedAmounts returns what a container of the pod had when that was recorded last; nil if
	// nothing is recorded.
	RecordedAmounts func(uid, container string) (allocation.Amounts, bool)
	// RecordedWhole returns what the pod as a whole had then; nil if that was not recorded.
	RecordedWhole func(uid string) *v1.ResourceRequirements
	// MustWaitForRecord reports whether a pod has to wait with its sandbox until it is recorded what
	// is allocated to it, and has the pod planned then; nil if none has to. Otherwise an agent that
	// is started after a resize of the pod would take what that asks for as allocated.
	MustWaitForRecord func(uid string) bool
	// MustWaitForTier reports whether a pod has to wait with its cgroup until those above it are set,
	// and has the pod planned then; nil if none has to.
	MustWaitForTier func(uid string, class v1.PodQOSClass) bool
}

const (
	fsTimeout     = 2 * time.Minute
	exitedRunsMax = 1 // of a container (--maximum-dead-containers-per-container of the kubelet)
	stageStepsMax = 4 // a plan may go through all stages, and back once
)

// Plan issues the operations that the pod needs now, and returns when it must be called again even
// if no event arrives; the zero time means never. Plan can be called at any time and any number of
// times: an operation in flight is a fact and is not issued twice.
func (p *Pod) Plan(env *Env) time.Time {
	w := wakeTimer{now: env.Effects.Now()}
	p.countWork(env)
	p.watchReferences(env)
	if p.Watches.Problem != "" && !p.Watches.Complete {
		w.waitUntil(w.now.Add(watchRetryPeriod))
	}
	p.checkObjectBytes(env, &w)
	p.watchVolumes(env, &w)
	p.restoreRound()
	p.watchGroup(env, &w)
	for range stageStepsMax {
		before := p.Stage
		switch p.Stage {
		case Syncing:
			p.syncPod(env, &w)
		case Terminating:
			p.syncTerminating(env, &w)
		case Terminated:
			p.syncTerminated(env, &w)
		}
		if p.Stage == before {
			break
		}
		if before == Terminated && p.Stage == Syncing { // its share of the cgroups above is counted first
			w.wakeAt = w.now
			break
		}
		env.Effects.Log(world.LevelDebug, "pod stage", "pod", p.FullName(), "podUID", p.UID,
			"stage", string(p.Stage), "reason", p.Termination.Reason)
	}
	p.loadIDs(env, &w)
	p.watchReferences(env) // again: a pod that is Terminated now stops its watches
	p.watchVolumes(env, &w)
	p.repeatEvents(env, &w)
	return w.wakeAt
}

// workOfContainer is what each container counts as work of a step, besides what it builds.
const workOfContainer = 1 << 10

// countWork counts the containers of the pod, those of its spec and those that the runtime has.
func (p *Pod) countWork(env *Env) {
	containers := len(p.Containers)
	if p.Spec != nil {
		s := &p.Spec.Spec
		containers += len(s.Containers) + len(s.InitContainers) + len(s.EphemeralContainers)
	}
	env.Effects.CountWork(containers * workOfContainer)
}

// wakeTimer collects the times that a plan waits for; wakeAt is the soonest.
type wakeTimer struct {
	now    time.Time
	wakeAt time.Time
}

// waitUntil reports whether a time is still to come. If it is, Plan is called again then.
func (w *wakeTimer) waitUntil(at time.Time) bool {
	if !w.now.Before(at) {
		return false
	}
	w.wakeAt = timer.Soonest(w.wakeAt, at)
	return true
}

// isSettled reports whether the pod's observations can be acted on: they were requested after its
// last failed operation, and no creating operation is in flight.
func (p *Pod) isSettled() bool { return p.Observed && p.StaleSince.IsZero() && p.Op == 0 }

// syncPod plans the stage Syncing: it brings the pod closer to its spec. Each step depends on the
// steps before it, and a step that is not complete ends the plan:
//
//  1. Running containers are inspected and maintained, whatever else is in flight.
//  2. All further steps need settled observations.
//  3. A pod that has completed, or is past its deadline, terminates.
//  4. A pod without a usable sandbox gets one, and nothing else before it.
//  5. Containers that must not run are stopped, and leftovers removed, before others start.
//  6. The pod's cgroup has its limits before its containers start, and running containers get the
//     resources that are allocated to them (resize.go).
//  7. A pod over a limit of its storage is evicted, and its volumes are kept up to date. Step 6 may
//     fail for as long as the pod runs, so this does not wait for its success: not while it is
//     backed off, if containers run, and otherwise only until its operation has completed.
//  8. Containers start when the volumes are ready and the runtime is.
func (p *Pod) syncPod(env *Env, w *wakeTimer) {
	if !p.Observed || p.Spec == nil || !p.loadRecord(env, w) {
		return
	}
	p.restoreRemovedRuns()
	p.issueInspections(env, w)
	p.startRoundOnExit(env)
	p.maintainRunning(env, w)
	if !p.isSettled() {
		return
	}
	if p.isBackingOff("", w) {
		if p.HasLiveContainers() {
			p.syncStorage(env, w) // they need their tokens and updates, whatever the pod waits for
		}
		return
	}
	if p.hasCompleted() {
		p.startTermination(Termination{Reason: "Completed", Phase: p.TerminalPhase(),
			Grace: p.GracePeriod()}, env.Effects.Now())
		return
	}
	if p.isPastActiveDeadline(w) && !p.HasUnknownExits() { // the pod may have completed before
		p.recordEvent(env, "", normal, reasonDeadline, messageDeadline)
		p.startTermination(Termination{Reason: reasonDeadline, Message: messageDeadline,
			Phase: v1.PodFailed, Grace: p.GracePeriod()}, env.Effects.Now())
		return
	}
	sandbox := p.CurrentSandbox()
	if sandbox != nil && sandbox.Ready && !p.areIDsKnown(sandbox) {
		return
	}
	if sandbox == nil || !sandbox.Ready || p.needsIP() && sandbox.LacksIP ||
		!p.hasMatchingIDs(sandbox, env) {
		if p.enforceStorageLimits(env, w); p.Stage == Syncing {
			p.replaceSandbox(env, w)
		}
		return
	}
	if p.stopUnexpected(sandbox, env, w) {
		p.enforceStorageLimits(env, w)
		return
	}
	p.removeLeftovers(env, w)
	p.releaseUnreferencedImages(env)
	mustWait := p.syncResources(sandbox, env, w)
	ready := p.syncStorage(env, w)
	if p.Stage != Syncing { // it was evicted
		return
	}
	if ready && !mustWait && !p.waitsForRuntime(env, false) {
		p.syncContainers(env, w)
	}
	p.removeOldRuns(env, w)
}

// maintainRunning runs the hooks and probes of running containers and stops those that must be
// stopped. It does not wait for Pod.Op: a container is probed while another one is being created.
func (p *Pod) maintainRunning(env *Env, w *wakeTimer) {
	p.runPostStartHooks(env, w)
	p.runProbes(env, w)
	p.stopUnhealthy(env, w)
	p.persistRecord(env, w)
	p.stopSuperseded(env, w)
}

const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// isPastActiveDeadline reports whether the pod has been active for longer than
// activeDeadlineSeconds.
func (p *Pod) isPastActiveDeadline(w *wakeTimer) bool {
	limit := p.Spec.Spec.ActiveDeadlineSeconds
	return limit != nil && !w.waitUntil(p.StartTime.Add(seconds(*limit)))
}

// removeLeftovers removes containers that were never started and never will be.
func (p *Pod) removeLeftovers(env *Env, w *wakeTimer) {
	for i := range p.Containers {
		if c := &p.Containers[i]; p.isLeftover(c) {
			p.removeContainer(c, env, w)
		}
	}
}

// replaceSandbox creates a sandbox if no current one is usable. The containers in old sandboxes are
// stopped first and their networks torn down, so that two sandboxes of a pod never run side by
// side. A new sandbox is only created if some container has to run, which depends on how all of
// them have exited.
func (p *Pod) replaceSandbox(env *Env, w *wakeTimer) {
	if p.stopAllContainers(env, w) || p.HasUnknownExits() || p.stopSandboxes(env, w) ||
		!p.needsSandbox() || w.waitUntil(p.SandboxLosses.NotBefore) {
		return
	}
	p.noteNameConflict(env)
	if env.NameTaken || env.CleanupInProgress || p.WaitsForBudget() || !p.canConfigureSandbox(env) ||
		p.waitsForRuntime(env, true) {
		return
	}
	var attempt uint32
	if last := p.CurrentSandbox(); last != nil {
		attempt = last.Attempt + 1
	}
	handler, ok := p.runtimeHandler(env)
	if !ok || !p.allocateIDs(handler, env, w) ||
		p.setCgroup(nil, attempt, env) || env.MustWaitForRecord != nil && env.MustWaitForRecord(p.UID) {
		return
	}
	p.recordSandboxEvents(env)
	p.SandboxAttempt = attempt
	p.LogDirs, p.DirCreated = nil, false // may have been removed together with the old sandbox
	p.MessageFiles = nil
	p.Storage.reset()
	p.Op = env.Effects.Issue(p.Key(), "", env.Node.RuntimeTimeout, &runtimeapi.RunPodSandboxRequest{
		Config:         p.newSandboxConfig(attempt, nil, env),
		RuntimeHandler: handler,
	})
	p.renewCredentials(env, w) // requests run side by side with the creation of the sandbox
}

// noteNameConflict records whether the pod waits for another pod of its full name, and logs that
// once.
func (p *Pod) noteNameConflict(env *Env) {
	if env.NameTaken && !p.WaitingForName {
		env.Effects.Log(world.LevelWarning, "another pod of the same name still runs: waiting for its "+
			"termination", "pod", p.FullName(), "podUID", p.UID)
	}
	p.WaitingForName = env.NameTaken
}

// waitsForRuntime reports whether the pod has to wait until the runtime is ready, and records why.
// The network only matters for a new sandbox.
func (p *Pod) waitsForRuntime(env *Env, sandbox bool) bool {
	before := p.RuntimeWaitReason
	p.RuntimeWaitReason = env.RuntimeNotReady
	if p.RuntimeWaitReason == "" && sandbox && !p.Spec.Spec.HostNetwork {
		p.RuntimeWaitReason = env.NetworkNotReady
		if p.RuntimeWaitReason != "" && p.RuntimeWaitReason != before {
			p.recordEvent(env, "", warning, "NetworkNotReady", "%s", p.RuntimeWaitReason)
		}
	}
	return p.RuntimeWaitReason != ""
}

// stopUnexpected stops running containers that do not belong to the current sandbox and spec: those
// of an older sandbox, those that the spec does not name, those created from another spec, and
// those in state Unknown. It reports whether there are any.
func (p *Pod) stopUnexpected(sandbox *Sandbox, env *Env, w *wakeTimer) bool {
	found := false
	for i := range p.Containers {
		c := &p.Containers[i]
		belongs := c.State == Running && c.SandboxID == sandbox.ID && !p.mustBeReplaced(c)
		if !c.isLive() || belongs {
			continue
		}
		found = true
		reason := ""
		switch {
		case c.State == Unknown:
			reason = stopReasonUnknownState
		case p.specContainer(c.Name) != nil && p.mustBeReplaced(c):
			reason = stopReasonChanged
		}
		p.stopContainer(c, p.GracePeriod(), reason, env, w)
	}
	return found
}

// mustBeReplaced reports whether a container is not of the current spec and must not stay. An init
// container that runs to completion stays: its work would be cut short, and what it has done is not
// undone (computeInitContainerActions in pkg/kubelet/kuberuntime/kuberuntime_container.go).
func (p *Pod) mustBeReplaced(c *Container) bool {
	return !p.matchesSpec(c) && p.roleOf(c.Name) != Init
}

// isOutdated reports whether a container was created from another spec than the current one, or
// was stopped because it was.
func (p *Pod) isOutdated(c *Container) bool { return !p.matchesSpec(c) || c.isStoppedAsChanged() }

// isStoppedAsChanged reports whether a container ran when its spec changed, and was stopped for
// that, as for a resize that demands it. Such a container runs again whatever its restart policy,
// also if its spec is changed back before it has exited (the kubelet's computePodActions decides on
// the start of the next run together with the stop). One that had exited before is restarted only
// by its policy (ShouldContainerBeRestarted in pkg/kubelet/container/helpers.go): the API server
// refuses the status of another run of a container that is never restarted.
func (c *Container) isStoppedAsChanged() bool {
	return c.Stop != nil && (c.Stop.Reason == stopReasonChanged || c.Stop.Reason == stopReasonResize)
}

// matchesSpec reports whether a container was created from the current spec.
func (p *Pod) matchesSpec(c *Container) bool {
	container := p.specContainer(c.Name)
	return container != nil && (c.Hash == "" || c.Hash == containerHash(container))
}

// syncTerminating stops all containers and sandboxes, and then moves the pod to Terminated. A
// container whose creation is in flight is waited for, and stopped once it is known.
func (p *Pod) syncTerminating(env *Env, w *wakeTimer) {
	if !p.Observed {
		return
	}
	if p.Op == 0 {
		p.EnvFiles = nil
	}
	p.releaseAllImages(env)
	p.issueInspections(env, w)
	p.refreshVolumes(env, w)
	if p.Record.Loaded {
		p.runProbes(env, w)
	}
	p.persistRecord(env, w)
	p.enforceStorageLimits(env, w)
	if p.stopAllContainers(env, w) || !p.isSettled() || !p.NoLongerDesired && p.HasUnknownExits() {
		return // the exits of a pod that is no longer desired decide nothing and are not awaited
	}
	if p.stopSandboxes(env, w) || !p.isTerminationDurable() && p.Record.Failures == 0 {
		return // if the record cannot be written, the pod's resources are released all the same
	}
	p.Stage, p.IDs, p.EndedAt = Terminated, userns.Range{}, env.Effects.Now()
	p.Storage.Certificates = podcertificate.Set{} // with the keys; no volume needs them any more
}

// syncTerminated removes the resources of a pod that is no longer desired: containers, then
// directories and cgroups, then sandboxes. Sandboxes are removed last, because their record tells
// an agent that was killed halfway that the pod has resources to remove. A record that the runtime
// fails to remove is retried for ever, but nothing waits for it.
func (p *Pod) syncTerminated(env *Env, w *wakeTimer) {
	if p.HasLiveContainers() || !p.areSandboxesDown() {
		p.Stage = Terminating // an operation of unknown outcome has taken effect late
		p.Storage.ReleaseSteps, p.OnlyRuntimeRecordsLeft = 0, false
		p.keepRuns()
		return
	}
	p.issueInspections(env, w)
	if p.hasOutlivedShutdown(env) {
		if p.isSettled() && p.Record.Op == 0 {
			p.runAgain()
		}
		return
	}
	if !p.NoLongerDesired {
		p.persistRecord(env, w)
		p.removeIDs(env, w)
		if p.isSettled() && !p.isBackingOff("", w) && !p.releaseVolumes(env) {
			p.removeOldRuns(env, w)
			p.removeReclaimed(env, w)
			p.removeCgroups(env)
		}
		return
	}
	if !p.isSettled() || p.Record.Op != 0 || p.isBackingOff("", w) {
		return
	}
	for i := range p.Containers {
		p.removeContainer(&p.Containers[i], env, w)
	}
	if p.hasRemovableContainers() || p.releaseVolumes(env) || p.removeDirs(env) ||
		p.removeCgroups(env) {
		return
	}
	if len(p.Containers) == 0 {
		for i := range p.Sandboxes {
			p.removeSandbox(&p.Sandboxes[i], env, w)
		}
	}
	p.OnlyRuntimeRecordsLeft = p.OnlyRuntimeRecordsLeft || p.isRemovalRefused()
	p.FullyRemoved = len(p.Sandboxes) == 0 && len(p.Containers) == 0
}

// removalAttemptsMax is how many failed removals of a container or sandbox, over half a minute, end
// the wait for its removal. Some removals never succeed: the runtime has lost the object that its
// record is about.
const removalAttemptsMax = 6

// hasRemovableContainers reports whether the pod has containers whose removal has not failed too
// often.
func (p *Pod) hasRemovableContainers() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Failures < removalAttemptsMax
	})
}

// isRemovalRefused reports whether the removal of a container or sandbox of the pod has failed too
// often.
func (p *Pod) isRemovalRefused() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.Failures >= removalAttemptsMax
	}) || slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool {
		return s.Failures >= removalAttemptsMax
	})
}

// subjectLogs is the subject of the removal of the log directory.
const subjectLogs = "logs"

// removeDirs removes the pod's directories, and reports whether it has issued an operation. If one
// cannot be removed, the other is tried in between.
func (p *Pod) removeDirs(env *Env) bool {
	switch {
	case !p.LogsRemoved && (!p.LogsFailed || p.DirRemoved):
		p.Op = env.Effects.Issue(p.Key(), subjectLogs, fsTimeout,
			&world.RemoveTree{Path: p.logDir(env.Node)})
	case !p.DirRemoved:
		p.Op = env.Effects.Issue(p.Key(), "pod", fsTimeout, &world.RemoveTree{Path: p.dir(env.Node)})
	default:
		return false
	}
	return true
}

// stopSandboxes stops every sandbox that is not down yet, and reports whether there is one.
func (p *Pod) stopSandboxes(env *Env, w *wakeTimer) bool {
	for i := range p.Sandboxes {
		p.stopSandbox(&p.Sandboxes[i], env, w)
	}
	return !p.areSandboxesDown()
}

func (p *Pod) stopSandbox(s *Sandbox, env *Env, w *wakeTimer) {
	if s.isDown() || s.Op != 0 || w.waitUntil(s.NotBefore) {
		return
	}
	s.Op = env.Effects.Issue(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID})
}

func (p *Pod) areSandboxesDown() bool {
	for i := range p.Sandboxes {
		if !p.Sandboxes[i].isDown() {
			return false
		}
	}
	return true
}

// removeContainer removes a container that does not run: first its files, then the container.
func (p *Pod) removeContainer(c *Container, env *Env, w *wakeTimer) {
	if c.isLive() {
		panic("pod: removal of a container that may run: " + c.ID)
	}
	if c.Op != 0 && c.Stopping {
		env.Effects.Abandon(c.Op) // the container has exited: the result of the stop does not matter
		c.Op = 0
	}
	if c.Op != 0 || w.waitUntil(c.NotBefore) || p.removeContainerFiles(c, env) {
		return
	}
	c.Stopping = false
	c.Op = env.Effects.Issue(p.Key(), c.ID, env.Node.RuntimeTimeout,
		&runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
}

func (p *Pod) removeSandbox(s *Sandbox, env *Env, w *wakeTimer) {
	if s.Op != 0 || w.waitUntil(s.NotBefore) {
		return
	}
	s.Op = env.Effects.Issue(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID})
}

// removeOldRuns removes the exited runs of each container but the newest one, and old sandboxes
// without containers (pkg/kubelet/kuberuntime/kuberuntime_gc.go). A run stays until the exit of the
// run after it is known, which the status then reports instead.
func (p *Pod) removeOldRuns(env *Env, w *wakeTimer) {
	name, exitedRuns, isNewest := "", 0, false
	for i := len(p.Containers) - 1; i >= 0; i-- {
		c := &p.Containers[i]
		if p.isLeftover(c) {
			continue
		}
		if isNewest = c.Name != name; isNewest {
			name, exitedRuns = c.Name, 0
		}
		switch {
		case c.isLive() || isNewest && c.State == Created:
		case exitedRuns >= exitedRunsMax:
			p.removeContainer(c, env, w)
		case c.HasKnownExit() || c.State == Exited && !isNewest:
			exitedRuns++
		}
	}
	for i := range len(p.Sandboxes) - 1 {
		switch s := &p.Sandboxes[i]; {
		case p.isSandboxUsed(s):
		case s.isDown():
			p.removeSandbox(s, env, w)
		default:
			p.stopSandbox(s, env, w)
		}
	}
}

func (p *Pod) isSandboxUsed(s *Sandbox) bool {
	for i := range p.Containers {
		if p.Containers[i].SandboxID == s.ID {
			return true
		}
	}
	return false
}
