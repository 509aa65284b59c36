package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/allocation"
	"seedlet.dev/core/config"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Resizes that are not allocated yet. Whether one fits depends on the other pods, so all of them
// are looked at together, in the order of their priority, whenever room may have come. Upstream:
// pkg/kubelet/allocation/allocation_manager.go.

// resizeOwner is the key of the pods that wait for a resize.
var resizeOwner = timer.Key{Component: "resize"}

// How often waiting resizes are looked at without another reason: once all pods are known, and
// before.
const (
	resizeRetryPeriod      = 3 * time.Minute
	resizeFirstRetryPeriod = 30 * time.Second
)

// The reasons for which waiting resizes are looked at again, in the kubelet's terms (the constants
// TriggerReason in pkg/kubelet/allocation/allocation_manager.go).
const (
	triggerPodsAdded     = "pods_added"
	triggerPodUpdated    = "pod_updated"
	triggerPodsRemoved   = "pods_removed"
	triggerPodTerminated = "pod_terminated"
	triggerPodResized    = "pod_resized"
	triggerPeriodic      = "periodic_retry"
)

// setDesired sets the desired state of a pod that is known.
func (a *Agent) setDesired(p *pod.Pod, object *v1.Pod, now time.Time) {
	isFirst := p.Spec == nil
	if !isFirst && !p.NoLongerDesired {
		a.state.Metrics.recordRequestedResizes(p.Source(), object)
	}
	p.SetDesired(object, a.allocatedTo(object), now)
	if isFirst {
		a.holdActuated(p)
	}
	a.recordAllocation(p, triggerPodUpdated)
}

// retryResizes has the waiting resizes looked at. trigger is why; empty if the kubelet has no name
// for that.
func (a *Agent) retryResizes(trigger string) {
	if len(a.resizing) == 0 {
		return
	}
	a.state.ResizesAgain = len(a.state.ResizesLeft) > 0
	a.queue.enqueue(resizeOwner)
	if trigger != "" {
		a.state.Metrics.ResizeTrigger = trigger
	}
}

// allocatedTo returns the resources that are allocated to a pod; nil if none are recorded. A
// kubelet without the feature of resizes of pods as a whole records nothing of those, so the pod
// has its own, unless it may have been given them by a resize.
func (a *Agent) allocatedTo(object *v1.Pod) *allocation.Resources {
	e := a.state.Allocation.Allocated.Get(string(object.UID))
	if e == nil {
		return a.actuatedOf(object)
	}
	r := e.Resources
	if r.Pod == nil && (object.Generation <= 1 || !a.resizesPodsAsWhole()) {
		r.Pod = object.Spec.Resources
	}
	return &r
}

// holdActuated has a pod of an earlier agent hold what it had last by the checkpoint, until its
// running containers are recalled.
func (a *Agent) holdActuated(p *pod.Pod) {
	if e := a.state.Allocation.Actuated.Get(p.UID); e != nil && p.Spec != nil {
		actuated := e.Resources
		p.HoldEarlier(&actuated)
	}
}

// actuatedOf returns what a pod and its containers had last, if the record of what is allocated is
// lost and the pod may have been resized; nil otherwise, or if that is not known either.
func (a *Agent) actuatedOf(object *v1.Pod) *allocation.Resources {
	if object.Generation <= 1 || a.state.Allocation.Actuated.Get(string(object.UID)) == nil {
		return nil
	}
	r := allocation.OfAmounts(object, func(container string) (allocation.Amounts, bool) {
		return a.state.Allocation.RecordedAmounts(string(object.UID), container)
	})
	if whole := a.state.Allocation.RecordedWhole(string(object.UID)); whole != nil {
		r.Pod = whole
	}
	return &r
}

// resizesPodsAsWhole reports whether the resources of pods as a whole can be resized.
func (a *Agent) resizesPodsAsWhole() bool {
	return slices.Contains(a.state.NodeObject.Settings.DeclaredFeatures, config.FeaturePodLevelResize)
}

// recordAllocation records what is allocated to a pod, if nothing is recorded yet, and has a resize
// looked at.
func (a *Agent) recordAllocation(p *pod.Pod, trigger string) {
	if p.Spec == nil || p.Stage != pod.Syncing {
		return
	}
	// A pod over its budget never starts. Its entry could make the file too large to be read again.
	if !p.OverBudget && a.state.Allocation.Allocated.Get(p.UID) == nil {
		a.allocate(p.UID, allocation.Of(p.Spec))
	}
	if p.Resize.Desired == nil && p.Resize.Granted == nil {
		delete(a.resizing, p.UID)
		return
	}
	a.markResizing(p.UID)
	a.retryResizes(trigger)
}

func (a *Agent) markResizing(uid string) {
	if a.resizing == nil {
		a.resizing = map[string]bool{}
	}
	a.resizing[uid] = true
}

// allocate records what is allocated to a pod, and reports whether it can.
func (a *Agent) allocate(uid string, r allocation.Resources) bool {
	if !a.state.Allocation.Allocated.Set(uid, r) {
		return false
	}
	a.queue.enqueue(timer.Key{Component: allocation.Component, Name: allocation.AllocatedFile})
	return true
}

// recordActuation records what the containers of a pod have.
func (a *Agent) recordActuation(p *pod.Pod) {
	if p.FullyRemoved || p.Spec == nil {
		return
	}
	amounts, known := p.ActuatedAmounts()
	if !known || len(amounts) == 0 {
		return
	}
	whole := p.Spec.Spec.Resources
	if e := a.state.Allocation.Actuated.Get(p.UID); e != nil && p.Resize.InProgress != nil {
		whole = e.Resources.Pod // its cgroup may not have what is allocated yet
	}
	if a.state.Allocation.SetActuated(p.UID, amounts, whole) {
		a.queue.enqueue(timer.Key{Component: allocation.Component, Name: allocation.ActuatedFile})
	}
}

// forgetResources drops what is recorded of a pod that is gone.
func (a *Agent) forgetResources(uid string) {
	a.state.Allocation.Allocated.Remove(uid)
	a.state.Allocation.Actuated.Remove(uid)
	delete(a.resizing, uid)
}

// dropOrphanedResources drops what earlier agents have recorded of pods that no source has.
func (a *Agent) dropOrphanedResources() {
	s := &a.state
	if max(len(s.Allocation.Allocated.Pods), len(s.Allocation.Actuated.Pods)) <= len(s.Pods) {
		return
	}
	desired := a.desiredUIDs()
	s.Allocation.Retain(func(uid string) bool { return s.Pods[uid] != nil || desired[uid] })
}

// handleAllocationCompletion handles a read or a write of what is recorded. Pods of the API server
// wait for the reads, resizes for the writes.
func (a *Agent) handleAllocationCompletion(r op.Record, ev world.Event) {
	s := &a.state
	loaded := s.Allocation.IsLoaded()
	s.Allocation.HandleCompletion(r, ev, &a.effects)
	for _, uid := range s.Allocation.Waiting {
		a.enqueuePod(uid)
	}
	s.Allocation.Waiting = nil
	if !loaded && s.Allocation.IsLoaded() {
		if !s.Relist.AsOf.IsZero() {
			a.countAllShares()
			a.queue.enqueue(qos.Owner) // the cgroups above those of the pods have waited for it
		}
		a.reconcileAllPods(ev.Time)
	}
	a.retryResizes("")
}

// planResizes allocates the waiting resizes that fit, and returns when to look again. None is
// decided before it is known whether the machine shuts down. Each is held against all pods, so what
// is too much work for one step is left to the next. What has come meanwhile may concern those that
// were looked at, and has all of them looked at again.
func (a *Agent) planResizes() time.Time {
	s := &a.state
	if !a.knowsAllPods() || s.Shutdown.Undecided() {
		return s.Now.Add(resizeFirstRetryPeriod)
	}
	left := s.ResizesLeft
	if len(left) == 0 {
		left = a.sortedResizes()
	}
	trigger := cmp.Or(s.Metrics.ResizeTrigger, triggerPeriodic)
	a.activeInLoop.inLoop = true
	for isFirst := true; len(left) > 0 && (isFirst || a.effects.Work() <= workPerStepMax); {
		a.planResize(left[0], trigger)
		left, isFirst = left[1:], false
	}
	a.activeInLoop = activePods{}
	if s.ResizesLeft = left; len(left) > 0 {
		return s.Now
	}
	again := s.ResizesAgain
	s.Metrics.ResizeTrigger, s.ResizesLeft, s.ResizesAgain = "", nil, false
	switch {
	case again:
		return s.Now
	case len(a.resizing) == 0:
		return time.Time{}
	}
	return s.Now.Add(resizeRetryPeriod)
}

// knowsAllPods reports whether every pod counts with what it has: the sources and what earlier
// agents have left are listed, and no pod of a list waits to be applied. A pod that only the
// runtime has so far may have more than it was created with, and a resize that is granted, or that
// others are preempted for, cannot be taken back. Upstream: the resizes of all pods are looked at
// after the pods were added (HandlePodAdditions in pkg/kubelet/kubelet.go).
func (a *Agent) knowsAllPods() bool {
	return a.hasAppliedEverything() && a.hasListedExistingPods()
}

// sortedResizes returns the UIDs of the pods that wait for a resize, in the order in which they are
// looked at. Those that ask for nothing any more, since their resize was granted or they are gone,
// come first: they need no decision.
func (a *Agent) sortedResizes() []string {
	var settled, waiting []string
	ranks := make(map[string]resizeRank, len(a.resizing))
	for _, uid := range slices.Sorted(maps.Keys(a.resizing)) {
		if p := a.state.Pods[uid]; p != nil && p.Resize.Desired != nil {
			ranks[uid], waiting = rankResize(p), append(waiting, uid)
		} else {
			settled = append(settled, uid)
		}
	}
	slices.SortStableFunc(waiting, func(x, y string) int { return compareResizes(ranks[x], ranks[y]) })
	return append(settled, waiting...)
}

// planResize takes the next step of the resize of a pod. trigger is why it is looked at.
func (a *Agent) planResize(uid, trigger string) {
	previous := a.workOn(uid)
	if p := a.state.Pods[uid]; p == nil || p.Stage != pod.Syncing || p.Spec == nil ||
		p.Resize.Desired == nil && p.Resize.Granted == nil {
		delete(a.resizing, uid)
	} else {
		a.decideResize(p, trigger)
	}
	a.workOn(previous)
}

// decideResize grants the resize of a pod, applies one that was granted, or denies it.
func (a *Agent) decideResize(p *pod.Pod, trigger string) {
	store, counted := &a.state.Allocation.Allocated, &a.state.Metrics
	switch {
	case p.Resize.Granted != nil && !store.IsStored(p.UID):
		return // an agent that is killed would not know of it
	case p.Resize.Granted != nil:
		p.ApplyGrant(a.podEnvFor(p))
		a.activeInLoop.forget()
		if p.Resize.Desired != nil { // a newer one that has come meanwhile
			a.retryResizes("")
		}
	default:
		d := a.checkResize(p)
		if d.reason == "" && !a.allocate(p.UID, allocation.Of(p.Resize.Desired)) {
			d = denial{v1.PodReasonInfeasible, "the node records the resources of no more pods",
				"too_many_pods"}
		}
		if d.reason == "" {
			if s := p.Resize.Pending; s != nil && s.Reason == v1.PodReasonDeferred {
				counted.ResizesAccepted.Increment(trigger)
			}
			p.Grant()
			a.activeInLoop.forget()
		} else if !p.DenyResize(d.reason, d.message, a.podEnvFor(p)) {
			return
		} else if d.detail != "" {
			counted.ResizesInfeasible.Increment(d.detail)
		}
	}
	a.enqueuePod(p.UID)
}

// denial is why a resize is not allocated now. detail is set if it never will be; the metric of
// those has it.
type denial struct{ reason, message, detail string }

// checkResize returns why a resize is not allocated now, and preempts other pods for a critical
// one; empty if it fits.
func (a *Agent) checkResize(p *pod.Pod) denial {
	desired, wasMakingRoom := p.Resize.Desired, p.Resize.MakingRoom
	p.Resize.MakingRoom, p.Resize.AwaitsOther = false, false
	if p.ResizesSwap(a.podEnvFor(p)) {
		return denial{v1.PodReasonInfeasible,
			"In-place resize of containers with swap is not supported.", "swap_limitation"}
	}
	if !equality.Semantic.DeepEqual(desired.Spec.Resources, p.Spec.Spec.Resources) &&
		!a.resizesPodsAsWhole() {
		return denial{v1.PodReasonInfeasible, config.FeaturePodLevelResize + " is disabled",
			"plr_feature_gate_off"}
	}
	static := p.IsStatic()
	if !static && (p.OverBudget || pod.ExceedsBudget(desired)) {
		return denial{v1.PodReasonInfeasible, "The pod needs more than one pod may have.",
			"budget_exceeded"}
	}
	if message := a.pressureMessage(desired, static); message != "" {
		return denial{reason: v1.PodReasonDeferred, message: message}
	}
	if a.state.Shutdown.UnderWay() {
		return denial{reason: v1.PodReasonDeferred, message: shutdown.RejectionMessage}
	}
	check := a.admissionCheck(desired, static, a.othersForResize(p))
	failures := check.Failures()
	if len(failures) == 0 {
		return denial{}
	}
	decisive := admission.DecisiveFailure(desired, static, failures)
	p.Resize.AwaitsOther = admission.CausedByOtherPods(decisive) &&
		slices.ContainsFunc(check.OtherPods, a.mayHaveEnded)
	if p.Resize.AwaitsOther {
		p.Resize.MakingRoom = wasMakingRoom
	} else {
		p.Resize.MakingRoom = a.preempt(&check, failures)
	}
	return denial{reason: v1.PodReasonDeferred, message: decisive.Message}
}

// mayHaveEnded reports whether a pod that is not terminating may turn out in a moment to have
// ended. No pod is preempted before that is known. A terminating pod makes room anyway.
func (a *Agent) mayHaveEnded(spec *v1.Pod) bool {
	p := a.state.Pods[string(spec.UID)]
	return p != nil && p.Stage == pod.Syncing && p.MayBecomeTerminal()
}

// othersForResize returns the pods that a resize has to fit with. What is preempted for a critical
// pod is no room for a resize that asks for more, or other pods would be preempted again and again.
func (a *Agent) othersForResize(p *pod.Pod) []*v1.Pod {
	var others []*v1.Pod
	for _, o := range a.activePodsInLoop() {
		if string(o.UID) != p.UID {
			others = append(others, o)
		}
	}
	if !admission.IsCritical(p.Resize.Desired, p.IsStatic()) && p.IncreasesRequests() {
		return a.withPreemptors(others)
	}
	return others
}

// resizeRank is what decides when the resize of a pod is looked at.
type resizeRank struct {
	increases int // zero if it asks for no more than the pod has
	priority  int32
	class     int // zero: Guaranteed
	since     time.Time
}

func rankResize(p *pod.Pod) (r resizeRank) {
	if p.IncreasesRequests() {
		r.increases = 1
	}
	if n := p.Spec.Spec.Priority; n != nil {
		r.priority = *n
	}
	if criconfig.QOS(p.Spec) != v1.PodQOSGuaranteed {
		r.class = 1
	}
	if p.Resize.Pending != nil {
		r.since = p.Resize.Pending.Since
	}
	return r
}

// compareResizes compares two waiting pods by whose resize is looked at first: one that asks for no
// more than the pod has, then by priority, then Guaranteed before Burstable, then the one that
// waits longest.
func compareResizes(x, y resizeRank) int {
	rank := cmp.Or(x.increases-y.increases, cmp.Compare(y.priority, x.priority), x.class-y.class)
	if rank == 0 && x.since.IsZero() != y.since.IsZero() {
		if x.since.IsZero() {
			return 1
		}
		return -1
	}
	return cmp.Or(rank, x.since.Compare(y.since))
}
