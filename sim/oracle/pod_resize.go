package oracle

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// resize fires when a container has more than its pod, when a limit of memory is set below what the
// container uses, when a container restarts for a change that does not demand it, when the swap of
// one that runs changes with the memory that it requests, and when more is allocated than the node
// has. In the end each running container must have what its pod asks for, or the pod must say why
// not, and that must be so.
type resize struct {
	overcommittedSince time.Time // by the statuses of pods
	// grantedOf is how often the node allocatable had changed when the agent last allocated more to a
	// pod; zero if it has not yet.
	grantedOf int
}

func (*resize) describe() Entry {
	return Entry{"resize", "A container never has more than its pod, and no limit of memory is set " +
		"below its usage; a resize ends: it is done, or its condition says why not, and that is true."}
}

func (z *resize) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.LimitRefused:
		return findingf("container %s of pod %s/%s uses %d bytes, and is to have fewer", f.Container,
			f.PodNamespace, f.PodName, f.Bytes)
	case truth.ContainerStarted, truth.ContainerResized:
		c := m.containers[f.ContainerID]
		if c == nil || c.sandbox == nil {
			return nil
		}
		own := c.limits
		if f.Kind == truth.ContainerResized {
			own = f.Limits
			if had, has := swapIn(c.limits.Files), swapIn(own.Files); had > 0 && has > 0 && had != has {
				return findingf("%s may have %d bytes of swap instead of %d while it runs", c, has, had)
			}
		}
		return checkWithinCgroup(c, own, m.cgroups[c.sandbox.cgroup])
	case truth.CgroupCreated:
		for _, p := range m.podsInOrder {
			for _, c := range p.containers {
				if c.sandbox == nil || c.sandbox.cgroup != f.Path || c.state != running {
					continue
				}
				if finding := checkWithinCgroup(c, c.limits, f.Limits); finding != nil {
					return finding
				}
			}
		}
	case truth.StopRequested:
		if c := m.containers[f.ContainerID]; c != nil {
			return m.checkResizeStop(c, f)
		}
	}
	if isAgentStatus(f) && f.Write.Before.Pod != nil {
		finding := m.checkAllocationStays(f.Write.Before.Pod, f.Write.After.Pod)
		if finding != nil {
			return finding
		}
		z.noteGrant(m, f.Write.Before.Pod, f.Write.After.Pod)
		return z.checkAllocated(m)
	}
	return nil
}

// noteGrant notes that a pod has more allocated than before, by an agent that runs for so long that
// no earlier one can have decided that.
func (z *resize) noteGrant(m *model, before, now *v1.Pod) {
	if !m.agentUpSince(m.now.Add(-overcommitBound)) {
		return
	}
	for i := range now.Status.ContainerStatuses {
		has := now.Status.ContainerStatuses[i].AllocatedResources
		for j := range before.Status.ContainerStatuses {
			had := &before.Status.ContainerStatuses[j]
			if had.Name == now.Status.ContainerStatuses[i].Name && had.State.Running != nil &&
				(has.Cpu().Cmp(*had.AllocatedResources.Cpu()) > 0 ||
					has.Memory().Cmp(*had.AllocatedResources.Memory()) > 0) {
				z.grantedOf = len(m.allocatableBefore)
			}
		}
	}
}

// checkAllocationStays checks that a status does not take back that resources are allocated to a
// container that runs, while the spec still asks for them. A pod whose spec is again what it was is
// not checked: what it asked for meanwhile may still be allocated.
func (m *model) checkAllocationStays(before, now *v1.Pod) *finding {
	p := m.pods[string(now.UID)]
	generation := before.Generation
	if p == nil || generation != int64(len(p.specs)) || now.Generation != generation ||
		m.mayHaveLostAllocations() ||
		before.Status.ObservedGeneration != generation || now.Status.ObservedGeneration != generation {
		return nil
	}
	for _, had := range before.Status.ContainerStatuses {
		spec := containerOf(now, had.Name)
		for _, has := range now.Status.ContainerStatuses {
			if has.Name != had.Name || has.ContainerID != had.ContainerID || spec == nil ||
				has.State.Running == nil {
				continue
			}
			want := spec.Resources.Requests
			if isAllocated(had.AllocatedResources, want) && !isAllocated(has.AllocatedResources, want) {
				return findingf("container %s of pod %s/%s had %v allocated as it asks for, and now has %v",
					has.Name, now.Namespace, now.Name, had.AllocatedResources, has.AllocatedResources)
			}
		}
	}
	return nil
}

// mayHaveLostAllocations reports whether the agent may have given up reading what is recorded, when
// it was started.
func (m *model) mayHaveLostAllocations() bool {
	until := m.agentStartedAt.Add(recordsReadBound)
	if until.After(m.now) {
		until = m.now
	}
	return m.faultPossible("ReadFiles", m.agentStartedAt, until)
}

// recordsReadBound is how long the agent tries to read what is recorded.
const recordsReadBound = 10 * time.Second

// isAllocated reports whether CPU and memory are allocated as a container requests them.
func isAllocated(allocated, requests v1.ResourceList) bool {
	return allocated.Cpu().Cmp(*requests.Cpu()) == 0 &&
		allocated.Memory().Cmp(*requests.Memory()) == 0
}

// checkWithinCgroup checks that a container has no more than its pod. A cgroup without weight was
// made by the runtime, and an ephemeral container has no resources of its own.
func checkWithinCgroup(c *container, own, pod truth.Limits) *finding {
	if pod.CPUShares == 0 || own.CPUShares == 0 || c.pod.wasRemoved() || c.pod.isEphemeral(c.name) {
		return nil
	}
	if pod.MemoryBytes > 0 && (own.MemoryBytes == 0 || own.MemoryBytes > pod.MemoryBytes) ||
		pod.CPUQuota > 0 && (own.CPUQuota <= 0 || own.CPUQuota > pod.CPUQuota) ||
		own.CPUShares > pod.CPUShares && !c.pod.hasWholeResources() {
		return findingf("%s has %+v, but its pod has %+v", c, own, pod)
	}
	return nil
}

// hasWholeResources reports whether the pod has, or had, resources as a whole. Containers of it
// without a request have the weight of their limit, which may be the pod's.
func (p *pod) hasWholeResources() bool {
	return slices.ContainsFunc(p.specs, func(s *v1.Pod) bool { return s.Spec.Resources != nil })
}

// checkResizeStop checks that a container whose pod was only resized is stopped for that only if
// its policy demands it.
func (m *model) checkResizeStop(c *container, f *truth.Fact) *finding {
	p := c.pod
	isOther := p.spec == nil || c.spec == nil || p.timesRemoved > 0 || len(p.fullName.pods) > 1 ||
		len(p.specs) < 2 || slices.ContainsFunc(p.specs, func(s *v1.Pod) bool {
		return !reflect.DeepEqual(withoutResources(s).Spec, withoutResources(p.specs[0]).Spec)
	})
	if isOther || hasRestartPolicy(c.spec) || p.mayBeKilled(f.Time) || m.mayHaveFailed(c, f.Time) ||
		c.sandbox == nil || !c.sandbox.ready || c.sandbox != p.newestSandbox() || c.wasLost ||
		c.mayBeSuperseded() || p.mustBeTerminal() || p.isPreemptionPossible() {
		return nil
	}
	return findingf("%s is stopped, although its pod was only resized and it need not restart", c)
}

// isPreemptionPossible reports whether a critical pod may have ended this one.
func (p *pod) isPreemptionPossible() bool { return len(p.model.criticalPods) > 0 }

func hasRestartPolicy(c *v1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(r v1.ContainerResizePolicy) bool {
		return r.RestartPolicy == v1.RestartContainer
	})
}

func withoutResources(pod *v1.Pod) *v1.Pod { return withResources(pod, &v1.Pod{}) }

// withResources returns a pod with the resources that the containers of another one have.
func withResources(pod, from *v1.Pod) *v1.Pod {
	changed := pod.DeepCopy()
	changed.Spec.Resources = from.Spec.Resources
	for _, list := range [][]v1.Container{changed.Spec.InitContainers, changed.Spec.Containers} {
		for i := range list {
			list[i].Resources = v1.ResourceRequirements{}
			if c := containerOf(from, list[i].Name); c != nil {
				list[i].Resources = c.Resources
			}
		}
	}
	return changed
}

// specsAndAllocations returns the specs of the pod, and each of them with the resources of every
// other one: a resize waits, while other changes take effect.
func (p *pod) specsAndAllocations() []*v1.Pod {
	all := slices.Clone(p.specs)
	for _, spec := range p.specs {
		for _, other := range p.specs {
			if !reflect.DeepEqual(withResources(spec, other).Spec, spec.Spec) {
				all = append(all, withResources(spec, other))
			}
		}
	}
	return all
}

// mayHaveRestarted reports whether a container restarts, or may restart, because it was resized.
func (p *pod) mayHaveRestarted(last *container, limits truth.Limits) bool {
	return last.spec != nil && hasRestartPolicy(last.spec) && !last.stopRequestedAt.IsZero() &&
		(last.limits != limits || len(p.specs) > 1)
}

// object returns the pod as the API server has it; nil if it has none.
func (p *pod) object() *v1.Pod {
	if p.fullName == nil {
		return nil
	}
	for _, spec := range p.specs {
		if o := p.model.objects.pods[spec.Namespace+"/"+spec.Name]; o != nil && string(o.UID) == p.uid {
			return o
		}
	}
	return nil
}

// condition returns a condition of the pod that is true; nil if there is none.
func (p *pod) condition(t v1.PodConditionType) *v1.PodCondition {
	o := p.object()
	if o == nil {
		return nil
	}
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == t && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}

// resizeVerifyBound is how long after a resize, or its own start, the agent may look whether an
// older update has taken effect: a call has two minutes.
const resizeVerifyBound = 150 * time.Second

// wasChanged reports whether the pod had other resources, or other fields, before. The server
// counts a change that changes nothing as well, and the agent knows no more than that.
func (p *pod) wasChanged() bool {
	o := p.object()
	return len(p.specs) > 1 || o != nil && o.Generation > 1
}

// wasResized reports whether the pod of the API server had different specs.
func (p *pod) wasResized() bool { return !p.static && len(p.specs) > 1 }

// isResizing reports whether the pod says that a resize is being carried out.
func (p *pod) isResizing() bool { return p.condition(v1.PodResizeInProgress) != nil }

// awaitsResize reports whether the object says that a resize of the pod is not allocated yet.
func (p *pod) awaitsResize() bool { return p.condition(v1.PodResizePending) != nil }

// allocated returns the newest spec, with the resources of the newest spec that the cgroup of the
// pod has; with its own if the cgroup has those of none.
func (p *pod) allocated() *v1.Pod {
	newest := p.newestSpec()
	if p.static || len(p.specs) == 1 {
		return newest
	}
	for _, spec := range slices.Backward(p.specs) {
		if p.hasResourcesOf(spec) {
			if reflect.DeepEqual(spec.Spec, newest.Spec) {
				return newest
			}
			return withResources(newest, spec)
		}
	}
	return newest
}

// newestSpec returns the spec that the pod has, or had last.
func (p *pod) newestSpec() *v1.Pod {
	if p.spec != nil {
		return p.spec
	}
	return p.specs[len(p.specs)-1]
}

// leastRequests and mostRequests return the bounds of what the pod may have allocated: a resize may
// be allocated, and its cgroup not changed yet. What a pod gives up it holds until its cgroup has
// less.
func (p *pod) leastRequests(name v1.ResourceName) int64 {
	least, isHeld := int64(0), false
	for _, spec := range p.specs {
		if p.liveContainers > 0 && name != v1.ResourcePods && p.hasResourcesOf(spec) {
			if amount := amountRequested(spec, name); !isHeld || amount < least {
				least, isHeld = amount, true
			}
		}
	}
	if isHeld {
		return least
	}
	return slices.Min(p.allRequests(name))
}

// heldRequests returns what the pod holds at rest: the most that it may have while its cgroup has
// the resources of no spec, as it does if one of several changes cannot be carried out.
func (p *pod) heldRequests(name v1.ResourceName) int64 {
	if p.static || len(p.specs) == 1 || slices.ContainsFunc(p.specs, p.hasResourcesOf) {
		return p.requests().amount(name)
	}
	return p.mostRequests(name)
}

func (p *pod) mostRequests(name v1.ResourceName) int64 { return slices.Max(p.allRequests(name)) }

func (p *pod) allRequests(name v1.ResourceName) []int64 {
	all := []int64{p.requests().amount(name)}
	if name == v1.ResourcePods || len(p.specs) == 1 {
		return all
	}
	for i, spec := range p.specs { // a resize beyond the node is never allocated
		amount := amountRequested(spec, name)
		if i == 0 || len(p.model.opts.Allocatable) == 0 || amount <= p.model.mostAllocatable(name) {
			all = append(all, amount)
		}
	}
	return all
}

func amountRequested(spec *v1.Pod, name v1.ResourceName) int64 {
	amount, _ := aggregateResources(spec, name, false)
	if name != v1.ResourceCPU {
		amount /= 1000
	}
	return amount
}

// hasResourcesOf reports whether the pod's cgroup has the resources of a spec.
func (p *pod) hasResourcesOf(spec *v1.Pod) bool {
	if s := p.newestSandbox(); s != nil {
		if limits, exists := p.model.cgroups[s.cgroup]; exists {
			return p.model.limitsOf(spec) == limits
		}
	}
	for dir, limits := range p.model.cgroups { //ordered: whether there is one
		if ownerOfCgroup(dir) == escapeUID(p.uid) && p.model.limitsOf(spec) == limits {
			return true
		}
	}
	return false
}

// overcommitBound is how long the statuses of pods may tell of more than the node has: what a pod
// gives up is allocated to another one before the status says so.
const overcommitBound = 2 * time.Minute

// checkAllocated checks that the statuses of the pods that run do not allocate more than the node
// has.
func (z *resize) checkAllocated(m *model) *finding {
	if len(m.opts.Allocatable) == 0 {
		return nil
	}
	var cpu, memory int64
	for _, p := range m.podsInOrder {
		o := p.object()
		if o == nil || p.liveContainers == 0 || isTerminalPhase(o.Status.Phase) {
			continue
		}
		for _, list := range [][]v1.ContainerStatus{o.Status.InitContainerStatuses,
			o.Status.ContainerStatuses} {
			for i := range list {
				if list[i].State.Running != nil {
					cpu += list[i].AllocatedResources.Cpu().MilliValue()
					memory += list[i].AllocatedResources.Memory().Value()
				}
			}
		}
	}
	allocatable := m.mostAllocatable // pods stay that have run when there was more
	if z.grantedOf == len(m.allocatableBefore) {
		allocatable = m.allocatable
	}
	if cpu <= allocatable(v1.ResourceCPU) && memory <= allocatable(v1.ResourceMemory) {
		z.overcommittedSince = time.Time{}
		return nil
	}
	if z.overcommittedSince.IsZero() {
		z.overcommittedSince = m.now
	}
	if m.now.Sub(z.overcommittedSince) < overcommitBound || !m.agentUpSince(z.overcommittedSince) ||
		m.anyFaultPossible(z.overcommittedSince, m.now, "PatchObject", "ObjectChanged", "WriteFile") {
		return nil
	}
	return findingf("the statuses allocate %d milli-CPUs and %d bytes, and the node has "+
		"%d and %d", cpu, memory, allocatable(v1.ResourceCPU), allocatable(v1.ResourceMemory))
}

// resizeProblem returns what is wrong with the resources of a pod at rest.
func (p *pod) resizeProblem(s *sandbox) string {
	if p.static || p.object() == nil || len(p.specs) == 0 || p.wasRemoved() ||
		!p.model.opts.Cgroups.PerPod {
		return ""
	}
	pending, inProgress := p.condition(v1.PodResizePending), p.condition(v1.PodResizeInProgress)
	newest := p.newestSpec()
	if pending != nil {
		if problem := p.pendingProblem(pending, newest); problem != "" {
			return problem
		}
	}
	if inProgress != nil {
		return p.inProgressProblem(inProgress)
	}
	problem := p.resourcesProblem(s, newest)
	if pending != nil { // what is allocated is what an older spec asks for
		for _, spec := range p.specs {
			if problem != "" {
				problem = p.resourcesProblem(s, spec)
			}
		}
	}
	return problem
}

// resourcesProblem returns what is wrong with the resources of the pod at rest, if those of a spec
// are allocated to it.
func (p *pod) resourcesProblem(s *sandbox, want *v1.Pod) string {
	if p.model.cgroups[s.cgroup] != p.model.limitsOf(want) {
		return "its cgroup has other resources than it asks for, and it does not say why"
	}
	for _, c := range p.containers {
		spec := containerOf(want, c.name)
		if c.state != running || c.sandbox != s || spec == nil || p.isEphemeral(c.name) {
			continue
		}
		limits := p.model.opts.resourcesOf(want, spec)
		if c.limits.CPUShares != limits.CPUShares || c.limits.CPUQuota != limits.CPUQuota ||
			c.limits.MemoryBytes != limits.MemoryBytes {
			return fmt.Sprintf("%s has %+v, want %+v", c, c.limits, limits)
		}
		if problem := p.statusProblem(c, want); problem != "" {
			return problem
		}
	}
	return ""
}

// pendingProblem returns what is wrong with the condition of a pod whose resize waits.
func (p *pod) pendingProblem(c *v1.PodCondition, newest *v1.Pod) string {
	swaps, maySwap := p.resizesSwap(newest)
	switch {
	case c.Reason == v1.PodReasonInfeasible && maySwap:
		return ""
	case c.Reason != v1.PodReasonDeferred || swaps:
		return fmt.Sprintf("its resize is %s: %s", c.Reason, c.Message)
	}
	m := p.model
	if node := m.objects.node; node != nil && !canRunOn(newest, node) {
		return ""
	}
	for _, name := range computeResources {
		used := int64(0)
		for _, other := range m.podsInOrder {
			if other != p && len(other.specs) > 0 && other.mayOccupyNode(m.now.Add(-observationBound)) {
				used += other.heldRequests(name)
			}
		}
		wanted, _ := aggregateResources(newest, name, false)
		if name == v1.ResourceMemory {
			wanted /= 1000
		}
		if wanted+used > m.allocatable(name) {
			return ""
		}
	}
	return "its resize is deferred, but it fits: " + c.Message
}

// resizesSwap reports whether a resize of the pod to a spec changes the memory that a container
// with swap requests, without a restart of it: from whatever may be allocated to the pod, and from
// some of that. Such a resize is never carried out.
func (p *pod) resizesSwap(newest *v1.Pod) (surely, possibly bool) {
	surely = slices.ContainsFunc(p.specs, p.hasResourcesOf)
	isHeld := surely
	for _, spec := range p.specs {
		if isHeld && !p.hasResourcesOf(spec) {
			continue
		}
		changes := p.changesSwap(spec, newest)
		surely, possibly = surely && changes, possibly || changes
	}
	return surely, possibly
}

// swapIn returns the limit of swap among the files of a container's cgroup; zero for none.
func swapIn(files string) (bytes int64) {
	for _, file := range strings.Split(files, ", ") {
		if amount, isSwap := strings.CutPrefix(file, "memory.swap.max "); isSwap {
			bytes, _ = strconv.ParseInt(amount, 10, 64) // zero: none, or unlimited
		}
	}
	return bytes
}

// changesSwap reports whether a resize from one spec to another changes what resizesSwap is about.
func (p *pod) changesSwap(from, to *v1.Pod) bool {
	t := p.model.opts.Tiers
	for _, list := range [][]v1.Container{to.Spec.InitContainers, to.Spec.Containers} {
		for i := range list {
			c, had := &list[i], containerOf(from, list[i].Name)
			restarts := slices.Contains(c.ResizePolicy, v1.ContainerResizePolicy{
				ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
			if had != nil && !restarts &&
				had.Resources.Requests.Memory().Cmp(*c.Resources.Requests.Memory()) != 0 &&
				(t.maySwap(p, from, had) || t.maySwap(p, to, c)) {
				return true
			}
		}
	}
	return false
}

// awaitsLessMemory reports whether a resize waits until something of the pod uses less memory.
func (p *pod) awaitsLessMemory() bool {
	c := p.condition(v1.PodResizeInProgress)
	return c != nil && p.inProgressProblem(c) == ""
}

// memory returns how many bytes of memory the container uses now, or has used at its start: the
// agent may have seen either.
func (c *container) memory() int64 {
	if of := c.pod.model.opts.ContainerMemory; of != nil {
		return max(c.memoryUsage, of(c.id))
	}
	return c.memoryUsage
}

// inProgressProblem returns what is wrong with the condition of a pod whose resize does not end:
// only a container, or a pod as a whole, that uses more memory than it is to have can hold it up.
func (p *pod) inProgressProblem(condition *v1.PodCondition) string {
	isTooLow := func(limit, usage int64) bool {
		return limit > 0 && limit <= usage && condition.Reason == v1.PodReasonError &&
			strings.Contains(condition.Message, "below current usage")
	}
	all := int64(0)
	for _, c := range p.containers {
		if c.state == running {
			all += c.memory()
		}
	}
	for _, spec := range p.specs {
		if whole := spec.Spec.Resources; whole != nil && isTooLow(whole.Limits.Memory().Value(), all) {
			return ""
		}
		for _, c := range p.containers {
			own := containerOf(spec, c.name)
			if c.state != running || own == nil {
				continue
			}
			limit := p.model.opts.resourcesOf(spec, own).MemoryBytes
			if isTooLow(limit, c.memory()) {
				return ""
			}
		}
	}
	return fmt.Sprintf("its resize is in progress for ever: %s %s", condition.Reason,
		condition.Message)
}

// statusProblem returns what the status of a container at rest says wrongly about its resources.
func (p *pod) statusProblem(c *container, want *v1.Pod) string {
	o, spec := p.object(), containerOf(want, c.name)
	for _, list := range [][]v1.ContainerStatus{o.Status.InitContainerStatuses,
		o.Status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.Name != c.name || s.State.Running == nil || s.Resources == nil {
				continue
			}
			for _, name := range computeResources {
				allocated, requested := s.AllocatedResources[name], spec.Resources.Requests[name]
				if allocated.Cmp(requested) != 0 {
					return fmt.Sprintf("%s is said to have %s of %s allocated, want %s", c,
						allocated.String(), name, requested.String())
				}
			}
			has := s.Resources.Limits.Memory().Value()
			if spec.Resources.Limits.Memory().Value() > 0 && has != c.limits.MemoryBytes {
				return fmt.Sprintf("%s is said to have a limit of %d bytes, and has %d", c, has,
					c.limits.MemoryBytes)
			}
		}
	}
	return ""
}

// resourcesOf returns the limits of CPU and memory of a container.
func (o *Options) resourcesOf(pod *v1.Pod, c *v1.Container) truth.Limits {
	limit := func(name v1.ResourceName) int64 {
		q := c.Resources.Limits[name]
		if r := pod.Spec.Resources; r != nil && q.IsZero() {
			q = r.Limits[name]
		}
		return q.MilliValue()
	}
	cpu := limit(v1.ResourceCPU)
	requested := cpu
	if q, exists := c.Resources.Requests[v1.ResourceCPU]; exists {
		requested = q.MilliValue()
	}
	l := truth.Limits{CPUShares: uint64(min(max(requested*1024/1000, 2), 262144)),
		MemoryBytes: limit(v1.ResourceMemory) / 1000}
	l.CPUQuota = o.Tiers.quota(cpu)
	return l
}
