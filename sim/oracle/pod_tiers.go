package oracle

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// tiers fires when a pod gets a cgroup that outweighs the one above it, when a cgroup shrinks below
// those in it, and when a container is created with other limits than its spec demands or above
// those of its pod. In the end the cgroups above those of the pods must have the values that the
// running pods demand. A write that may have failed is excused for a while, as no pod waits for it,
// but no cgroup shrinks meanwhile below what one in it may have.
type tiers struct{}

func (*tiers) describe() Entry {
	return Entry{"tiers", "No cgroup is above the one that it is in, containers have the limits of " +
		"their specs, and the cgroups above the pods' have what their pods request."}
}

// Tiers describes to the oracles the cgroups above those of the pods, and what containers may have.
type Tiers struct {
	CPU, MemoryBytes, PidsMax int64 // of all pods, in milli-CPUs and bytes
	UnreservedMemory          int64 // of the machine's
	MachineMemory, SwapBytes  int64
	HugePages                 string // of all pods, as in truth.Limits
	MemoryPercent             int64  // qosReserved
	LimitedSwap, MemoryQoS    bool
	NoQuota                   bool // CPU limits are not enforced (cpuCFSQuota: false)
	ReservesMemory            bool // TieredReservation
	ThrottlingFactor          float64
	Reserved                  map[string]truth.Limits // of the cgroups of others, by directory
}

func (*tiers) checkFact(m *model, f *truth.Fact) *finding {
	switch {
	case !m.opts.Cgroups.PerPod || m.opts.Tiers == nil:
		return nil
	case f.Kind == truth.SandboxCreated:
		above, own := m.cgroups[path.Dir(f.Cgroup)], m.cgroups[f.Cgroup]
		if !outweighs(own, above) || m.mayHaveFailedToWrite(f.Time) {
			return nil
		}
		return findingf("a sandbox is created in cgroup %s with %+v, but the one above has %+v",
			f.Cgroup, own, above)
	case f.Kind == truth.CgroupCreated && f.Cause == "":
		if found := m.checkReserved(f); found != nil {
			return found
		}
		return m.checkShrinking(f)
	case f.Kind == truth.CgroupRemoved && f.Cause == "" &&
		slices.Contains(m.opts.SystemCgroups, f.Path):
		return findingf("cgroup %s of another program is removed", f.Path)
	case f.Kind == truth.ContainerCreated:
		return m.checkContainerLimits(f)
	}
	return nil
}

// checkReserved checks that a cgroup of another program gets no limit beyond those that are
// configured, at any moment.
func (m *model) checkReserved(f *truth.Fact) *finding {
	if !slices.Contains(m.opts.SystemCgroups, f.Path) {
		return nil
	}
	for _, t := range m.possibleTiers(f.Time) {
		if want, isReserved := t.Reserved[f.Path]; isReserved && f.Limits == want {
			return nil
		}
	}
	return findingf("cgroup %s of another program is given %+v, want %+v", f.Path, f.Limits,
		m.opts.Tiers.Reserved[f.Path])
}

// possibleTiers returns what a request that takes effect now may follow: the configuration of the
// agent, or for a while that of the one before, whose requests may still be in flight.
func (m *model) possibleTiers(now time.Time) []*Tiers {
	possible := []*Tiers{m.opts.Tiers}
	if m.tiersBefore != nil && (m.agentDown || now.Sub(m.agentStartedAt) < tierWriteBound) {
		possible = append(possible, m.tiersBefore)
	}
	return possible
}

// tierWriteBound is how long a write of a cgroup that has failed may have consequences: a call may
// be lost for two minutes, and is repeated after a minute at most.
const tierWriteBound = 5 * time.Minute

func (m *model) mayHaveFailedToWrite(now time.Time) bool {
	return m.anyFaultPossible(now.Add(-tierWriteBound), now, "SetCgroup", "RemoveCgroup",
		"ListPodSandbox", "ListContainers", "RuntimeConfig", "RunPodSandbox", "StopPodSandbox",
		"RemovePodSandbox")
}

// outweighs reports whether a cgroup has more than the one above it has for all that are in it.
func outweighs(own, above truth.Limits) bool {
	return own.CPUShares > above.CPUShares || own.MemoryLow > above.MemoryLow+above.MemoryMin ||
		own.MemoryMin > above.MemoryMin
}

// mayHaveUnknownCgroup reports whether the agent may not know yet what an earlier one has given the
// pod's cgroup in a resize that is not complete: it sets the cgroups of all pods after its start,
// which a fault may delay.
func (p *pod) mayHaveUnknownCgroup(cgroup string, now time.Time) bool {
	started := p.model.agentStartedAt
	isOfEarlier := p.model.cgroupsSetAt[cgroup].Before(started) && p.model.mayHaveFailedToWrite(now)
	return p.wasChanged() && (now.Sub(started) < observationBound || isOfEarlier)
}

// mayNotKnowSandbox reports whether the agent may not know a sandbox yet: an earlier agent had
// asked for it, and it has become ready since this one started.
func (m *model) mayNotKnowSandbox(s *sandbox, now time.Time) bool {
	return s.readyAt.After(m.agentStartedAt) && now.Sub(m.agentStartedAt) < observationBound &&
		m.cgroupsSetAt[s.cgroup].Before(m.agentStartedAt)
}

// checkShrinking checks that no running pod outweighs a cgroup that was written.
func (m *model) checkShrinking(f *truth.Fact) *finding {
	for _, p := range m.podsInOrder {
		if p.wasRemoved() {
			continue
		}
		for _, s := range p.sandboxes {
			if !s.ready || path.Dir(s.cgroup) != f.Path || !outweighs(m.cgroups[s.cgroup], f.Limits) ||
				p.mayHaveUnknownCgroup(s.cgroup, f.Time) || m.mayNotKnowSandbox(s, f.Time) {
				continue
			}
			return findingf("cgroup %s is given %+v, but pod %s in it has %+v", f.Path, f.Limits, p,
				m.cgroups[s.cgroup])
		}
	}
	return nil
}

// checkContainerLimits checks the limits that a container is created with.
func (m *model) checkContainerLimits(f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || len(p.specs) == 0 || p.isEphemeral(f.Container) {
		return nil
	}
	var want truth.Limits
	for _, spec := range p.specs {
		c := containerOf(spec, f.Container)
		if c == nil {
			continue
		}
		for _, t := range m.possibleTiers(f.Time) {
			if want = m.containerLimits(p, spec, c, t); want == f.Limits {
				return m.checkWithinPod(p, f)
			}
		}
	}
	return findingf("container %s of pod %s is created with %+v, want %+v", f.Container, p, f.Limits,
		want)
}

func (m *model) checkWithinPod(p *pod, f *truth.Fact) *finding {
	s := m.sandboxes[f.SandboxID]
	if s == nil || p.wasRemoved() {
		return nil
	}
	pod := m.cgroups[s.cgroup]
	if pod.MemoryBytes > 0 && f.Limits.MemoryBytes > pod.MemoryBytes ||
		pod.CPUQuota > 0 && f.Limits.CPUQuota > pod.CPUQuota {
		return findingf("container %s is created with %+v, but its pod %s has %+v", f.Container,
			f.Limits, p, pod)
	}
	return nil
}

// containerLimits returns the limits that a container is created with.
func (m *model) containerLimits(p *pod, spec *v1.Pod, c *v1.Container, t *Tiers) truth.Limits {
	limit := func(name v1.ResourceName) int64 {
		q := c.Resources.Limits[name]
		if spec.Spec.Resources != nil && q.IsZero() {
			q = spec.Spec.Resources.Limits[name]
		}
		return q.MilliValue()
	}
	cpu, requested := limit(v1.ResourceCPU), int64(0)
	if q, exists := c.Resources.Requests[v1.ResourceCPU]; exists {
		requested = q.MilliValue()
	} else {
		requested = cpu
	}
	l := truth.Limits{CPUShares: uint64(min(max(requested*1024/1000, 2), 262144)),
		CPUPeriod: 100_000, MemoryBytes: limit(v1.ResourceMemory) / 1000}
	if l.CPUQuota = t.quota(cpu); t.NoQuota {
		l.CPUPeriod = 0
	}
	var pages []string
	for _, size := range m.opts.Cgroups.PageSizes {
		name := pageSizeName(size)
		pages = append(pages, fmt.Sprintf("%sB %d", name, limit(v1.ResourceName(
			"hugepages-"+name+"i"))/1000))
	}
	l.HugePages = strings.Join(pages, ", ")
	l.Files = t.containerFiles(p, spec, c)
	return l
}

// quota returns the CPU quota for a limit in thousandths of CPUs; zero for none.
func (t *Tiers) quota(milli int64) int64 {
	if milli <= 0 || t != nil && t.NoQuota {
		return 0
	}
	return max(milli*100, 1000)
}

// maySwap reports whether a container may have swap.
func (t *Tiers) maySwap(p *pod, spec *v1.Pod, c *v1.Container) bool {
	return t != nil && t.LimitedSwap && classOf(spec) == v1.PodQOSBurstable &&
		c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) != 0 && !isCriticalPod(p, spec)
}

// containerFiles returns what a container sets in its cgroup besides limits.
func (t *Tiers) containerFiles(p *pod, spec *v1.Pod, c *v1.Container) string {
	files := []string{"memory.oom.group 1"}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	class, swap := classOf(spec), int64(0)
	if t.maySwap(p, spec, c) {
		swap = int64(float64(request) / float64(t.MachineMemory) * float64(t.SwapBytes))
	}
	files = append(files, fmt.Sprintf("memory.swap.max %d", swap))
	if t.MemoryQoS {
		switch {
		case request == 0 || !t.ReservesMemory:
			files = append(files, "memory.min 0", "memory.low 0")
		case class == v1.PodQOSGuaranteed:
			files = append(files, fmt.Sprintf("memory.min %d", request))
		default:
			files = append(files, fmt.Sprintf("memory.low %d", request))
		}
		most := limit
		if most == 0 {
			most = t.UnreservedMemory
		}
		above := float64(float64(most-request) * t.ThrottlingFactor)
		high := int64((float64(request)+above)/4096) * 4096
		if request != limit && high > request {
			files = append(files, fmt.Sprintf("memory.high %d", high))
		} else {
			files = append(files, "memory.high max")
		}
	}
	slices.Sort(files)
	return strings.Join(files, ", ")
}

// isCriticalPod reports whether a pod must not have swap.
func isCriticalPod(p *pod, spec *v1.Pod) bool {
	return p.static || spec.Spec.Priority != nil && *spec.Spec.Priority >= systemCriticalPriority
}

// classOf returns the QoS class of a pod. Memory and CPU alone count, and what the pod as a whole
// states hides what its containers do.
func classOf(pod *v1.Pod) v1.PodQOSClass {
	lists := []v1.ResourceRequirements{}
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		lists = append(lists, *r)
	} else {
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				lists = append(lists, containers[i].Resources)
			}
		}
	}
	best, guaranteed := true, true
	for i := range lists {
		for _, name := range computeResources {
			request, limit := lists[i].Requests[name], lists[i].Limits[name]
			best = best && request.IsZero() && limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case best:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// unsettledTiers returns which cgroups above those of the pods do not have what the pods that have
// a sandbox request.
func (m *model) unsettledTiers() []string {
	t := m.opts.Tiers
	if !m.opts.Cgroups.PerPod || t == nil || m.opts.IsHostile != nil {
		return nil
	}
	sums := map[v1.PodQOSClass][2]int64{} // CPU and memory
	for _, p := range m.podsInOrder {
		isUp := slices.ContainsFunc(p.sandboxes, func(s *sandbox) bool { return s.ready })
		if p.spec == nil || !isUp {
			continue
		}
		if p.isResizing() {
			return nil
		}
		cpu, _ := aggregateResources(p.allocated(), v1.ResourceCPU, false)
		memory, _ := aggregateResources(p.allocated(), v1.ResourceMemory, false)
		sum := sums[classOf(p.spec)]
		sums[classOf(p.spec)] = [2]int64{sum[0] + cpu, sum[1] + memory/1000}
	}
	var lines []string
	for name, want := range t.Reserved { //ordered: sorted below
		if have := m.cgroups[name]; have != want {
			lines = append(lines, fmt.Sprintf("cgroup %s has %+v, want %+v", name, have, want))
		}
	}
	for name, want := range t.limits(sums, m.opts.Cgroups.PageSizes) { //ordered: sorted below
		have := m.cgroups[name]
		if slice, exists := m.cgroups[tierSlices[name]]; exists {
			have = slice
		}
		if have != want {
			lines = append(lines, fmt.Sprintf("cgroup %s has %+v, want %+v", name, have, want))
		}
	}
	slices.Sort(lines)
	return lines
}

// tierSlices are the cgroups above those of the pods as systemd names them.
var tierSlices = map[string]string{
	"kubepods": "kubepods.slice", "kubepods/burstable": "kubepods.slice/kubepods-burstable.slice",
	"kubepods/besteffort": "kubepods.slice/kubepods-besteffort.slice",
}

// limits returns what the cgroups above those of the pods must have.
func (t *Tiers) limits(sums map[v1.PodQOSClass][2]int64,
	pageSizes []int64) map[string]truth.Limits {
	shares := func(milli int64) uint64 { return uint64(min(max(milli*1024/1000, 2), 262144)) }
	var pages []string
	for _, size := range pageSizes {
		pages = append(pages, pageSizeName(size)+"B -1")
	}
	all := truth.Limits{CPUShares: shares(t.CPU), MemoryBytes: t.MemoryBytes, PidsMax: t.PidsMax,
		HugePages: t.HugePages}
	guaranteed, burst := sums[v1.PodQOSGuaranteed], sums[v1.PodQOSBurstable]
	burstable := truth.Limits{CPUShares: shares(burst[0]), HugePages: strings.Join(pages, ", ")}
	bestEffort := truth.Limits{CPUShares: 2, HugePages: burstable.HugePages}
	if t.MemoryPercent > 0 {
		burstable.MemoryBytes = t.UnreservedMemory - guaranteed[1]*t.MemoryPercent/100
		bestEffort.MemoryBytes = burstable.MemoryBytes - burst[1]*t.MemoryPercent/100
	}
	if t.MemoryQoS && t.ReservesMemory {
		all.MemoryMin, burstable.MemoryLow = guaranteed[1]+burst[1], burst[1]
	}
	return map[string]truth.Limits{"kubepods": all, "kubepods/burstable": burstable,
		"kubepods/besteffort": bestEffort}
}
