package core

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/sysctl"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Rejection is why a desired pod is not run, in the terms of its status. A pod in phase Pending may
// still be admitted. One in phase Failed is not admitted by this run of the agent: only another
// manifest, which makes another pod, or another configuration can change that.
type Rejection struct {
	Phase   v1.PodPhase `json:"phase"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	// Waiting is set if the pod is checked again when another pod ends, the Node changes or was read,
	// or the runtime has reported its features.
	Waiting bool `json:"waiting,omitempty"`
	// NodeOp is set if the pod waits for the Node: an operation with this ID or a later one has to
	// bring it.
	NodeOp world.OpID `json:"nodeOp,omitempty"`
}

// awaitingOtherPod is the rejection of a pod for lack of resources while another pod may have
// reached a terminal phase, which would free its resources. It has no reason, because kubectl shows
// a reason instead of the phase.
var awaitingOtherPod = Rejection{Phase: v1.PodPending, Waiting: true,
	Message: "waiting to learn whether another pod has ended and leaves room for this one"}

// awaitingRuntime is the rejection of a pod that needs a feature of the runtime before the runtime
// has reported its features.
var awaitingRuntime = Rejection{Phase: v1.PodPending, Waiting: true,
	Message: "waiting to learn what the container runtime supports"}

// awaitingNode returns the rejection of a pod that the Node's labels or taints keep away as far as
// they are known: the watch may report a change of them later than the pod that was bound because
// of it. The pod waits until the API server has answered a request that was issued after the pod
// was seen with the Node; the zero value if it has. Upstream, for labels alone:
// predicateAdmitHandler.generalFilter in pkg/kubelet/lifecycle/predicate.go.
func (a *Agent) awaitingNode(uid string) Rejection {
	s := &a.state
	since := s.APIRejections[uid].NodeOp
	if since == 0 {
		since = a.effects.NextID()
	}
	if s.NodeObject.HasAnswered(since) {
		return Rejection{}
	}
	s.NodeObject.Await(since)
	a.enqueueNode()
	return Rejection{Phase: v1.PodPending, Waiting: true, NodeOp: since,
		Message: "waiting to read the Node, whose labels or taints did not fit the pod"}
}

// isNodeAwaited reports whether a pod waits for the Node.
func (a *Agent) isNodeAwaited() bool { return len(a.waiting.awaitingNode) > 0 }

// isPreempting reports whether other pods are being terminated to make resources available for this
// one.
func (r Rejection) isPreempting() bool { return r.Waiting && r.Reason == admission.PreemptedReason }

func failedRejection(reason, message string) Rejection {
	return Rejection{Phase: v1.PodFailed, Reason: reason, Message: rejectionPrefix + message}
}

// rejectionPrefix begins the message of a rejection in a status; the message of the event lacks it.
const rejectionPrefix = "Pod was rejected: "

// reportRejection records an event about a pod that is not run, or logs that the pod waits.
func (a *Agent) reportRejection(spec *v1.Pod, rejection Rejection) {
	if rejection.Waiting { // not a final rejection
		a.effects.Log(world.LevelWarning, "Pod waits for admission", "pod", spec.Namespace+"/"+spec.Name,
			"podUID", string(spec.UID), "reason", rejection.Reason, "message", rejection.Message)
		return
	}
	a.recordRejection(rejection.Reason)
	a.effects.RecordEvent(pod.ObjectReference(spec), v1.EventTypeWarning, rejection.Reason, "%s",
		strings.TrimPrefix(rejection.Message, rejectionPrefix))
}

// hasListedExistingPods reports whether the pods that earlier agents started are known: the runtime
// and the pods' directories have been listed, and what is allocated to them was read. Before that
// no pod is checked for resources.
func (a *Agent) hasListedExistingPods() bool {
	return !a.state.Relist.AsOf.IsZero() && a.state.PodDirs.Listed && a.state.Allocation.IsLoaded()
}

// handlePodDirsCompletion handles the listing of the pods' directories, which pods may wait for.
func (a *Agent) handlePodDirsCompletion(ev world.Event) {
	a.state.PodDirs.HandleCompletion(ev, &a.effects)
	a.noteSetAsideDirs()
	if a.hasListedExistingPods() {
		a.reconcileAllPods(ev.Time)
	}
}

// permanentRejection returns why a pod can never be run as specified; the zero value if it can. Of
// several reasons the one of the first of the kubelet's admit handlers counts, in the order in
// which pkg/kubelet/kubelet.go registers them: sysctls, predicates, AppArmor, declared features.
// What this agent does not support goes before all: nothing may be started of such a pod.
func (a *Agent) permanentRejection(spec *v1.Pod) Rejection {
	if missing := pod.UnsupportedFields(spec, a.state.Node.RestartAllContainers); len(missing) > 0 {
		return Rejection{Phase: v1.PodPending, Reason: "Refused",
			Message: "not supported yet: " + strings.Join(missing, ", ")}
	}
	if message := sysctl.ForbiddenMessage(&spec.Spec, a.state.AllowedUnsafeSysctls); message != "" {
		return failedRejection(sysctl.Reason, message)
	}
	rejection := a.missingFeature(spec)
	if rejection == (Rejection{}) {
		return Rejection{}
	}
	if mismatch := admission.OSMismatch(spec); mismatch != (admission.Failure{}) {
		return failedRejection(mismatch.Reason, mismatch.Message)
	}
	return rejection
}

// missingFeature returns the rejection of a pod for a feature that the node does not have.
func (a *Agent) missingFeature(spec *v1.Pod) Rejection {
	if admission.NeedsAppArmor(spec) && !a.state.Boot.Machine.AppArmor {
		return failedRejection("AppArmor",
			"Cannot enforce AppArmor: AppArmor is not enabled on the host")
	}
	if a.state.ChecksFeatures {
		declared := a.state.NodeObject.Settings.DeclaredFeatures
		if message := admission.MissingFeatures(spec, declared); message != "" {
			return failedRejection(admission.ReasonFeatures, message)
		}
	}
	return Rejection{}
}

// isLeftAlone reports whether a pod is desired, but can never be run as specified. What the runtime
// has of it, which another agent started, stays as it is until the pod is no longer desired.
func (a *Agent) isLeftAlone(p *pod.Pod) bool {
	if p.Spec != nil || p.NoLongerDesired {
		return false
	}
	if a.isAPIPod(p) {
		object := a.apiPod(p.FullName())
		return isToRun(object) && a.permanentRejection(object) != Rejection{}
	}
	return slices.ContainsFunc(a.state.Manifests.Pods(), func(spec *v1.Pod) bool {
		return string(spec.UID) == p.UID && a.permanentRejection(spec).Phase == v1.PodPending
	})
}

// admitStaticPods returns the static pods to run, and by UID why the others are rejected. A pod
// that was admitted before, or has something running, stays admitted: neither a manifest that is
// added nor a restart of the agent ends a static pod. Therefore a pod that would be rejected is
// neither admitted nor rejected until it is known what runs. No pod is taken before it is read what
// is allocated to it: the manifest of one with a UID of its own may ask for something else since.
func (a *Agent) admitStaticPods() ([]*v1.Pod, map[string]Rejection) {
	var accepted, undecided []*v1.Pod
	a.forgetStaticSetAside()
	rejections := map[string]Rejection{}
	existingListed := a.hasListedExistingPods()
	for _, p := range a.state.Manifests.Pods() {
		if a.isSetAside(string(p.UID)) {
			a.keepAside(p)
			continue
		}
		known, previous := a.state.Pods[string(p.UID)], a.workOn(string(p.UID))
		switch rejection := a.permanentRejection(p); {
		case rejection.Phase == v1.PodPending:
			rejections[string(p.UID)] = rejection
		case known != nil && known.Spec != nil:
			accepted = append(accepted, p)
		case !a.state.Allocation.IsLoaded(): // decided once it is
		case known != nil && known.HoldsNameOrPorts(),
			existingListed && a.state.PodDirs.MayHaveStarted(string(p.UID)):
			accepted = append(accepted, p)
		case rejection == Rejection{}:
			undecided = append(undecided, p)
		case existingListed: // the kubelet fails a static pod like any other
			rejections[string(p.UID)] = rejection
		}
		a.workOn(previous)
	}
	if !existingListed && a.state.HasAPIServer {
		return accepted, rejections // the API server's pods are not known yet, but run and use resources
	}
	others := a.activePods(accepted)
	var admitted []*v1.Pod
	for _, p := range undecided {
		previous := a.workOn(string(p.UID))
		rejection := a.checkAdmission(p, true, others, existingListed)
		a.workOn(previous)
		if rejection != (Rejection{}) && !existingListed {
			return accepted, rejections // other pods may run that are not known yet
		}
		if rejection == (Rejection{}) {
			others, admitted = append(others, a.asAllocated(p)), append(admitted, p)
			continue
		}
		rejections[string(p.UID)] = rejection
	}
	return append(accepted, admitted...), rejections
}

// activePods returns the pods that count against the node's resources: those that are known,
// including pods that only the runtime knows, and those of the additional ones that are not known
// yet. A pod of both kinds counts once, by its spec.
func (a *Agent) activePods(additional []*v1.Pod) []*v1.Pod {
	var active []*v1.Pod
	unknown := map[string]bool{}
	for _, spec := range additional {
		if p := a.state.Pods[string(spec.UID)]; p == nil || p.Spec == nil {
			active, unknown[string(spec.UID)] = append(active, a.asAllocated(spec)), true
		}
	}
	for _, uid := range a.podUIDs {
		if p := a.state.Pods[uid]; p.HoldsResources() && !unknown[uid] {
			active = append(active, a.heldBy(p))
		}
	}
	active = append(active, a.activeSetAside()...)
	a.requests.Remember(active)
	return active
}

// heldBy returns a pod whose requests are the resources that a pod holds on the node.
func (a *Agent) heldBy(p *pod.Pod) *v1.Pod {
	if p.Spec == nil {
		if recorded := a.state.Allocation.Allocated.Get(p.UID); recorded != nil {
			return p.OrphanedPod(&recorded.Resources)
		}
	}
	return p.AllocatedPod()
}

// activePods is the result of Agent.activePods in a loop over pods of the API server, or over
// resizes. Most of them are rejected when many wait, and a rejection changes nothing of it.
type activePods struct {
	inLoop bool
	known  bool
	pods   []*v1.Pod
}

// forget is called when something changes that activePods depends on.
func (c *activePods) forget() { c.known, c.pods = false, nil }

// activePodsInLoop returns the pods that count against the node's resources, from the cache if
// nothing has changed. Callers do not change it.
func (a *Agent) activePodsInLoop() []*v1.Pod {
	c := &a.activeInLoop
	if !c.inLoop {
		return a.activePods(nil)
	}
	if !c.known {
		c.known, c.pods = true, a.activePods(nil)
	}
	return c.pods
}

// checkAdmission returns why a pod is not admitted now; the zero value if it is. With preempt, pods
// are terminated to make resources available for a critical pod, which waits until they have ended.
// A pod over its budget needs nothing of the node, since it is not started, and what it asks for
// may take long to check: it is admitted, and says why it waits.
func (a *Agent) checkAdmission(spec *v1.Pod, static bool, others []*v1.Pod,
	preempt bool) Rejection {
	if rejection := a.shutdownRejection(); rejection != (Rejection{}) {
		if static {
			rejection.Phase, rejection.Waiting = v1.PodPending, true
		}
		return rejection
	}
	if !isAdmitted(spec) {
		if rejection := a.pressureRejection(spec, static); rejection != (Rejection{}) {
			return rejection
		}
	}
	if !static && pod.ExceedsBudget(spec) {
		return Rejection{}
	}
	if !admission.IsCritical(spec, static) {
		others = a.withPreemptors(others)
	}
	if admission.NeedsStrictGroups(spec) && a.state.Runtime.AsOf.IsZero() {
		return awaitingRuntime
	}
	spec = a.asAllocated(spec)
	check := a.admissionCheck(spec, static, others)
	failures := check.Failures()
	if len(failures) == 0 {
		return Rejection{}
	}
	decisive := admission.DecisiveFailure(spec, static, failures)
	if !static && admission.CausedByNode(decisive) {
		if rejection := a.awaitingNode(string(spec.UID)); rejection != (Rejection{}) {
			return rejection
		}
	}
	if admission.CausedByOtherPods(decisive) && slices.ContainsFunc(others, a.mayFreeResources) {
		return awaitingOtherPod
	}
	rejection := failedRejection(decisive.Reason, decisive.Message)
	if preempt && a.preempt(&check, failures) {
		rejection = Rejection{Phase: v1.PodPending, Reason: admission.PreemptedReason,
			Message: "waiting for other pods to make room", Waiting: true}
	}
	if static { // a static pod cannot run on another node, so it waits
		rejection.Phase, rejection.Waiting = v1.PodPending, true
	}
	return rejection
}

// asAllocated returns a pod that is not known yet with what an earlier agent has allocated to it,
// whatever it asks for since.
func (a *Agent) asAllocated(spec *v1.Pod) *v1.Pod {
	if allocated := a.allocatedTo(spec); allocated != nil {
		return allocated.Apply(spec)
	}
	return spec
}

// isAdmitted reports whether an earlier agent has admitted a pod, by its status. Whether the node
// runs out of a resource is not asked again: a restart alone changes nothing, and a kubelet knows
// of no condition after one.
func isAdmitted(spec *v1.Pod) bool { return spec.Status.StartTime != nil }

// admissionCheck returns the check of a pod against the node. Until the runtime has reported its
// features, it counts as having them.
func (a *Agent) admissionCheck(spec *v1.Pod, static bool, others []*v1.Pod) admission.Check {
	runtime := &a.state.Runtime
	strict := runtime.SupplementalGroupsPolicy
	check := admission.Check{Pod: spec, Static: static, Node: a.admissionNode(),
		Allocatable: a.state.NodeObject.Allocatable(&a.state.Boot), OtherPods: others,
		Requests: a.requests, StrictGroups: runtime.AsOf.IsZero() || strict != nil && *strict}
	a.effects.CountWork(check.Work())
	return check
}

// mayFreeResources reports whether a pod may turn out in a moment to hold less than it counts with:
// it has ended, or a resize to less that an earlier agent has recorded was carried out.
func (a *Agent) mayFreeResources(spec *v1.Pod) bool {
	p := a.state.Pods[string(spec.UID)]
	return p != nil && mayHoldLess(p)
}

func mayHoldLess(p *pod.Pod) bool {
	return p.MayBecomeTerminal() ||
		p.Stage == pod.Syncing && p.Resize.HeldEarlier != nil && p.HasLiveContainers()
}

// hasUndecidedAdmission reports whether a pod, or its resize, waits until it is known whether
// another one has ended.
func (a *Agent) hasUndecidedAdmission() bool {
	for uid := range a.resizing { //ordered: whether there is one
		if p := a.state.Pods[uid]; p != nil && p.Resize.AwaitsOther {
			return true
		}
	}
	if len(a.waiting.awaitingOther) > 0 {
		return true
	}
	for _, rejection := range a.state.StaticRejections { //ordered: whether there is one
		if rejection == awaitingOtherPod {
			return true
		}
	}
	return false
}

// withPreemptors returns the pods that count against the node's resources, with what is reserved
// for the critical pods that others are being terminated for: those that wait, and those that are
// to grow.
func (a *Agent) withPreemptors(others []*v1.Pod) []*v1.Pod {
	others = append(slices.Clip(others), a.preemptors()...)
	if len(a.resizing) == 0 {
		return others
	}
	others = slices.Clone(others)
	for i, other := range others {
		p := a.state.Pods[string(other.UID)]
		if p != nil && p.Stage == pod.Syncing && p.Resize.MakingRoom {
			others[i] = p.ReservedPod()
		}
	}
	return others
}

// preemptors returns the critical pods that other pods are being terminated for. The resources that
// become available are reserved for them.
func (a *Agent) preemptors() []*v1.Pod {
	s, waiting, uids := &a.state, []*v1.Pod(nil), []string(nil)
	for uid := range a.waiting.preempting { //ordered: sorted below
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	for _, uid := range uids {
		if entry := s.StatusWriter.Entries[uid]; entry != nil {
			waiting = append(waiting, a.asAllocated(entry.Stored))
		}
	}
	for _, p := range s.Manifests.Pods() {
		if s.StaticRejections[string(p.UID)].isPreempting() {
			waiting = append(waiting, a.asAllocated(p))
		}
	}
	return waiting
}

// preempt terminates the pods that have to end for a critical pod to fit, and reports whether it
// will fit. Pods that are terminating already count as ended.
func (a *Agent) preempt(check *admission.Check, failures []admission.Failure) bool {
	if !admission.IsCritical(check.Pod, check.Static) {
		return false
	}
	staying := *check
	staying.OtherPods = nil
	var candidates []admission.Candidate
	for _, other := range check.OtherPods {
		p := a.state.Pods[string(other.UID)]
		if p != nil && p.Stage != pod.Syncing {
			continue
		}
		staying.OtherPods = append(staying.OtherPods, other)
		if p != nil && p.Spec != nil {
			candidates = append(candidates, admission.Candidate{
				Pod: other, Static: !a.isAPIPod(p), QOS: criconfig.QOS(p.Spec)}) // other may have a resize's
		}
	}
	if len(staying.OtherPods) < len(check.OtherPods) {
		if failures = staying.Failures(); len(failures) == 0 {
			return true
		}
	}
	victims, ok := check.Victims(failures, candidates)
	for _, v := range victims {
		a.effects.RecordEvent(pod.ObjectReference(v), v1.EventTypeWarning, admission.PreemptedReason,
			admission.PreemptedMessage)
		a.state.Pods[string(v.UID)].Preempt(a.state.Now)
		a.activeInLoop.forget()
		a.state.Metrics.Preempted.Increment(string(failures[0].Shortage.Resource))
		a.enqueuePod(string(v.UID))
	}
	return ok
}

// admissionOwner is the key of the check of the waiting pods: once in a step, however many pods
// have ended in it.
var admissionOwner = timer.Key{Component: "admission"}

// planAdmission checks the waiting pods again after plans of pods: if a pod has ended, or if it is
// known now that none has.
func (a *Agent) planAdmission() {
	if a.hasRoom || !a.mayBecomeRoom() {
		a.retryAdmission()
	}
	a.hasRoom = false
}

// mayBecomeRoom reports whether a pod may turn out in a moment to hold less than it counts with.
func (a *Agent) mayBecomeRoom() bool {
	return slices.ContainsFunc(a.podUIDs, func(uid string) bool {
		p := a.state.Pods[uid]
		return p.HoldsResources() && mayHoldLess(p)
	})
}

// retryAdmission checks the waiting pods again, after another pod has ended or the Node has
// changed.
func (a *Agent) retryAdmission() {
	a.retryResizes("")
	var names []string
	for uid := range a.waiting.all { //ordered: sorted below
		if entry := a.state.StatusWriter.Entries[uid]; entry != nil {
			names = append(names, fullName(entry.Stored))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		a.updateAPIPods(a.sortForAdmission(names), a.state.Now)
	}
	for _, rejection := range a.state.StaticRejections { //ordered: whether there is one
		if rejection.Waiting {
			a.applyStaticPods(a.state.Now)
			return
		}
	}
}
