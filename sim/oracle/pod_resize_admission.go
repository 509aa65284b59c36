package oracle

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/sim/truth"
)

// resizeAdmission fires when a resize is allocated that the kubelet's admission refuses, when one
// waits that fits, and when one is said to be complete that is not. The Event ResizeStarted, and a
// status with other allocated resources, tell of an allocation. The agent has decided between the
// change of the spec and that, so it fires if the reason to refuse was there all the time between.
type resizeAdmission struct {
	room *reservedRoom
	// fitsSince is since when a resize has waited although it fits, by the pod's UID.
	fitsSince map[string]time.Time
}

func (*resizeAdmission) describe() Entry {
	return Entry{"resize-admission", "No resize is allocated while a condition of the node or a " +
		"shutdown forbids that, beyond what the node has, or into room that is made for a critical " +
		"pod. One that fits, and that nothing forbids, is allocated in time. One that is said to be " +
		"complete has its resources in the runtime."}
}

const (
	reasonResizeStarted   = "ResizeStarted"
	reasonResizeCompleted = "ResizeCompleted"
)

// askedResize is a generation of a pod of the API server, and when its spec was written.
type askedResize struct {
	spec *v1.Pod
	at   time.Time
}

// reservedRoom is what becomes free for a critical pod, since another one is pre-empted for it.
type reservedRoom struct {
	preemptors map[*pod]*v1.Pod // those that it can be for, with their specs then
	victims    map[string]bool  // by UID
	since      time.Time
}

// noteAsked notes a generation of the pod.
func (p *pod) noteAsked(spec *v1.Pod, now time.Time) {
	if _, known := p.asked[spec.Generation]; known || p.static {
		return
	}
	if p.asked == nil {
		p.asked = map[int64]askedResize{}
	}
	p.asked[spec.Generation] = askedResize{spec, now}
}

// resizeSummary is what the message of an Event about a resize says.
type resizeSummary struct {
	InitContainers []v1.Container `json:"initContainers"`
	Containers     []v1.Container `json:"containers"`
	Generation     int64          `json:"generation"`
}

// summaryOf returns what an Event about a resize says; zero if it is about something else.
func summaryOf(f *truth.Fact) (s resizeSummary) {
	_, text, _ := strings.Cut(f.Message, ": ")
	if json.Unmarshal([]byte(text), &s) != nil {
		return resizeSummary{}
	}
	return s
}

// completedSpec returns the spec that an Event says is carried out; nil if that is not known. The
// generation is that of the newest spec if the agent was started meanwhile, as the kubelet's is:
// the resources tell more. A pod as a whole has none of them in the Event.
func (p *pod) completedSpec(s *resizeSummary) *v1.Pod {
	newest := p.asked[s.Generation].spec
	if newest == nil || newest.Spec.Resources != nil {
		return nil
	}
	said := newest.DeepCopy()
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			if c := containerOf(said, list[i].Name); c != nil {
				c.Resources = list[i].Resources
			}
		}
	}
	return said
}

func (z *resizeAdmission) checkFact(m *model, f *truth.Fact) *finding {
	switch {
	case f.Kind == truth.EventRecorded && f.Reason == reasonPreempted:
		return z.noteVictim(m, f)
	case f.Kind == truth.EventRecorded && m.pods[f.PodUID] != nil:
		p, summary := m.pods[f.PodUID], summaryOf(f)
		asked, known := p.asked[summary.Generation]
		switch {
		case !known:
		case f.Reason == reasonResizeStarted:
			previous := p.granted()
			p.grantedSpec = asked.spec
			if finding := z.checkGrant(m, p, asked, f.Time); finding != nil {
				return finding
			}
			return z.checkReserved(m, p, asked, previous, f.Time)
		case f.Reason == reasonResizeCompleted:
			return m.checkCompletion(p, p.completedSpec(&summary), f.Time)
		}
	case isAgentStatus(f) && f.Write.Before.Pod != nil:
		p := m.pods[string(f.Write.After.Pod.UID)]
		if finding := m.checkResized(p, f.Write.After.Pod, f.Time); finding != nil {
			return finding
		}
		return z.checkAny(m, p, p.newAllocations(f.Write.Before.Pod, f.Write.After.Pod), f.Time)
	}
	return nil
}

// checkAny checks that one of several generations may have been allocated.
func (z *resizeAdmission) checkAny(m *model, p *pod, all []askedResize,
	now time.Time) (finding *finding) {
	for _, asked := range all {
		if finding = z.checkGrant(m, p, asked, now); finding == nil {
			return nil
		}
	}
	return finding
}

// newAllocations returns the generations whose requests a status says that the pod has allocated,
// if the status before said something else of the same containers, in the order of time.
func (p *pod) newAllocations(before, now *v1.Pod) (all []askedResize) {
	if p == nil || p.static {
		return nil
	}
	changed := false
	for i := range now.Status.ContainerStatuses {
		has := &now.Status.ContainerStatuses[i]
		for j := range before.Status.ContainerStatuses {
			had := &before.Status.ContainerStatuses[j]
			changed = changed || had.ContainerID == has.ContainerID && has.State.Running != nil &&
				had.AllocatedResources != nil && !isAllocated(has.AllocatedResources, had.AllocatedResources)
		}
	}
	if !changed {
		return nil
	}
	for _, a := range p.asked { //ordered: sorted below
		isOf := !slices.ContainsFunc(now.Status.ContainerStatuses, func(s v1.ContainerStatus) bool {
			c := containerOf(a.spec, s.Name)
			return c == nil || !isAllocated(s.AllocatedResources, c.Resources.Requests)
		})
		if isOf {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(x, y askedResize) int {
		return cmp.Compare(x.spec.Generation, y.spec.Generation)
	})
	return all
}

// checkGrant checks that a resize may have been allocated at some time since it was asked for.
func (z *resizeAdmission) checkGrant(m *model, p *pod, asked askedResize,
	now time.Time) *finding {
	if p.static || p.wasRemoved() || m.mayHaveLostAllocations() {
		return nil
	}
	if c := m.forbiddingCondition(p, asked.at, now); c != "" {
		return findingf("a resize of pod %s is allocated, although the node has had %s since before "+
			"it was asked for", p, c)
	}
	if m.wasShuttingDown(asked.at, now) {
		return findingf("a resize of pod %s is allocated, although the machine has been shutting down "+
			"since before it was asked for", p)
	}
	return m.checkRoom(p, asked, now)
}

// forbiddingCondition returns a condition of the node that has kept every resize of the pod from
// being allocated from one time to another; empty if none has. Upstream: Admit in
// pkg/kubelet/eviction/eviction_manager.go.
func (m *model) forbiddingCondition(p *pod, from, now time.Time) v1.NodeConditionType {
	if m.opts.NodeUsage == nil || p.isCritical() ||
		!m.agentStartedAt.Before(from.Add(-time.Second)) {
		return ""
	}
	for _, c := range pressureConditions {
		last, since := m.pressure.lastMet[c], m.pressure.trueSince[c]
		isForAll := c != v1.NodeMemoryPressure || p.isRejectedForMemory()
		if isForAll && !since.IsZero() && since.Before(from.Add(-time.Second)) &&
			now.Sub(last) < m.opts.Pressure.Transition {
			return c
		}
	}
	return ""
}

// wasShuttingDown reports whether the agent must have known from one time to another that the
// machine shuts down.
func (m *model) wasShuttingDown(from, now time.Time) bool {
	s := &m.shutdown
	return m.opts.Shutdown != nil && s.underWay && !from.Before(s.since.Add(transitSlack)) &&
		m.mustKnowOfShutdown(from, now)
}

// checkRoom checks that the node has what a resize requests, beside what the other pods hold.
func (m *model) checkRoom(p *pod, asked askedResize, now time.Time) *finding {
	if len(m.opts.Allocatable) == 0 {
		return nil
	}
	capacity := m.allocatable
	if !m.agentStartedAt.Before(asked.at) {
		capacity = m.mostAllocatable // an earlier agent may have decided
	}
	for _, name := range computeResources {
		used, wanted := int64(0), amountRequested(asked.spec, name)
		for _, other := range m.podsInOrder {
			if other != p && other.occupiesNode() {
				used += other.leastHeld(name)
			}
		}
		if wanted > capacity(name)-used {
			return findingf("pod %s has %d of %s allocated by a resize, but %d of %d are used", p,
				wanted, name, used, capacity(name))
		}
	}
	return nil
}

// leastHeld returns the least that the pod holds. What a resize gives up it holds until its running
// containers have less, which the runtime knows of CPU only; its cgroup shrinks after them.
func (p *pod) leastHeld(name v1.ResourceName) int64 {
	least := p.leastRequests(name)
	if p.grantedSpec == nil {
		return least
	}
	held := int64(0)
	for _, c := range p.containers {
		if name == v1.ResourceCPU && c.state == running && c.limits.CPUShares > 2 {
			held += int64(c.limits.CPUShares) * 1000 / 1024
		}
	}
	return min(least, max(held, amountRequested(p.grantedSpec, name)))
}

// noteVictim notes for which pods another one may be pre-empted.
func (z *resizeAdmission) noteVictim(m *model, f *truth.Fact) *finding {
	victim, preemptors := m.pods[f.PodUID], map[*pod]*v1.Pod{}
	if victim == nil {
		return nil
	}
	for _, q := range m.criticalPods {
		if q != victim && q.mayNeedRoom() && q.canPreempt(victim) {
			preemptors[q] = q.spec
		}
	}
	if z.room == nil || !maps.Equal(z.room.preemptors, preemptors) {
		z.room = &reservedRoom{preemptors, map[string]bool{}, f.Time}
	}
	for q := range preemptors { //ordered: it is the only one
		if len(preemptors) == 1 && z.isForResize(m, victim, q) {
			return findingf("pod %s is pre-empted for %s, which fits when those have ended that were "+
				"pre-empted since %s, without a later resize of the new victim", victim, q,
				z.room.since.Format(time.TimeOnly))
		}
	}
	z.room.victims[victim.uid] = true
	return nil
}

// isForResize reports whether a pod is pre-empted only because a resize, which was asked for since
// others were pre-empted, has been allocated to it.
func (z *resizeAdmission) isForResize(m *model, victim, q *pod) bool {
	r := z.room
	if victim.spec == nil || victim.static || len(m.opts.Allocatable) == 0 ||
		len(r.victims) == 0 || !m.agentUpSince(r.since) || q.hostPortConflict(victim) != 0 ||
		!victim.asked[victim.spec.Generation].at.After(r.since.Add(transitSlack)) {
		return false
	}
	had := victim.granted()
	for _, name := range checkedResources {
		used := q.mostRequests(name) + 1 // pod
		if name != v1.ResourcePods {
			used = q.mostRequests(name) + amountRequested(had, name)
		}
		for _, other := range m.podsInOrder {
			if other != q && other != victim && !r.victims[other.uid] && len(other.specs) > 0 &&
				other.mayOccupyNode(r.since.Add(-observationBound)) {
				used += other.mostRequests(name)
			}
		}
		if used > m.allocatable(name) {
			return false
		}
	}
	return true
}

// checkReserved checks that a pod does not grow into the room that is made for a critical one: what
// that needs does not fit any more, even when all victims have ended.
func (z *resizeAdmission) checkReserved(m *model, p *pod, asked askedResize, previous *v1.Pod,
	now time.Time) *finding {
	r := z.room
	if r == nil || p.isCritical() || len(m.opts.Allocatable) == 0 || !m.agentUpSince(r.since) {
		return nil
	}
	isOld := now.Sub(r.since) > recordBound && !m.faultPossible("WriteFile", r.since, now)
	if !isOld && !asked.at.After(r.since.Add(transitSlack)) {
		return nil // it may have been decided before, and recorded meanwhile
	}
	for q, spec := range r.preemptors { //ordered: all of them
		if q.spec != spec || !q.mayNeedRoom() {
			z.room = nil
			return nil
		}
		if !z.isTaken(m, p, asked, previous, q) {
			return nil // it may be for this one
		}
	}
	return findingf("pod %s has more allocated by a resize, although pods were pre-empted since %s "+
		"for one that does not fit then", p, r.since.Format(time.TimeOnly))
}

// isTaken reports whether a critical pod does not fit beside a resize that asks for more than a pod
// had before.
func (z *resizeAdmission) isTaken(m *model, p *pod, asked askedResize, previous *v1.Pod,
	q *pod) bool {
	for _, name := range computeResources {
		wanted := amountRequested(asked.spec, name)
		if wanted <= amountRequested(previous, name) {
			continue
		}
		used := amountRequested(q.spec, name)
		for _, other := range m.podsInOrder {
			if other != p && other != q && !z.room.victims[other.uid] && other.occupiesNode() &&
				other.firstStartedAt.Before(z.room.since) {
				used += other.leastHeld(name)
			}
		}
		if wanted > m.allocatable(name)-used {
			return true
		}
	}
	return false
}

// mayNeedRoom reports whether the pod is desired and was not started, or asks for more than a
// resize has allocated to it.
func (p *pod) mayNeedRoom() bool {
	switch {
	case p.spec == nil || p.rejected:
		return false
	case p.firstStartedAt.IsZero():
		return true
	case p.static:
		return false
	}
	granted := p.granted()
	return slices.ContainsFunc(computeResources, func(name v1.ResourceName) bool {
		return amountRequested(p.spec, name) > amountRequested(granted, name)
	})
}

// granted returns the spec whose resources are allocated to the pod: the first one, unless a resize
// was allocated since.
func (p *pod) granted() *v1.Pod { return cmp.Or(p.grantedSpec, p.specs[0]) }

// recordBound is how long the record of a decision takes without a fault.
const recordBound = time.Second

// lateUpdateBound is how long an update that was given up may still take effect.
const lateUpdateBound = 150 * time.Second

// checkResized checks a status that says that a resize is complete: the newest generation is
// observed, no condition says otherwise, and the containers have what they ask for.
func (m *model) checkResized(p *pod, object *v1.Pod, now time.Time) *finding {
	s := &object.Status
	if p == nil || !p.wasResized() || p.liveContainers == 0 ||
		s.ObservedGeneration != object.Generation || object.DeletionTimestamp != nil ||
		slices.ContainsFunc(s.Conditions, isOfResize) {
		return nil
	}
	for _, has := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		spec := containerOf(object, has.Name)
		if has.State.Running == nil || has.Resources == nil || spec == nil ||
			!equality.Semantic.DeepEqual(has.Resources.Limits, spec.Resources.Limits) ||
			!equality.Semantic.DeepEqual(has.Resources.Requests, spec.Resources.Requests) ||
			!isAllocated(has.AllocatedResources, spec.Resources.Requests) {
			return nil // the resize is not reported as complete, or the pod ends
		}
	}
	return m.checkCompletion(p, p.spec, now)
}

// isOfResize reports whether a condition says that a resize is not complete.
func isOfResize(c v1.PodCondition) bool {
	return c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress
}

// checkCompletion checks that the runtime has what an Event or a status says is carried out, unless
// the pod has changed since.
func (m *model) checkCompletion(p *pod, said *v1.Pod, now time.Time) *finding {
	newest := p.newestSandbox()
	if newest == nil || said == nil || p.spec == nil || p.spec.Generation != said.Generation ||
		p.wasRemoved() || !m.opts.Cgroups.PerPod || m.anyFaultPossible(now.Add(-lateUpdateBound), now,
		"UpdateContainerResources", "SetCgroup", "ListContainers", "ListPodSandbox") {
		return nil
	}
	if has, want := m.cgroups[newest.cgroup], m.limitsOf(said); has != want {
		return findingf("a resize of pod %s is said to be complete, but its cgroup has %+v, want %+v", p,
			has, want)
	}
	for _, c := range p.containers {
		spec := containerOf(said, c.name)
		if c.state != running || c.sandbox != newest || spec == nil || p.isEphemeral(c.name) {
			continue
		}
		if want := m.opts.resourcesOf(said, spec); c.limits.MemoryBytes != want.MemoryBytes ||
			c.limits.CPUQuota != want.CPUQuota || c.limits.CPUShares != want.CPUShares {
			return findingf("a resize of pod %s is said to be complete, but %s has %+v, want %+v", p, c,
				c.limits, want)
		}
	}
	return nil
}

// grantBound is how long a resize may wait that fits, without a fault.
const grantBound = 20 * time.Second

// grantCalls are the calls that a resize may wait for.
var grantCalls = []string{"WriteFile", "ReadFiles", "PatchObject", "WatchObjects", "ObjectChanged",
	"ListContainers", "ListPodSandbox", "ContainerStatus", "PodSandboxStatus", "MeasureNode",
	"MeasureFilesystem", "DelayShutdown", "StopContainer", "StopPodSandbox", "SetCgroup",
	"UpdateContainerResources", "ContainerStats", "GetObject", "ListDir", "RuntimeConfig"}

// checkServed finds a resize that waits although it has fit for long.
func (z *resizeAdmission) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if len(m.opts.Allocatable) == 0 || m.opts.IsHostile != nil {
		return nil
	}
	for _, p := range m.podsInOrder {
		if !m.mustBeGranted(p, now) {
			delete(z.fitsSince, p.uid)
			continue
		}
		since, known := z.fitsSince[p.uid]
		if !known {
			if z.fitsSince == nil {
				z.fitsSince = map[string]time.Time{}
			}
			z.fitsSince[p.uid], since = now, now
		}
		if now.Sub(since) > grantBound && m.agentUpSince(since) &&
			!m.anyFaultPossible(since.Add(-grantBound), now, grantCalls...) {
			return findingf("the resize of pod %s has waited since %s, although it fits: %s", p,
				since.Format(time.TimeOnly), p.condition(v1.PodResizePending).Message)
		}
	}
	return nil
}

// mustBeGranted reports whether the resize of a pod waits, although it certainly fits and nothing
// can forbid it.
func (m *model) mustBeGranted(p *pod, now time.Time) bool {
	if p.static || p.spec == nil || len(p.specs) < 2 || p.liveContainers == 0 || p.wasRemoved() ||
		m.agentDown {
		return false
	}
	c := p.condition(v1.PodResizePending)
	if c == nil || c.Reason != v1.PodReasonDeferred || c.ObservedGeneration != p.spec.Generation ||
		now.Before(m.shutdownEffectUntil()) || m.mayHavePressure(now) && !p.isCritical() {
		return false
	}
	node := m.objects.node
	if node == nil || !canRunOn(p.spec, node) {
		return false
	}
	for _, q := range m.criticalPods {
		if q != p && q.mayNeedRoom() {
			return false // room may be reserved for it
		}
	}
	for _, name := range computeResources {
		used := int64(0)
		for _, other := range m.podsInOrder {
			if other != p && len(other.specs) > 0 && other.mayOccupyNode(now.Add(-observationBound)) {
				used += other.mostRequests(name)
			}
		}
		if amountRequested(p.spec, name)+used > m.leastAllocatable(name) {
			return false
		}
	}
	return true
}

// mayHavePressure reports whether the agent may keep the node in a condition other than that of
// memory, which forbids no resize of a pod with requests.
func (m *model) mayHavePressure(now time.Time) bool {
	return slices.ContainsFunc(pressureConditions, func(c v1.NodeConditionType) bool {
		return c != v1.NodeMemoryPressure && now.Before(m.pressure.mayBeTrueUntil(m, c))
	})
}
