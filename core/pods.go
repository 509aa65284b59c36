package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/podstatus"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/userns"
)

// applyStaticPods adds the admitted static pods and updates those that are known. It returns their
// UIDs.
func (a *Agent) applyStaticPods(now time.Time) map[string]bool {
	admitted, rejections := a.admitStaticPods()
	a.setStaticRejections(rejections)
	desired := make(map[string]bool, len(admitted))
	if !a.state.Allocation.IsLoaded() { // pods that are not taken yet do not end either
		for _, spec := range a.state.Manifests.Pods() {
			desired[string(spec.UID)] = true
		}
	}
	for _, spec := range admitted {
		uid := string(spec.UID)
		previous := a.workOn(uid)
		desired[uid] = true
		p := a.state.Pods[uid]
		switch {
		case p == nil:
			a.addPod(pod.New(spec, a.allocatedTo(spec), !a.state.Relist.AsOf.IsZero(),
				!a.state.PodDirs.MayHaveStarted(uid), now))
		case p.NoLongerDesired && isSameManifest(p.Replacement, spec) || !p.NoLongerDesired &&
			isSameManifest(p.Source(), spec):
			a.workOn(previous)
			continue // no change
		default:
			a.setDesired(p, spec, now)
			a.recordSpecChange(uid)
		}
		a.enqueuePod(uid)
		a.workOn(previous)
	}
	return desired
}

// reconcilePods applies the static pods. Once all sources and the runtime have been listed, the
// pods that no source has are no longer desired.
func (a *Agent) reconcilePods(now time.Time) {
	desired := a.applyStaticPods(now)
	if a.state.HasAPIServer {
		for _, spec := range a.state.Manifests.Pods() {
			a.updateMirror(spec.Namespace + "/" + spec.Name)
		}
		for _, name := range a.mirrorNames() {
			a.updateMirror(name) // its static pod may have been removed, even while the agent was down
		}
	}
	if !a.hasListedEverything() {
		return
	}
	a.dropPodDirs()
	a.dropOrphanedResources()
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		if desired[uid] || a.isAPIPod(p) || a.isLeftAlone(p) ||
			p.NoLongerDesired && p.Replacement == nil {
			continue
		}
		p.ClearDesired(now)
		a.enqueuePod(uid)
	}
	a.retryResizes(triggerPodsAdded) // all pods may be known now
	a.queue.enqueue(shutdown.Owner)
	a.queue.enqueue(housekeeping.Owner)
	a.queue.enqueue(devicemount.Owner)
	a.enqueueBlocks()
	a.enqueueDisks()
	a.queue.enqueue(logs.Owner)
	a.queue.enqueue(logs.LinksOwner)
}

// isSameManifest reports whether two pods come from the same reading of the same manifest.
func isSameManifest(x, y *v1.Pod) bool {
	if x == nil || y == nil {
		return x == y
	}
	const seen = manifest.ConfigSeenAnnotation
	return x == y || x.UID == y.UID && x.Namespace == y.Namespace && x.Name == y.Name &&
		x.Annotations[seen] == y.Annotations[seen] &&
		equality.Semantic.DeepEqual(x.Spec, y.Spec) // two files may be read in the same instant
}

// reconcileAllPods applies the desired pods of all sources again: some could not be admitted, and
// others not be terminated, before.
func (a *Agent) reconcileAllPods(now time.Time) {
	a.reapplyAPIPods(now)
	a.reconcilePods(now)
}

func (a *Agent) setStaticRejections(rejections map[string]Rejection) {
	for _, p := range a.state.Manifests.Pods() {
		rejection, isRejected := rejections[string(p.UID)]
		if isRejected && a.state.StaticRejections[string(p.UID)] != rejection {
			a.reportRejection(p, rejection)
		}
	}
	a.state.StaticRejections = rejections
}

func (a *Agent) addPod(p *pod.Pod) {
	a.state.Pods[p.UID] = p
	a.activeInLoop.forget()
	a.indexPod(p)
	a.countShare(p)
	a.holdActuated(p)
	a.recordAllocation(p, triggerPodsAdded)
	a.recordPodAdded(p)
}

// indexPod adds a pod to the fields of the agent that are derived from the pods.
func (a *Agent) indexPod(p *pod.Pod) {
	if a.podUIDsByName == nil {
		a.podUIDsByName = map[string][]string{}
	}
	a.podUIDs = insertSorted(a.podUIDs, p.UID)
	a.podUIDsByName[p.FullName()] = insertSorted(a.podUIDsByName[p.FullName()], p.UID)
	delete(a.servedPods, p.UID)
}

func (a *Agent) removePod(p *pod.Pod) {
	a.endEviction(p.UID)
	a.activeInLoop.forget()
	delete(a.state.Pods, p.UID)
	a.enqueueBlocks() // the pod is known no more
	a.enqueueDisks()
	a.state.Images.Node.ForgetPod(p.UID)
	delete(a.shares, p.UID)
	a.dropShare(p.UID)
	a.forgetResources(p.UID)
	a.state.VolumeStats.Forget(p.UID)
	a.recordPodRemoved(p.UID)
	a.podUIDs = deleteSorted(a.podUIDs, p.UID)
	name := p.FullName()
	a.podUIDsByName[name] = deleteSorted(a.podUIDsByName[name], p.UID)
	if len(a.podUIDsByName[name]) == 0 {
		delete(a.podUIDsByName, name)
	}
}

func insertSorted(list []string, s string) []string {
	i, found := slices.BinarySearch(list, s)
	if found {
		panic("core: a pod was added twice: " + s)
	}
	return slices.Insert(list, i, s)
}

func deleteSorted(list []string, s string) []string {
	i, found := slices.BinarySearch(list, s)
	if !found {
		panic("core: an unknown pod was removed: " + s)
	}
	return slices.Delete(list, i, i+1)
}

// dropPodDirs forgets the directories that earlier agents made, once all sources are known. Those
// of pods that wait for admission stay: the record there may say that the pod has ended.
func (a *Agent) dropPodDirs() {
	s := &a.state
	if !s.PodDirs.Listed || len(s.PodDirs.UIDs) == 0 {
		return
	}
	desired := a.desiredUIDs()
	maps.DeleteFunc(s.PodDirs.UIDs, func(uid string, _ bool) bool {
		return s.Pods[uid] != nil || !desired[uid]
	})
}

// desiredUIDs returns the UIDs of the pods that the sources have.
func (a *Agent) desiredUIDs() map[string]bool {
	desired := map[string]bool{}
	for _, uid := range a.state.APIPodUIDs { //ordered: into a set
		desired[uid] = true
	}
	for _, p := range a.state.Manifests.Pods() {
		desired[string(p.UID)] = true
	}
	return desired
}

// planPod plans a pod, and removes it once nothing is left of it. When the pod no longer holds its
// full name, the other pods of that name are enqueued, which may wait for it.
func (a *Agent) planPod(p *pod.Pod) time.Time {
	delete(a.servedPods, p.UID)
	p.HeldName = p.HeldName || p.HoldsNameOrPorts()
	stage, evicted := p.Stage, p.IsEvicted()
	resizing := p.Resize.InProgress != nil || p.Resize.HeldEarlier != nil
	head := a.state.Images.Head()
	a.countShare(p)
	a.endLatecomer(p)
	wake := p.Plan(a.podEnvFor(p))
	a.countShare(p)
	a.recordActuation(p)
	podstatus.Update(p, a.effects.Now())
	a.recordPodPlan(p)
	a.noteShutdownProgress(p)
	a.adoptEvicted(p)
	a.noteVictim(p)
	a.noteReclaimed(p)
	if p.IsEvicted() && !evicted {
		a.state.Metrics.Evicted.Increment(string(p.Storage.Usage.Exceeded.Kind))
	}
	a.enqueueImages(a.state.Images.Advanced(head)) // the pod gave up its places in the queue
	if !p.StaleSince.IsZero() {
		a.requestRelist(p.StaleSince)
	}
	if a.state.StatusWriter.Entries[p.UID] != nil {
		a.queue.enqueue(statuswriter.Key(p.UID))
	}
	a.enqueueVolumeStats(p)
	if p.FullyRemoved {
		a.removePod(p)
		switch {
		case p.Replacement != nil:
			a.recordPodRestart(p)
			a.addPod(pod.New(p.Replacement, nil, true, true, a.state.Now))
			a.enqueuePod(p.UID)
		case p.Spec == nil && a.isAPIPod(p): // see applyAPIPod
			a.reapplyAPIPod(p.FullName(), a.state.Now)
		}
	}
	a.enqueueNamesakes(p)
	if p.Stage == pod.Syncing && stage == pod.Terminated { // it runs again after a shutdown
		a.recordAllocation(p, "")
	}
	// One that may run again after a shutdown keeps what it holds.
	hasTerminated := p.Stage != stage && p.Stage == pod.Terminated && !p.HoldsResources()
	hasResized := resizing && p.Resize.InProgress == nil &&
		p.Resize.HeldEarlier == nil // may hold less
	switch {
	case p.FullyRemoved:
		a.retryResizes(triggerPodsRemoved)
	case hasTerminated:
		a.forgetResources(p.UID)
		a.retryResizes(triggerPodTerminated)
	case hasResized:
		a.retryResizes(triggerPodResized)
	}
	a.hasRoom = a.hasRoom || p.FullyRemoved || hasTerminated || hasResized
	if a.hasRoom || a.hasUndecidedAdmission() {
		a.queue.enqueue(admissionOwner)
	}
	return wake
}

// podEnvFor returns the input of the plan of a pod. All pods share it: only the fields that differ
// from pod to pod, or from plan to plan, are set again.
func (a *Agent) podEnvFor(p *pod.Pod) *pod.Env {
	if a.podEnv.Node == nil {
		a.podEnv = pod.Env{
			Node: &a.state.Node, Effects: &a.effects, Images: &a.state.Images, Objects: a.objectStore(),
			CSI: pod.CSI{Node: &a.state.CSI, Enqueue: func(name string) {
				a.queue.enqueue(csi.VolumeKey(name))
			}},
			Devices: a.podDevices(), Disks: a.podDisks(),
			Runtime: &a.state.Runtime, Enqueue: a.queue.enqueue, AllocatedIDs: a.allocatedIDRanges,
			AreIDsKnown:          a.areIDsKnown,
			MustWaitForTier:      a.mustWaitForTier,
			ObjectOwner:          a.objectOwner,
			RecordedAmounts:      a.state.Allocation.RecordedAmounts,
			RecordedWhole:        a.state.Allocation.RecordedWhole,
			MustWaitForRecord:    a.state.Allocation.MustWait,
			CountRefusal:         a.state.Metrics.OverBudget.Increment,
			CountRejection:       a.recordRejection,
			CountImageRequest:    a.state.Metrics.recordImageRequest,
			CountShortenedSleep:  func() { a.state.Metrics.SleepsShortened++ },
			NoteImageUse:         func(id string) { a.state.ImageGC.NoteUse(id, a.state.Now) },
			CountVolumeOperation: a.state.Metrics.recordVolumeOperation,
			CountResize:          a.state.Metrics.recordResize,
		}
	}
	a.podEnv.RuntimeNotReady, a.podEnv.NetworkNotReady = a.notReadyReason(),
		a.state.Runtime.NetworkNotReadyMessage()
	a.podEnv.MachineShutsDown = a.state.Shutdown.UnderWay()
	a.podEnv.LayersApart = a.state.Eviction.LayersApart()
	a.podEnv.NameTaken, a.podEnv.CleanupInProgress = a.isNameTaken(p), a.isBeingCleanedUp(p.UID)
	return &a.podEnv
}

// enqueueNamesakes enqueues the other pods of the same full name, and the mirror of that name, if
// the pod, which has just been planned, has freed the name: they may wait for it. It notes whether
// the pod still holds the name. A pod that waits for it frees nothing, so those that wait do not
// enqueue each other.
func (a *Agent) enqueueNamesakes(p *pod.Pod) {
	held := p.HeldName
	p.HeldName = p.HoldsNameOrPorts()
	if !p.FullyRemoved && (!held || p.HeldName) {
		return
	}
	a.enqueueNamed(p.FullName(), p.UID)
}

// enqueueNamed enqueues the pods of a full name but for one, and the mirror of that name.
func (a *Agent) enqueueNamed(fullName, except string) {
	if a.state.HasAPIServer {
		a.queue.enqueue(mirror.Key(fullName))
	}
	for _, uid := range a.podUIDsByName[fullName] {
		if uid != except {
			a.enqueuePod(uid)
		}
	}
}

// isNameTaken reports whether another pod of the same full name has, or may have, something running
// (upstream #97722). The pod waits then, so the other one is noted as the one that holds the name:
// it may have come to hold it since it was planned last.
func (a *Agent) isNameTaken(p *pod.Pod) bool {
	for _, uid := range a.podUIDsByName[p.FullName()] {
		if other := a.state.Pods[uid]; uid != p.UID && other.HoldsNameOrPorts() {
			other.HeldName = true
			return true
		}
	}
	return a.isNameSetAside(p.FullName())
}

// areIDsKnown reports whether the ranges of host IDs of all pods but one are known.
func (a *Agent) areIDsKnown(uid string) bool {
	return !slices.ContainsFunc(a.podUIDs, func(other string) bool {
		return other != uid && a.state.Pods[other].MayHaveUnknownIDs()
	})
}

// allocatedIDRanges returns the ranges of host IDs that are allocated to other pods than the one
// with the UID. Without sandboxes, ranges that only a sandbox has are left out.
func (a *Agent) allocatedIDRanges(uid string, sandboxes bool) []userns.Range {
	var allocated []userns.Range
	for _, other := range a.podUIDs {
		switch p := a.state.Pods[other]; {
		case other == uid:
		case sandboxes:
			allocated = append(allocated, p.AllocatedIDs()...)
		case !p.IDs.IsEmpty():
			allocated = append(allocated, p.IDs)
		}
	}
	for _, other := range a.setAsideUIDs() {
		allocated = append(allocated, a.state.SetAside[other].IDs...)
	}
	return allocated
}
