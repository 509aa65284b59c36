package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/eviction"
	"seedlet.dev/core/imagegc"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Node-pressure eviction, and what depends on it: the ends of pods, the admission of others, and
// the conditions of the Node.

func (a *Agent) evictionEnv() *eviction.Env {
	s := &a.state
	env := &eviction.Env{Effects: &a.effects, Node: nodeobject.Reference(s.Node.Name),
		PodsMemoryMax:    s.QOS.Limits.MemoryBytes,
		RemoveContainers: a.reclaimContainers, AreContainersRemoved: a.areContainersReclaimed,
		KeepContainers: a.keepContainers, IsRemoving: a.isReclaiming,
		RemoveImages: func() {
			s.ImageGC.RequestRemovalOfUnused(s.Now)
			a.queue.enqueue(imagegc.Owner)
		},
		AreImagesRemoved: s.ImageGC.HasRemovedUnused,
		Candidates:       a.evictionCandidates, Evict: a.evict, Hasten: a.hastenVictim,
		Listed:       a.hasListedAPIPods() && !s.Relist.AsOf.IsZero() && len(s.PendingAPIPods) == 0,
		LacksRecords: a.lacksRecords, LimitsFreedBy: a.limitsFreedBy,
		RecordAge: func(signal eviction.Signal, age time.Duration) {
			s.Metrics.EvictionStatsAge.Observe(string(signal), defaultBounds, age)
		}}
	if l := &s.Node.Cgroups; l.PerPod && l.DriverKnown {
		env.Request = world.MeasureNode{Pods: l.QOSParent(v1.PodQOSGuaranteed), Systemd: l.Systemd}
	}
	return env
}

// evictionCandidates returns the pods that could be evicted, for a file system or for something
// else. A static or critical pod is never evicted (upstream #40573).
func (a *Agent) evictionCandidates(forDisk bool) []eviction.Candidate {
	var all []eviction.Candidate
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if p.CanBeEvicted(forDisk) {
			all = append(all, eviction.Candidate{UID: uid, Pod: p.Spec,
				Grace: p.GracePeriod(), Idle: !p.HasLiveContainers(),
				LogDir: a.state.Node.PodLogDir(p.Namespace, p.Name, uid), Dir: a.state.Node.PodDir(uid)})
		}
	}
	return all
}

// lacksRecords reports whether the record of a pod that may be the victim of an earlier agent was
// not read yet.
func (a *Agent) lacksRecords() bool {
	return slices.ContainsFunc(a.podUIDs, func(uid string) bool {
		p := a.state.Pods[uid]
		return p.AwaitsRecord() && (len(p.Containers) > 0 ||
			p.Stage == pod.Terminated && !p.HasFreedDisk())
	})
}

// limitsFreedBy returns by when the pods that were evicted for limits of their own will have given
// back what they hold of a disk; zero if there is none. A kubelet waits for them as well, also
// before it evicts a pod for memory: it checks the limits first, and then evicts none.
func (a *Agent) limitsFreedBy() time.Time {
	var by time.Time
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if end := &p.Termination; p.OverLimit {
			by = timer.Later(by, end.Since.Add(end.Grace+eviction.CleanupMax))
		}
	}
	return by
}

// adoptEvicted is called after a pod was planned. If its record says that an earlier agent has
// evicted it, it is the victim that others wait for until it has given back what it holds. An
// attempt that waits for records is planned again.
func (a *Agent) adoptEvicted(p *pod.Pod) {
	m, end := &a.state.Eviction, &p.Termination
	recorded := p.Record.Termination
	// A victim of this agent that has ended was waited for already, as long as its deadline said.
	isOfEarlierAgent := recorded != nil &&
		recorded.Since.Before(a.state.Node.Wall.Date(a.state.BootedAt))
	holdsDisk := p.Stage == pod.Terminated && !p.HasFreedDisk()
	isEnding := p.Stage == pod.Terminating || holdsDisk && isOfEarlierAgent
	if isEnding && end.UnderPressure && p.Record.Loaded {
		m.AdoptVictim(p.UID, end.Since.Add(end.Grace), a.state.Now)
	}
	if m.Postponed {
		a.queue.enqueue(eviction.Owner)
	}
}

// reclaimContainers has the containers of all pods removed that have ended. Static pods keep
// theirs, which say that they have run.
func (a *Agent) reclaimContainers() {
	for _, uid := range a.podUIDs {
		if p := a.state.Pods[uid]; a.isAPIPod(p) && p.ReclaimRuns() {
			a.enqueuePod(uid)
			a.queue.enqueue(statuswriter.Key(uid))
		}
	}
}

// finalStatusWait is how long the runs of a pod that has ended are kept for its final status while
// the node needs their space: the API server may be slow, or away.
const finalStatusWait = 5 * time.Second

// releaseRuns has the runs of a pod removed that has ended, as far as that was asked for, and
// returns when to call it again. They are removed once the API server has the final status of the
// pod: an agent that is started later knows it from there. While the node needs their space, they
// are kept no longer than finalStatusWait, if the pod's record says that it has ended. The agent
// then keeps the final status itself, and only a restart of the agent before it is written loses
// exit codes that were never reported (a kubelet does not wait for the API server at all, and loses
// the same).
func (a *Agent) releaseRuns(p *pod.Pod, final *v1.PodStatus) time.Time {
	isWritten := a.state.StatusWriter.IsTerminalWritten(p.UID)
	if isWritten && p.Spec != nil && pod.IsTerminal(p.Spec.Status.Phase) {
		p.FinalStatus = nil // the object has it
	}
	if !a.isAPIPod(p) || p.MayLoseRuns || !p.WantsRunsRemoved() {
		return time.Time{}
	}
	if !isWritten {
		v := a.state.Eviction.Victim
		isNeeded := p.ReclaimsRuns || v != nil && v.UID == p.UID && v.HoldsDisk
		if !isNeeded || final == nil || !pod.IsTerminal(final.Phase) || p.HasUnknownExits() ||
			p.UnreportedTerminalPhase() != "" {
			return time.Time{}
		}
		if at := p.EndedAt.Add(finalStatusWait); a.state.Now.Before(at) {
			return at
		}
		p.KeepFinalStatus(final)
	}
	p.MayLoseRuns = true
	a.enqueuePod(p.UID)
	return time.Time{}
}

// isReclaiming reports whether a container or an image is being removed for the space.
func (a *Agent) isReclaiming() bool {
	return a.state.ImageGC.IsRemovingUnused() || slices.ContainsFunc(a.podUIDs, func(uid string) bool {
		return a.state.Pods[uid].IsReclaiming()
	})
}

// keepContainers has the containers kept that reclaimContainers has not removed: those of a pod
// whose record cannot be written, say, are not removed later, when the node may have space.
func (a *Agent) keepContainers() {
	for _, uid := range a.podUIDs {
		a.state.Pods[uid].ReclaimsRuns = false
	}
}

func (a *Agent) areContainersReclaimed() bool {
	return !slices.ContainsFunc(a.podUIDs, func(uid string) bool {
		return !a.state.Pods[uid].AreRunsReclaimed()
	})
}

// noteReclaimed is called after a pod was planned.
func (a *Agent) noteReclaimed(p *pod.Pod) {
	removed, ended := p.NoteReclaimed()
	if removed {
		a.state.Eviction.NoteRemoval(a.state.Now)
	}
	if ended {
		a.queue.enqueue(eviction.Owner)
	}
}

// evict evicts a pod.
func (a *Agent) evict(c eviction.Candidate, e eviction.Eviction) {
	p := a.state.Pods[c.UID]
	a.effects.Record(&world.RecordEvent{Regarding: pod.ObjectReference(p.Spec),
		Type: v1.EventTypeWarning, Reason: pod.ReasonEvicted, Message: e.Message,
		Annotations: e.Annotations})
	p.Evict(e.Message, e.Grace, a.effects.Now())
	a.state.Metrics.Evicted.Increment(string(e.Signal))
	a.enqueuePod(c.UID)
}

// hastenVictim shortens the grace period of a pod that was evicted.
func (a *Agent) hastenVictim(uid string, grace time.Duration) {
	if p := a.state.Pods[uid]; p != nil {
		p.Hasten(grace, a.effects.Now())
		a.enqueuePod(uid)
	}
}

// handleEvictionCompletion handles the completion of an observation.
func (a *Agent) handleEvictionCompletion(id world.OpID, ev world.Event) {
	if a.state.Eviction.HandleCompletion(id, ev, a.evictionEnv()) {
		a.state.NodeObject.CheckStatusNow()
		a.enqueueNode()
		a.retryResizes("")
	}
}

// adoptPressure takes over the pressure conditions of the Node that an earlier agent has left.
func (a *Agent) adoptPressure() {
	if node := a.state.NodeObject.Object; node != nil { // the watch may report it later than a read
		a.state.Eviction.Adopt(node.Status.Conditions, a.state.BootedAt, a.effects.Now())
	}
}

// noteVictim is called after a pod was planned: the node is observed again once a victim has ended,
// and has given back what it was evicted for, and its disks once a pod that was evicted for a limit
// of its own has.
func (a *Agent) noteVictim(p *pod.Pod) {
	if p.OverLimit && p.HasFreedDisk() {
		p.OverLimit = false
		a.state.Eviction.NoteLimitFreed(a.state.Now)
	}
	v := a.state.Eviction.Victim
	if v != nil && v.UID == p.UID && p.HasUnmounted() && (!v.HoldsDisk || p.HasFreedDisk()) {
		a.endEviction(p.UID)
	}
}

func (a *Agent) endEviction(uid string) {
	if a.state.Eviction.PodEnded(uid, a.state.Now) {
		a.queue.enqueue(eviction.Owner)
	}
}

// pressureRejection returns why a pod is not admitted while the node runs out of a resource; the
// zero value if it is.
func (a *Agent) pressureRejection(spec *v1.Pod, static bool) Rejection {
	if message := a.pressureMessage(spec, static); message != "" {
		return failedRejection(pod.ReasonEvicted, message)
	}
	return Rejection{}
}

// pressureMessage returns the resources that the node runs out of, if that keeps a pod, or its
// resize, from being admitted; empty if it does not. Upstream: Admit in
// pkg/kubelet/eviction/eviction_manager.go.
func (a *Agent) pressureMessage(spec *v1.Pod, static bool) string {
	a.adoptPressure()
	pressure := a.state.Eviction.Pressure
	if len(pressure) == 0 || admission.IsCritical(spec, static) {
		return ""
	}
	if len(pressure) == 1 && pressure[0] == v1.NodeMemoryPressure &&
		(criconfig.QOS(spec) != v1.PodQOSBestEffort || toleratesMemoryPressure(spec)) {
		return ""
	}
	return fmt.Sprintf("The node had condition: %v. ", pressure)
}

func toleratesMemoryPressure(spec *v1.Pod) bool {
	taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
	for i := range spec.Spec.Tolerations {
		if spec.Spec.Tolerations[i].ToleratesTaint(logr.Logger{}, &taint, false) {
			return true
		}
	}
	return false
}
