package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
)

// cgroups fires when a sandbox is created in a cgroup without its pod's limits, or when a cgroup
// is removed while a container of the pod runs. A delayed request of the time before a manifest
// was removed and came back is excused.
type cgroups struct{}

func (*cgroups) describe() Entry {
	return Entry{"cgroups", "A sandbox runs in the cgroup of its pod, with the limits of the " +
		"pod, and the cgroup exists as long as a container in it runs."}
}

// Cgroups describes the cgroups of pods to the oracles.
type Cgroups struct {
	PerPod  bool // else the runtime chooses
	PidsMax int64
	// PageSizes are the sizes of the machine's huge pages, in bytes.
	PageSizes []int64
}

func (*cgroups) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.SandboxCreated:
		return m.checkSandboxCgroup(f)
	case truth.CgroupRemoved:
		if f.Cause != truth.CauseReboot {
			return m.checkCgroupRemoval(f)
		}
	}
	return nil
}

// cgroupRequestBound is how long a request may have been in flight under a fault. A request is
// checked against the state at the time when the agent made it.
const cgroupRequestBound = 5 * time.Minute

func (m *model) checkSandboxCgroup(f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || len(p.specs) == 0 {
		return nil
	}
	if !m.opts.Cgroups.PerPod {
		if f.Cgroup != "" {
			return findingf("the sandbox of pod %s runs in cgroup %s, but "+
				"pods have no cgroups", p, f.Cgroup)
		}
		return nil
	}
	if owner := ownerOfCgroup(f.Cgroup); owner != escapeUID(p.uid) {
		return findingf("the sandbox of pod %s runs in cgroup %q, which is "+
			"not the pod's", p, f.Cgroup)
	}
	limits, exists := m.cgroups[f.Cgroup]
	isRight := slices.ContainsFunc(p.specs, func(s *v1.Pod) bool { return m.limitsOf(s) == limits })
	hasEnded := p.wasRemoved() || !p.terminalAt.IsZero() // an agent before may have asked for it
	late := hasEnded && m.anyFaultPossible(f.Time.Add(-cgroupRequestBound), f.Time,
		"RunPodSandbox", "RemoveCgroup")
	if exists && isRight || late {
		return nil
	}
	return findingf("the sandbox of pod %s runs in cgroup %s with %+v, "+
		"exists: %v, want %+v", p, f.Cgroup, limits, exists, m.limitsOf(p.specs[len(p.specs)-1]))
}

func (m *model) checkCgroupRemoval(f *truth.Fact) *finding {
	for _, p := range m.podsInOrder {
		for _, c := range p.containers {
			if c.state != running || c.sandbox == nil || !isWithin(c.sandbox.cgroup, f.Path) ||
				p.wasRemoved() && p.timesDesired > 1 {
				continue
			}
			return findingf("cgroup %s was removed while %s runs in it",
				f.Path, c)
		}
	}
	return nil
}

// applyCgroupRemoved removes a cgroup and those below it.
func (m *model) applyCgroupRemoved(dir string) {
	maps.DeleteFunc(m.cgroups, func(have string, _ truth.Limits) bool { return isWithin(have, dir) })
}

// remainingCgroups returns the cgroups of the pod that exist, sorted.
func (p *pod) remainingCgroups() []string {
	var left []string
	for dir := range p.model.cgroups { //ordered: sorted below
		if ownerOfCgroup(dir) == escapeUID(p.uid) {
			left = append(left, dir)
		}
	}
	slices.Sort(left)
	return left
}

// cgroupProblem returns what is wrong with the cgroup of a pod that should run in a sandbox. A
// pod whose manifest was removed and came back is not checked: a delayed removal may have hit its
// cgroup, which the runtime then creates again unnoticed.
func (p *pod) cgroupProblem(s *sandbox) string {
	m := p.model
	if !m.opts.Cgroups.PerPod || p.wasRemoved() {
		return ""
	}
	if p.isResizing() {
		return "" // the oracle resize judges it
	}
	if actual, desired := m.cgroups[s.cgroup], m.limitsOf(p.allocated()); actual != desired {
		return fmt.Sprintf("its cgroup %s has %+v, want %+v", s.cgroup, actual, desired)
	}
	return ""
}

// ownerOfCgroup returns the UID of a cgroup's pod, with every dash an underscore, as the systemd
// driver has it; empty if the cgroup is no pod's.
func ownerOfCgroup(dir string) string {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		base = slice[strings.LastIndexByte(slice, '-')+1:]
	}
	uid, ok := strings.CutPrefix(base, "pod")
	if !ok {
		return ""
	}
	return escapeUID(uid)
}

func escapeUID(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// limitsOf returns the limits that the cgroup of a pod should have.
func (m *model) limitsOf(pod *v1.Pod) truth.Limits {
	limits := truth.Limits{PidsMax: m.opts.Cgroups.PidsMax}
	var pages []string
	for _, size := range m.opts.Cgroups.PageSizes {
		name := pageSizeName(size)
		milli, _ := aggregateResources(pod, v1.ResourceName("hugepages-"+name+"i"), false)
		pages = append(pages, fmt.Sprintf("%sB %d", name, milli/1000))
	}
	limits.HugePages = strings.Join(pages, ", ")
	milli, _ := aggregateResources(pod, v1.ResourceCPU, false)
	limits.CPUShares = uint64(min(max(milli*1024/1000, 2), 262144))
	if milli, all := aggregateResources(pod, v1.ResourceCPU, true); all && milli > 0 {
		if limits.CPUQuota = m.opts.Tiers.quota(milli); limits.CPUQuota > 0 {
			limits.CPUPeriod = 100_000
		}
	}
	if milli, all := aggregateResources(pod, v1.ResourceMemory, true); all {
		limits.MemoryBytes = milli / 1000
	}
	if t := m.opts.Tiers; t != nil && t.MemoryQoS && t.ReservesMemory {
		milli, _ := aggregateResources(pod, v1.ResourceMemory, false)
		if classOf(pod) == v1.PodQOSGuaranteed {
			limits.MemoryMin = milli / 1000
		} else {
			limits.MemoryLow = milli / 1000
		}
	}
	return limits
}

// pageSizeName returns a size of huge pages, which is a multiple of a mebibyte, without the letters
// for bytes.
func pageSizeName(bytes int64) string {
	if mib := bytes >> 20; mib < 1024 {
		return fmt.Sprintf("%dM", mib)
	}
	return fmt.Sprintf("%dG", bytes>>30)
}

// aggregateResources returns what a pod requests of a resource, or its limit, in thousandths, and
// whether every container in it states one. At any time the sidecars that have been started run
// together with either one init container or all app containers.
func aggregateResources(pod *v1.Pod, name v1.ResourceName, limit bool) (milli int64, all bool) {
	all = true
	of := func(r *v1.ResourceRequirements) int64 {
		list := r.Requests
		if limit {
			list = r.Limits
		}
		q := list[name]
		return milliValue(q)
	}
	var sidecars, first, apps int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		own := of(&c.Resources)
		first = max(first, sidecars+own)
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars += own
			own = sidecars
		} else {
			own += sidecars
		}
		all = all && own > 0 // the kubelet adds the limits of the sidecars that run beside it
	}
	for i := range pod.Spec.Containers {
		own := of(&pod.Spec.Containers[i].Resources)
		all, apps = all && own > 0, apps+own
	}
	milli = max(first, sidecars+apps)
	if r := pod.Spec.Resources; r != nil && of(r) > 0 {
		milli, all = of(r), true
	}
	overhead := pod.Spec.Overhead[name]
	if !limit || milli > 0 {
		milli += milliValue(overhead)
	}
	return milli, all
}

func milliValue(q resource.Quantity) int64 { return q.MilliValue() }
