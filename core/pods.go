package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/image"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// reconcile makes the pods known that the sources want, and says to the others that nobody wants
// them. The latter only once everything has been seen.
func (a *Agent) reconcile(now time.Time) {
	run, refused := a.admit()
	a.reportRefused(refused)
	wanted := make(map[string]bool, len(run))
	for _, spec := range run {
		uid := string(spec.UID)
		wanted[uid] = true
		p := a.state.Pods[uid]
		switch {
		case p == nil:
			a.addPod(pod.New(spec, !a.state.Relist.AsOf.IsZero(), !a.state.Begun.May(uid), now))
		case p.Gone && same(p.Next, spec) || !p.Gone && same(p.Spec, spec):
			continue // nothing new
		default:
			p.Want(spec, now)
			a.countChange(uid)
		}
		a.touchPod(uid)
	}
	if a.state.API {
		for _, spec := range a.state.Manifests.Pods() {
			a.mirrored(spec.Namespace + "/" + spec.Name)
		}
		for _, name := range a.mirrors() {
			a.mirrored(name) // its static pod may have gone, perhaps before this life
		}
	}
	if !a.seenAll() {
		return
	}
	if a.state.Begun.Listed {
		a.state.Begun.UIDs = nil // those that are wanted are known now, and nobody wants the others
	}
	for _, uid := range a.uids {
		p := a.state.Pods[uid]
		if wanted[uid] || a.isBound(p) || p.Gone && p.Next == nil {
			continue
		}
		p.Unwant(now)
		a.touchPod(uid)
	}
	a.touched.add(housekeeping.Owner)
	a.touched.add(logs.Owner)
	a.touched.add(logs.LinksOwner)
}

// same says whether two pods are one reading of one manifest.
func same(x, y *v1.Pod) bool {
	if x == nil || y == nil {
		return x == y
	}
	const seen = manifest.ConfigSeenAnnotation
	return x == y || x.UID == y.UID && x.Namespace == y.Namespace && x.Name == y.Name &&
		x.Annotations[seen] == y.Annotations[seen] &&
		equality.Semantic.DeepEqual(x.Spec, y.Spec) // two files may be seen at one instant
}

func (a *Agent) reportRefused(refused map[string]Refusal) {
	for _, p := range a.state.Manifests.Pods() {
		why, is := refused[string(p.UID)]
		if is && a.state.Refused[string(p.UID)] != why {
			a.tellRefused(p, why)
		}
	}
	a.state.Refused = refused
}

// relisted hands what a complete relist saw to the pods.
func (a *Agent) relisted() {
	s := &a.state
	if s.Relist.Overdue {
		s.Relist.Overdue = false
		a.runtimeChanged() // it answers again
		a.touchNode()
	}
	first := s.Relist.Number == 1
	if first {
		a.touchNode()
	}
	number, asked := s.Relist.Number, s.Relist.AsOf
	for i := range s.Relist.Sandboxes {
		item := &s.Relist.Sandboxes[i]
		p := a.podOf(item.UID, item.Namespace, item.Name)
		if p.ObserveSandbox(item, number, asked) {
			a.touchPod(p.UID)
		}
	}
	for i := range s.Relist.Items {
		item := &s.Relist.Items[i]
		p := a.podOf(item.UID, item.Namespace, item.Pod)
		if p.ObserveContainer(item, number, asked, s.Last) {
			a.touchPod(p.UID)
		}
	}
	s.Relist.Applied()
	for _, uid := range a.uids {
		p := s.Pods[uid]
		if !asked.After(p.Removed) {
			a.needList(p.Removed) // this one could tell it nothing new
		}
		if p.ObserveEnd(number, asked) {
			a.touchPod(uid)
		}
		if p.Spec == nil && !p.Gone && !first && a.seenAll() {
			p.Unwant(s.Last) // only now, when its containers say how long they may take
		}
	}
	if first {
		a.wantAll(s.Last)
	}
}

// told hands an event of the runtime's stream to the pod that it is about. What nobody knows is
// for a list to tell.
func (a *Agent) told(body *runtimeapi.ContainerEventResponse, now time.Time) {
	a.state.Events.Taken++
	ev := pleg.ReadEvent(body)
	p := a.state.Pods[ev.UID]
	if p == nil {
		a.needList(now)
		return
	}
	news, look := p.ObserveEvent(&ev, now)
	if look {
		a.needList(now)
	}
	if news {
		a.touchPod(p.UID)
	}
}

// notReady is why nothing may be made now; empty if it may. That somebody was told so because no
// relist succeeds is remembered: the next one that does ends the wait.
func (a *Agent) notReady() string {
	s := &a.state
	if why := s.Runtime.NotReady(); why != "" {
		return why
	}
	why := s.Relist.Health(&s.Events, s.Last, s.Booted)
	s.Relist.Overdue = s.Relist.Overdue || why != ""
	return why
}

// runtimeChanged touches what waits for the runtime to be ready.
func (a *Agent) runtimeChanged() {
	for _, uid := range a.uids {
		if a.state.Pods[uid].RuntimeWait != "" {
			a.touchPod(uid)
		}
	}
	for _, name := range a.state.Images.Names() {
		a.touched.add(image.Key(name))
	}
}

// needList has the runtime listed once more, after the given time.
func (a *Agent) needList(since time.Time) {
	if a.state.Relist.Need(since) {
		a.touched.add(pleg.Owner)
	}
}

// podOf is the pod with the given UID; one that only the runtime knows is made. If what is wanted
// with the UID has another name, what runs is not its: that ends first.
func (a *Agent) podOf(uid, namespace, name string) *pod.Pod {
	if p := a.state.Pods[uid]; p != nil {
		if p.Observed || p.Namespace == namespace && p.Name == name {
			return p
		}
		a.removePod(p) // it is wanted again as soon as this list has been taken
	}
	p := pod.Orphan(uid, namespace, name, a.state.Last)
	a.addPod(p)
	return p
}

func (a *Agent) addPod(p *pod.Pod) {
	a.state.Pods[p.UID] = p
	a.index(p)
	a.countNew(p)
}

// index adds a pod to what is derived from the pods.
func (a *Agent) index(p *pod.Pod) {
	if a.names == nil {
		a.names = map[string][]string{}
	}
	a.uids = insertSorted(a.uids, p.UID)
	a.names[p.FullName()] = insertSorted(a.names[p.FullName()], p.UID)
	delete(a.shown, p.UID)
}

func (a *Agent) removePod(p *pod.Pod) {
	delete(a.state.Pods, p.UID)
	a.countGone(p.UID)
	a.uids = deleteSorted(a.uids, p.UID)
	name := p.FullName()
	if a.names[name] = deleteSorted(a.names[name], p.UID); len(a.names[name]) == 0 {
		delete(a.names, name)
	}
}

func insertSorted(list []string, s string) []string {
	i, found := slices.BinarySearch(list, s)
	if found {
		panic("core: a pod is added twice: " + s)
	}
	return slices.Insert(list, i, s)
}

func deleteSorted(list []string, s string) []string {
	i, found := slices.BinarySearch(list, s)
	if !found {
		panic("core: a pod is removed that is not there: " + s)
	}
	return slices.Delete(list, i, i+1)
}

// planPod plans a pod, and forgets it once nothing is left of it. When it no longer holds its
// name, others that wait for the name are touched.
func (a *Agent) planPod(p *pod.Pod) time.Time {
	delete(a.shown, p.UID)
	held, stage, evicted := p.Holds(), p.Stage, p.Evicted()
	turn, _ := a.state.Images.Next()
	wake := p.Plan(a.env(p))
	a.countPod(p)
	if p.Evicted() && !evicted {
		a.state.Tally.Evicted.Add(signalEmptyDir)
	}
	if next, waits := a.state.Images.Next(); waits && next != turn {
		a.touched.add(next) // the pod has given up an earlier turn
	}
	if !p.Stale.IsZero() {
		a.needList(p.Stale)
	}
	if a.state.Status.Entries[p.UID] != nil {
		a.touched.add(status.Key(p.UID))
	}
	if p.Forgotten {
		a.removePod(p)
		switch {
		case p.Next != nil:
			a.countRestarted(p)
			a.addPod(pod.New(p.Next, true, true, a.state.Last))
			a.touchPod(p.UID)
		case p.Spec == nil && a.isBound(p): // it has waited for what came late of it to end
			a.bindAgain(p.FullName(), a.state.Last)
		}
	}
	if p.Forgotten || held && !p.Holds() {
		a.touchNamesakes(p)
	}
	if p.Forgotten || p.Stage != stage && p.Stage == pod.Terminated || a.looksAgain() {
		a.retryAdmission()
	}
	return wake
}

func (a *Agent) touchNamesakes(p *pod.Pod) {
	for _, uid := range a.names[p.FullName()] {
		if uid != p.UID {
			a.touchPod(uid)
		}
	}
}

// nameTaken says whether another pod of the same full name has, or may have, something that
// runs (upstream #97722).
func (a *Agent) nameTaken(p *pod.Pod) bool {
	for _, uid := range a.names[p.FullName()] {
		if uid != p.UID && a.state.Pods[uid].Holds() {
			return true
		}
	}
	return false
}

// runtimeAnswered takes what the runtime says of itself. Pods may have waited for that.
func (a *Agent) runtimeAnswered(r op.Record, ev world.Event) {
	s := &a.state
	not, network := s.Runtime.NotReady(), s.Runtime.NetworkNotReady()
	told := !s.Runtime.AsOf.IsZero()
	name := s.Runtime.Name
	s.Runtime.Answered(r, ev, &a.out)
	if s.Runtime.Name != name {
		clear(a.shown) // it is part of the ids of containers
	}
	a.touchNode()
	if not != s.Runtime.NotReady() || network != s.Runtime.NetworkNotReady() {
		a.runtimeChanged()
	}
	news := !told && !s.Runtime.AsOf.IsZero()
	if s.Node.RecursiveReadOnly != s.Runtime.RecursiveReadOnly {
		s.Node.RecursiveReadOnly, news = s.Runtime.RecursiveReadOnly, true
	}
	if s.Runtime.Configured && s.Node.Cgroups.Settle(s.Runtime.CgroupDriver) {
		news = true
	}
	if news {
		a.touchPods()
	}
}

// takenIDs are the ranges of ids of all pods but one. Those that only a sandbox has can be left
// out.
func (a *Agent) takenIDs(uid string, sandboxes bool) []userns.Range {
	var taken []userns.Range
	for _, other := range a.uids {
		switch p := a.state.Pods[other]; {
		case other == uid:
		case sandboxes:
			taken = append(taken, p.IDsHeld()...)
		case !p.IDs.None():
			taken = append(taken, p.IDs)
		}
	}
	return taken
}

// list is the pods as the API shows them, by namespace, name and UID. One that is gone but for what
// the runtime does not remove is not shown.
func (a *Agent) list() []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(a.uids))
	for _, uid := range a.uids {
		if a.state.Pods[uid].Cleared {
			continue
		}
		if shown := a.show(uid); shown != nil {
			pods = append(pods, shown)
		}
	}
	for _, spec := range a.state.Manifests.Pods() {
		if a.known(string(spec.UID)) {
			continue
		}
		why, is := a.state.Refused[string(spec.UID)]
		if !is {
			why.Phase = v1.PodUnknown // it has not been decided yet
		}
		pods = append(pods, refusedPod(spec, why))
	}
	for _, name := range slices.Sorted(maps.Keys(a.state.Bound)) {
		uid := a.state.Bound[name]
		if why, is := a.state.Rejected[uid]; is && !a.known(uid) {
			// Before the server has it another agent may yet take the pod.
			why.Phase = v1.PodPending
			pods = append(pods, refusedPod(a.boundPod(name), why))
		}
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return pods
}

// show is the pod as the API shows it; nil if it is not shown. It is made once for each change: a
// change that shows has the pod planned.
func (a *Agent) show(uid string) *v1.Pod {
	shown, made := a.shown[uid]
	if !made {
		shown = a.state.Pods[uid].API(&a.state.Node, a.state.Runtime.Name)
		if a.shown == nil {
			a.shown = map[string]*v1.Pod{}
		}
		a.shown[uid] = shown
	}
	return shown
}
