package core

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Pods from the API server: those that are bound to this node. An object of the watch reaches its
// pod by updateAPIPod, then applyAPIPod, which admits a new pod (admission.go) or sets the desired
// state of a known one.

// podsWatch selects the pods of this node.
var podsWatch = world.WatchTarget{Resource: world.ResourcePods}

// watchUser is the user of the watches that the agent itself needs; all others are for pods.
const watchUser = "agent"

// startWatches starts the watches that the agent itself needs.
func (a *Agent) startWatches() {
	if a.state.HasAPIServer {
		a.state.Objects.AddReference(podsWatch, watchUser, &a.effects)
		a.state.Objects.AddReference(a.nodeWatch(), watchUser, &a.effects)
		a.enqueueNode()
		a.state.Objects.AddReference(criconfig.AllServices, watchUser, &a.effects)
		a.startCSI()
	}
}

// handleWatchEvent handles an event of a watch.
func (a *Agent) handleWatchEvent(body any, now time.Time) {
	nodeListed, nodeUID := a.hasListedNode(), a.watchedNodeUID()
	a.workOn(a.podOfWatchEvent(body))
	watch, changed := a.state.Objects.HandleWatchEvent(body, now)
	if watch == nil {
		return
	}
	switch watch.Target.Resource {
	case world.ResourcePods:
		_, isList := body.(*world.ObjectsListed)
		if isList {
			a.retryWritesNow()
		}
		a.updateAPIPods(a.sortForAdmission(changed), now)
	case world.ResourceNodes:
		a.updateNodeObject()
		if !nodeListed && a.hasListedNode() {
			a.reapplyAPIPods(now) // pods wait for the Node
		}
		if a.watchedNodeUID() != nodeUID {
			a.enqueueRequesters() // a request for a certificate names the Node by its UID
		}
		a.retryAdmission() // the Node changed: pods that were rejected may be admitted now
		for _, p := range a.state.Manifests.Pods() {
			a.queue.enqueue(mirror.Key(p.Namespace + "/" + p.Name))
		}
	case world.ResourceCSIDrivers:
		a.updateCSIDrivers(body, changed)
	default:
		a.enqueueUsers(watch, body)
	}
}

// apiPodsPerStep bounds the pods of a list that one step applies, so that a list of any length
// delays heartbeats and other pods no longer than a short one. A node runs 110 pods by default, and
// each new pod is held against all of them.
const apiPodsPerStep = 32

// apiPodsOwner is the key of the timer at which the next part of a list is applied: at once.
var apiPodsOwner = timer.Key{Component: "apipods"}

// updateAPIPods handles changes of objects of the API server, by full name and in the order of
// admission. A long list is applied in parts, one for each step, and changes that arrive meanwhile
// wait for it. What a name refers to is looked up when it is its turn. Only a removal does not
// wait, since the pod has no object any more.
func (a *Agent) updateAPIPods(names []string, now time.Time) {
	s := &a.state
	w := s.Objects.Watch(podsWatch)
	if len(s.PendingAPIPods)+len(names) <= apiPodsPerStep {
		if len(s.PendingAPIPods) > 0 {
			names = a.sortForAdmission(append(s.PendingAPIPods, names...))
		}
		if s.PendingAPIPods = a.updateEachAPIPod(names, now); len(s.PendingAPIPods) > 0 {
			a.queue.enqueue(apiPodsOwner)
			return
		}
		if !s.APIPodsApplied && w != nil && w.Listed {
			s.APIPodsApplied = true
			a.reconcilePods(now) // pods that no source has can be terminated from now on
		}
		return
	}
	a.keepPending(names, now)
	a.queue.enqueue(apiPodsOwner)
}

// keepPending adds the pods of names to those that wait to be applied, in the order of admission:
// some may be older than those that wait. A few are inserted, as sorting takes time in proportion
// to all that wait.
func (a *Agent) keepPending(names []string, now time.Time) {
	s := &a.state
	var added []string
	isGone := map[string]bool{}
	for _, name := range names {
		if a.removeReplaced(name, now); a.apiPod(name) == nil {
			a.updateMirror(name)
			isGone[name] = true
		} else {
			added = append(added, name)
		}
	}
	if len(isGone) > 0 { // they have no place in the order any more
		s.PendingAPIPods = slices.DeleteFunc(s.PendingAPIPods, func(name string) bool {
			return isGone[name]
		})
	}
	if len(added) <= apiPodsPerStep {
		for _, name := range added {
			a.insertPending(name)
		}
		return
	}
	isPending := make(map[string]bool, len(s.PendingAPIPods))
	for _, name := range s.PendingAPIPods {
		isPending[name] = true
	}
	added = slices.DeleteFunc(added, func(name string) bool { return isPending[name] })
	s.PendingAPIPods = a.sortForAdmission(append(s.PendingAPIPods, added...))
}

// insertPending adds a pod to those that wait to be applied, behind those that are as early in the
// order of admission. A pod that waits keeps its place, unless its change has made it earlier or
// later.
func (a *Agent) insertPending(name string) {
	pending := a.state.PendingAPIPods
	turn := a.admissionTurn(name)
	if i := slices.Index(pending, name); i >= 0 {
		isLate := i > 0 && a.admissionTurn(pending[i-1]).compare(turn) > 0
		isEarly := i+1 < len(pending) && a.admissionTurn(pending[i+1]).compare(turn) < 0
		if !isLate && !isEarly {
			return
		}
		pending = slices.Delete(pending, i, i+1)
	}
	i := sort.Search(len(pending), func(i int) bool {
		return a.admissionTurn(pending[i]).compare(turn) > 0
	})
	a.state.PendingAPIPods = slices.Insert(pending, i, name)
}

// planAPIPods applies the next part of a list, and returns when the one after it is applied.
func (a *Agent) planAPIPods(now time.Time) time.Time {
	s := &a.state
	part := min(len(s.PendingAPIPods), apiPodsPerStep)
	left := a.updateEachAPIPod(s.PendingAPIPods[:part], now)
	s.PendingAPIPods = s.PendingAPIPods[part-len(left):]
	if len(s.PendingAPIPods) > 0 {
		return now
	}
	a.updateAPIPods(nil, now)
	a.retryResizes(triggerPodsAdded) // they wait for the whole list
	a.queue.enqueue(shutdown.Owner)  // so does a group whose pods end
	return time.Time{}
}

// updateEachAPIPod handles changes of objects, and returns those that it leaves because of the work
// of the step.
func (a *Agent) updateEachAPIPod(names []string, now time.Time) (left []string) {
	a.activeInLoop.inLoop = true
	for len(names) > 0 && a.effects.Work() <= workPerStepMax {
		if object := a.apiPod(names[0]); object != nil {
			a.effects.CountWork(pod.WorkOfSpec(object))
		}
		a.updateAPIPod(names[0], now)
		names = names[1:]
	}
	a.activeInLoop = activePods{}
	return names
}

// hasListedAPIPods reports whether the pods of the API server have been listed and applied, or
// there is none.
func (a *Agent) hasListedAPIPods() bool { return !a.state.HasAPIServer || a.state.APIPodsApplied }

// apiPod returns the pod of the API server that has a full name; nil if there is none.
func (a *Agent) apiPod(name string) *v1.Pod {
	if w := a.state.Objects.Watch(podsWatch); w != nil {
		return w.Objects[name].Pod
	}
	return nil
}

// updateAPIPod handles a change of the object that the API server has, or had, under a full name.
// The object may have been created, changed, replaced by one with another UID, or removed.
func (a *Agent) updateAPIPod(name string, now time.Time) {
	s := &a.state
	a.updateMirror(name)
	a.removeReplaced(name, now)
	object := a.apiPod(name)
	if object == nil || mirror.IsMirror(object) {
		return
	}
	if s.APIPodUIDs == nil {
		s.APIPodUIDs = map[string]string{}
	}
	uid := string(object.UID)
	s.APIPodUIDs[name] = uid
	previous := a.workOn(uid)
	e := s.SetAside[uid]
	if e == nil || !e.Silent {
		s.StatusWriter.Observe(uid, object)
	}
	if e == nil {
		a.applyAPIPod(object, now)
		a.recordPodStart(object, now)
	} else {
		a.keepAside(object)
	}
	a.queue.enqueue(statuswriter.Key(uid)) // planned after the pod, whose plan changes its status
	a.workOn(previous)
}

// removeReplaced handles the removal of the pod that had a full name, if the API server has none of
// that name now, or another one.
func (a *Agent) removeReplaced(name string, now time.Time) {
	object, oldUID := a.apiPod(name), a.state.APIPodUIDs[name]
	isSame := object != nil && !mirror.IsMirror(object) && string(object.UID) == oldUID
	if oldUID != "" && !isSame {
		delete(a.state.APIPodUIDs, name)
		previous := a.workOn(oldUID)
		a.removeAPIPod(oldUID, now)
		a.workOn(previous)
	}
}

// isAPIPod reports whether a pod is bound to this node at the API server.
func (a *Agent) isAPIPod(p *pod.Pod) bool { return a.state.APIPodUIDs[p.FullName()] == p.UID }

// removeAPIPod handles the removal of a pod from the API server: it is no longer desired.
func (a *Agent) removeAPIPod(uid string, now time.Time) {
	a.state.StatusWriter.Remove(uid)
	a.clearRejection(uid)
	if e := a.state.SetAside[uid]; e != nil {
		e.Spec = nil
	}
	if p := a.state.Pods[uid]; p != nil && !p.NoLongerDesired {
		a.activeInLoop.forget()
		p.ClearDesired(now)
		a.enqueuePod(uid)
	}
}

// applyAPIPod adds a pod of the API server, or sets the desired state of a known one. A new pod has
// to be admitted first; admission waits until the pods that earlier agents started are known. A pod
// that can never be run as specified is not run, even if an earlier agent or a kubelet has started
// it.
func (a *Agent) applyAPIPod(object *v1.Pod, now time.Time) {
	s := &a.state
	uid := string(object.UID)
	if a.isSetAside(uid) {
		return
	}
	previous := a.workOn(uid)
	object = withAPISource(object)
	p := s.Pods[uid]
	if p != nil {
		a.activeInLoop.forget() // it may use other resources now
	}
	isTerminal := statuswriter.IsTerminal(&object.Status)
	delete(a.servedPods, uid)
	switch {
	case !s.Allocation.IsLoaded():
		// The pod waits until it is known what is allocated to it.
	case p != nil && p.Spec != nil && (p.NoLongerDesired || hasSameDesiredState(p.Source(), object)):
		if p.UpdateObject(object, now) {
			a.enqueuePod(uid)
		}
	case p != nil && p.Spec == nil && p.NoLongerDesired:
		// A late effect of an operation of an earlier agent is being cleaned up. It does not show that
		// the pod was admitted; the pod is applied again once the cleanup is complete.
	case p == nil && (!a.hasListedExistingPods() || isTerminal && object.DeletionTimestamp != nil):
		// The pod waits until existing pods are known; or only its object is left, which is removed.
	case (p == nil || p.Spec == nil) && a.rejectPermanently(object):
		// The status of the object does not matter: every client that may update it could set it.
	case p != nil:
		a.setDesired(p, object, now)
		a.recordSpecChange(uid)
		a.enqueuePod(uid)
	case isTerminal, object.DeletionTimestamp != nil, a.wasStarted(object),
		a.hasListedNode() && a.admitAPIPod(object):
		if a.waiting.all[uid] {
			a.clearRejection(uid) // it is deleted while it waits
		}
		a.addPod(pod.New(object, a.allocatedTo(object), true, !s.PodDirs.MayHaveStarted(uid), now))
		a.enqueuePod(uid)
	}
	a.workOn(previous)
}

// wasStarted reports whether an earlier agent has admitted and started a pod of which the runtime
// has nothing. One that was admitted alone is checked again, as by a kubelet: what other pods have
// been admitted since, before this one was listed, may leave no room for it. A pod that may have
// been resized since then needs a record of what is allocated to it: without one it was not
// started, and what it asks for now may not fit.
func (a *Agent) wasStarted(object *v1.Pod) bool {
	uid := string(object.UID)
	return (hasStarted(&object.Status) || a.state.PodDirs.MayHaveStarted(uid)) &&
		(object.Generation <= 1 || a.state.Allocation.Allocated.Get(uid) != nil ||
			a.state.Allocation.Allocated.Unreadable)
}

// hasStarted reports whether a status says that a container of the pod was created.
func hasStarted(s *v1.PodStatus) bool {
	if s.StartTime != nil && s.Phase != v1.PodPending {
		return true
	}
	isCreated := func(c v1.ContainerStatus) bool { return c.ContainerID != "" || c.RestartCount > 0 }
	return slices.ContainsFunc(s.InitContainerStatuses, isCreated) ||
		slices.ContainsFunc(s.ContainerStatuses, isCreated) ||
		slices.ContainsFunc(s.EphemeralContainerStatuses, isCreated)
}

// rejectPermanently rejects a pod of the API server that asks to run and never can as specified. It
// reports whether it did.
func (a *Agent) rejectPermanently(object *v1.Pod) bool {
	if !isToRun(object) {
		return false
	}
	rejection := a.permanentRejection(object)
	if rejection == (Rejection{}) {
		return false
	}
	a.reject(object, rejection)
	return true
}

// isToRun reports whether an object asks for a pod that runs: the pod has not ended, and is not
// being deleted.
func isToRun(object *v1.Pod) bool {
	return !statuswriter.IsTerminal(&object.Status) && object.DeletionTimestamp == nil
}

// withAPISource returns a copy of the object that has the source annotation of API server pods, for
// the runtime and the pod itself, whatever the annotation was.
func withAPISource(object *v1.Pod) *v1.Pod {
	sourced := *object
	sourced.Annotations = maps.Clone(object.Annotations)
	if sourced.Annotations == nil {
		sourced.Annotations = map[string]string{}
	}
	sourced.Annotations[manifest.ConfigSourceAnnotation] = "api"
	return &sourced
}

// sortForAdmission sorts the full names of pods of the API server: first the pods that are known or
// were started by an earlier agent, because they use resources already; then those that one has
// admitted; then the others, the oldest first.
func (a *Agent) sortForAdmission(names []string) []string {
	type item struct {
		name string
		turn admissionTurn
	}
	items := make([]item, len(names))
	for i, name := range names {
		items[i] = item{name, a.admissionTurn(name)}
	}
	slices.SortStableFunc(items, func(x, y item) int { return x.turn.compare(y.turn) })
	for i := range items {
		names[i] = items[i].name
	}
	return names
}

// admissionTurn is the place of a pod in the order of admission.
type admissionTurn struct {
	isNew   int // 1 if the pod is to be admitted again, 2 if it was not admitted yet
	created time.Time
}

func (t admissionTurn) compare(other admissionTurn) int {
	return cmp.Or(t.isNew-other.isNew, t.created.Compare(other.created))
}

// admissionTurn returns the place of the pod that the API server has under a full name.
func (a *Agent) admissionTurn(name string) admissionTurn {
	p := a.apiPod(name)
	switch {
	case p == nil || a.isKnownPod(string(p.UID)) || a.wasStarted(p):
		return admissionTurn{}
	case p.Status.StartTime != nil:
		return admissionTurn{isNew: 1}
	}
	return admissionTurn{isNew: 2, created: p.CreationTimestamp.Time}
}

// reapplyAPIPods applies all pods of the API server again. Some of them waited until the pods that
// earlier agents started, or the Node, were known.
func (a *Agent) reapplyAPIPods(now time.Time) {
	names := a.sortForAdmission(slices.Sorted(maps.Keys(a.state.APIPodUIDs)))
	if len(names) > apiPodsPerStep {
		a.updateAPIPods(names, now)
		return
	}
	for _, name := range names {
		a.reapplyAPIPod(name, now)
	}
}

// reapplyAPIPod applies a pod of the API server whose object has not changed.
func (a *Agent) reapplyAPIPod(name string, now time.Time) {
	if object := a.apiPod(name); object != nil {
		a.applyAPIPod(object, now)
		a.queue.enqueue(statuswriter.Key(a.state.APIPodUIDs[name]))
	}
}

// hasSameDesiredState reports whether two versions of an object describe the same desired pod.
func hasSameDesiredState(x, y *v1.Pod) bool {
	return x.UID == y.UID && x.DeletionTimestamp.Equal(y.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(x.DeletionGracePeriodSeconds, y.DeletionGracePeriodSeconds) &&
		statuswriter.IsTerminal(&x.Status) == statuswriter.IsTerminal(&y.Status) &&
		maps.Equal(x.Labels, y.Labels) && maps.Equal(x.Annotations, y.Annotations) &&
		(x.Generation == y.Generation && x.Generation != 0 ||
			equality.Semantic.DeepEqual(x.Spec, y.Spec))
}

// admitAPIPod reports whether a new pod of the API server is admitted. A pod that was rejected has
// failed for good, since its controller creates another one. A late event of the watch may show the
// object as it was before the rejection was written.
func (a *Agent) admitAPIPod(object *v1.Pod) bool {
	uid := string(object.UID)
	if a.state.APIRejections[uid].Phase == v1.PodFailed {
		return false
	}
	rejection := a.checkAdmission(object, false, a.activePodsInLoop(), true)
	if rejection == (Rejection{}) {
		a.clearRejection(uid)
		return true
	}
	a.reject(object, rejection)
	return false
}

// reject records that a pod of the API server is not run.
func (a *Agent) reject(object *v1.Pod, rejection Rejection) {
	uid := string(object.UID)
	if a.state.APIRejections[uid] != rejection {
		a.reportRejection(object, rejection)
	}
	a.setRejection(uid, rejection)
}

// setRejection sets the rejection of a pod of the API server.
func (a *Agent) setRejection(uid string, rejection Rejection) {
	if a.state.APIRejections == nil {
		a.state.APIRejections = map[string]Rejection{}
	}
	a.state.APIRejections[uid] = rejection
	a.waiting.set(uid, rejection)
}

// clearRejection drops the rejection of a pod of the API server.
func (a *Agent) clearRejection(uid string) {
	delete(a.state.APIRejections, uid)
	a.waiting.remove(uid)
}
