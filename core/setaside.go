package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/image"
	"seedlet.dev/core/mirror"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/qos"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Pods that are set aside. A panic ends the process, and the next agent would start from the same
// facts and panic again. So the boot event names the pods over which earlier agents have panicked
// (world.PodSetAside), and until its time has passed nothing is done for such a pod: it is neither
// applied, observed, planned nor admitted, and what the runtime has of it stays as it is. Its
// deletion waits as well. The pod keeps its name, its directories, its resources and its range of
// host IDs meanwhile. When the time has passed the next relist observes it, and it is applied like
// any other. The kubelet has no such state: a panic of a pod worker ends its process, and the next
// one starts from the same facts (HandleCrash in pod_workers.go).

// reasonPanicked is the reason in the status and in the event of a pod that is set aside.
const reasonPanicked = "AgentPanicked"

// setAsideOwner is the key of the timer at which pods that are set aside are released.
var setAsideOwner = timer.Key{Component: "setaside"}

// SetAside holds the facts about a pod that is set aside.
type SetAside struct {
	Until  time.Time `json:"until"`
	Panics int       `json:"panics"`
	// Silent is set if the agent has panicked even while the pod was set aside. Then its status is
	// not written either.
	Silent bool `json:"silent,omitempty"`
	// Spec is the desired pod; nil if no source has it.
	Spec     *v1.Pod `json:"spec,omitempty"`
	Reported bool    `json:"reported,omitempty"` // the event was recorded
	// FullName and IDs are those of the pod's objects in the runtime; empty if there are none.
	FullName       string         `json:"fullName,omitempty"`
	IDs            []userns.Range `json:"ids,omitempty"`
	ObjectIDs      []string       `json:"objectIDs,omitempty"`      // of its sandboxes and containers
	MayHaveStarted bool           `json:"mayHaveStarted,omitempty"` // by an earlier agent
}

// message returns why the pod is set aside, for its status.
func (e *SetAside) message() string {
	return fmt.Sprintf("The agent of the node has panicked %d times over this pod, which is left as "+
		"it is until %s", e.Panics, e.Until.UTC().Format(time.RFC3339))
}

// CurrentPod returns the UID of the pod that the current Step works on; empty between Steps, and
// while a Step works on something else. It is for a caller whose Step has panicked.
func (a *Agent) CurrentPod() string { return a.effects.CurrentPod() }

// workOn notes the pod that the agent works on from now on, and returns the one before.
func (a *Agent) workOn(uid string) (previous string) { return a.effects.WorkOn(uid) }

// podOfKey returns the UID of the pod that a component works on; empty if it is for no pod alone.
// What several pods share is one pod's until that one is set aside, and then the next one's. The
// rotation of logs, the removal of links and housekeeping go from pod to pod within a plan, and
// note each themselves. No pod is to blame for what is left: the facts of the machine, the node and
// the runtime, lists of everything, and files that name no pod.
func (a *Agent) podOfKey(key timer.Key) string {
	switch key.Component {
	case pod.Component, statuswriter.Component:
		return key.Name
	case mirror.Component:
		if static := a.staticPod(key.Name); static != nil {
			return string(static.UID)
		}
	case image.Component:
		return a.state.Images.LatestWaiter(key.Name)
	case objectcache.Component:
		return podUser(a.state.Objects.Watches[key.Name])
	case housekeeping.Owner.Component:
		return a.state.Housekeeping.RemovingUID
	}
	return ""
}

// podUser returns the first pod that uses what is watched or read; empty if the agent itself does,
// or pods of all namespaces.
func podUser(w *objectcache.Watch) string {
	if w == nil || len(w.Users) == 0 || w.Target.Namespace == "" ||
		slices.Contains(w.Users, watchUser) {
		return ""
	}
	return w.Users[0]
}

// podOfWatchEvent returns the UID of the pod that an event of a watch is for. A list of all pods is
// for none of them; each is noted when its object is applied.
func (a *Agent) podOfWatchEvent(body any) string {
	var id world.WatchID
	var object *world.Object
	switch body := body.(type) {
	case *world.ObjectsListed:
		id = body.Watch
	case *world.ObjectChanged:
		id, object = body.Watch, &body.Object
	case *world.ObjectGone:
		id, object = body.Watch, &body.Object
	case *world.WatchFailing:
		id = body.Watch
	}
	if object != nil && object.Pod != nil {
		return string(object.Pod.UID)
	}
	return podUser(a.state.Objects.Watches[a.state.Objects.Keys[id]])
}

// setAsideAtBoot sets the pods aside that the boot event names.
func (a *Agent) setAsideAtBoot(boot *world.Boot, now time.Time) {
	for _, noted := range boot.SetAside {
		if noted.UID == "" || noted.Remaining <= 0 {
			continue
		}
		if a.state.SetAside == nil {
			a.state.SetAside = map[string]*SetAside{}
		}
		a.state.SetAside[noted.UID] = &SetAside{Until: now.Add(noted.Remaining),
			Panics: noted.Panics, Silent: noted.Silent}
		a.effects.Log(world.LevelError, "The agent has panicked over a pod, which is left as it is for "+
			"a while", "podUID", noted.UID, "panics", noted.Panics, "time", noted.Remaining.String())
		a.queue.enqueue(setAsideOwner)
	}
}

// isSetAside reports whether a pod is set aside.
func (a *Agent) isSetAside(uid string) bool { return a.state.SetAside[uid] != nil }

// isSilent reports whether a pod is set aside, and its status is not written either.
func (a *Agent) isSilent(uid string) bool {
	e := a.state.SetAside[uid]
	return e != nil && e.Silent
}

// setAsideUIDs returns the sorted UIDs of the pods that are set aside.
func (a *Agent) setAsideUIDs() []string { return slices.Sorted(maps.Keys(a.state.SetAside)) }

// keepAside records the desired state of a pod that is set aside, and reports it once.
func (a *Agent) keepAside(spec *v1.Pod) {
	e := a.state.SetAside[string(spec.UID)]
	e.Spec = spec
	if a.state.QOS.Count(string(spec.UID), qos.ShareOf(spec, criconfig.QOS(spec))) {
		a.queue.enqueue(qos.Owner)
	}
	if !e.Reported {
		e.Reported = true
		a.effects.RecordEvent(pod.ObjectReference(spec), v1.EventTypeWarning, reasonPanicked, "%s",
			e.message())
	}
}

// forgetStaticSetAside drops the static pods that are set aside, before the manifests are gone
// through again.
func (a *Agent) forgetStaticSetAside() {
	for uid, e := range a.state.SetAside { //ordered: each for itself
		if e.Spec != nil && a.state.APIPodUIDs[fullName(e.Spec)] != uid {
			e.Spec = nil
		}
	}
}

// observeSetAside handles a list's object of a pod that is set aside, and reports whether it did.
// Once the time of the pod has passed, a list that was requested since is observed.
func (a *Agent) observeSetAside(uid, fullName, id string, sandbox *pleg.Sandbox,
	requestedAt time.Time) bool {
	e := a.state.SetAside[uid]
	if e == nil || !requestedAt.Before(e.Until) {
		return false
	}
	e.FullName, e.ObjectIDs = fullName, append(e.ObjectIDs, id)
	if sandbox != nil {
		if ids := userns.Parse(sandbox.UserNamespace); !ids.IsEmpty() {
			e.IDs = append(e.IDs, ids)
		}
	}
	return true
}

// forgetSetAsideObjects drops what earlier lists had of the pods that are set aside. It returns the
// full names that they held.
func (a *Agent) forgetSetAsideObjects() (names []string) {
	for _, e := range a.state.SetAside { //ordered: the same for each, and the names are sorted
		if e.FullName != "" {
			names = append(names, e.FullName)
		}
		e.FullName, e.IDs, e.ObjectIDs = "", nil, nil
	}
	slices.Sort(names)
	return names
}

// enqueueFreedNames enqueues the pods that may wait for one of the full names which no pod that is
// set aside holds any more.
func (a *Agent) enqueueFreedNames(names []string) {
	for _, name := range names {
		if !a.isNameSetAside(name) {
			a.enqueueNamed(name, "")
		}
	}
}

// isNameSetAside reports whether a pod that is set aside holds a full name.
func (a *Agent) isNameSetAside(name string) bool {
	for _, e := range a.state.SetAside { //ordered: whether there is one
		if e.FullName == name {
			return true
		}
	}
	return false
}

// planSetAside requests a relist for the pods whose time has passed, and returns when the next one
// is released.
func (a *Agent) planSetAside(now time.Time) time.Time {
	var next time.Time
	for _, e := range a.state.SetAside { //ordered: the soonest
		if now.Before(e.Until) {
			next = timer.Soonest(next, e.Until)
		} else {
			a.requestRelist(e.Until)
		}
	}
	return next
}

// dueSetAside returns the sorted UIDs of the pods whose time had passed when a relist was
// requested.
func (a *Agent) dueSetAside(requestedAt time.Time) []string {
	return slices.DeleteFunc(a.setAsideUIDs(), func(uid string) bool {
		return requestedAt.Before(a.state.SetAside[uid].Until)
	})
}

// release applies pods again that were set aside, after a relist has observed them.
func (a *Agent) release(uids []string, now time.Time) {
	if len(uids) == 0 {
		return
	}
	for _, uid := range uids {
		e := a.state.SetAside[uid]
		delete(a.state.SetAside, uid)
		if !a.isKnownPod(uid) {
			a.dropShare(uid)
		}
		if e.MayHaveStarted {
			a.state.PodDirs.Add(uid)
		}
		a.effects.Log(world.LevelInfo, "A pod is handled again over which the agent has panicked",
			"podUID", uid, "panics", e.Panics)
		if e.Spec != nil && a.state.APIPodUIDs[fullName(e.Spec)] == uid {
			a.updateAPIPod(fullName(e.Spec), now)
		}
	}
	a.reconcilePods(now)
	a.enqueuePods() // some wait for the name of a pod that is gone
}

// noteSetAsideDirs records which of the pods that are set aside have a directory.
func (a *Agent) noteSetAsideDirs() {
	if !a.state.PodDirs.Listed {
		return
	}
	for uid, e := range a.state.SetAside { //ordered: each for itself
		e.MayHaveStarted = a.state.PodDirs.MayHaveStarted(uid)
	}
}

// activeSetAside returns the pods that are set aside and may use resources of the node.
func (a *Agent) activeSetAside() []*v1.Pod {
	var active []*v1.Pod
	for _, uid := range a.setAsideUIDs() {
		spec := a.state.SetAside[uid].Spec
		if spec != nil && !statuswriter.IsTerminal(&spec.Status) {
			active = append(active, spec)
		}
	}
	return active
}

// planSetAsideStatus plans the write of the status of a pod that is set aside: what is stored, with
// the reason. A terminal status stays as it is.
func (a *Agent) planSetAsideStatus(uid string) time.Time {
	entry, e := a.state.StatusWriter.Entries[uid], a.state.SetAside[uid]
	if entry == nil || e.Silent {
		return time.Time{}
	}
	var desired statuswriter.Desired
	if !statuswriter.IsTerminal(&entry.Stored.Status) {
		desired.Status = &servedSetAside(entry.Stored, e).Status
	}
	return a.state.StatusWriter.Plan(uid, desired, &a.effects)
}

// servedSetAside returns a pod that is set aside, with its stored status and the reason.
func servedSetAside(object *v1.Pod, e *SetAside) *v1.Pod {
	served := *object
	if !statuswriter.IsTerminal(&served.Status) {
		served.Status.Reason, served.Status.Message = reasonPanicked,
			budget.CutMessage(e.message())
	}
	if served.Status.Phase == "" {
		served.Status.Phase = v1.PodUnknown // of a static pod, whose manifest has no status
	}
	return &served
}

// fullName returns the namespace and name of a pod.
func fullName(spec *v1.Pod) string { return spec.Namespace + "/" + spec.Name }
