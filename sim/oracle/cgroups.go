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

// cgroups fires when a sandbox is run where its pod's limits do not hold, or when a cgroup is
// removed under the pod's processes. Of a pod that is back, an old request that comes late is
// nobody's fault.
type cgroups struct{}

func (*cgroups) entry() Entry {
	return Entry{"cgroups", "A sandbox is run in the cgroup of its pod, with the limits that the " +
		"pod demands, and the cgroup stays as long as a container in it runs."}
}

// Cgroups is what the oracles need to know of the cgroups of pods.
type Cgroups struct {
	PerPod  bool // else the runtime does as it likes
	PidsMax int64
}

func (*cgroups) fact(w *world, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.SandboxCreated:
		return w.judgeSandbox(f)
	case truth.CgroupRemoved:
		if f.Cause != truth.CauseReboot {
			return w.judgeRemoval(f)
		}
	}
	return nil
}

// cgroupLate is how long a request may have been under way that is judged by what was so when it
// was made.
const cgroupLate = 5 * time.Minute

func (w *world) judgeSandbox(f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if p == nil || len(p.specs) == 0 {
		return nil
	}
	if !w.opts.Cgroups.PerPod {
		if f.Cgroup != "" {
			return &finding{message: fmt.Sprintf("the sandbox of pod %s is run in cgroup %s, but "+
				"pods are to have none", p, f.Cgroup)}
		}
		return nil
	}
	if owner := ownerOfCgroup(f.Cgroup); owner != escaped(p.uid) {
		return &finding{message: fmt.Sprintf("the sandbox of pod %s is run in cgroup %q, which is "+
			"not the pod's", p, f.Cgroup)}
	}
	have, made := w.cgroups[f.Cgroup]
	right := slices.ContainsFunc(p.specs, func(s *v1.Pod) bool { return w.limitsOf(s) == have })
	late := p.loose() && w.struckAny(f.Time.Add(-cgroupLate), f.Time, "RunPodSandbox",
		"RemoveCgroup")
	if made && right || late {
		return nil
	}
	return &finding{message: fmt.Sprintf("the sandbox of pod %s is run in cgroup %s with %+v, "+
		"made: %v, want %+v", p, f.Cgroup, have, made, w.limitsOf(p.specs[len(p.specs)-1]))}
}

func (w *world) judgeRemoval(f *truth.Fact) *finding {
	for _, p := range w.order {
		for _, c := range p.containers {
			if c.state != running || c.sandbox == nil || !within(c.sandbox.cgroup, f.Path) ||
				p.loose() && p.wishes > 1 {
				continue
			}
			return &finding{message: fmt.Sprintf("cgroup %s was removed while %s runs in it",
				f.Path, c)}
		}
	}
	return nil
}

// cgroupRemoved forgets a cgroup and those below it.
func (w *world) cgroupRemoved(dir string) {
	maps.DeleteFunc(w.cgroups, func(have string, _ truth.Limits) bool { return within(have, dir) })
}

// cgroupsLeft are the cgroups of a pod that there are, sorted.
func (p *pod) cgroupsLeft() []string {
	var left []string
	for dir := range p.world.cgroups { //ordered: sorted below
		if ownerOfCgroup(dir) == escaped(p.uid) {
			left = append(left, dir)
		}
	}
	slices.Sort(left)
	return left
}

// lacksCgroup is what is wrong with the cgroup of a pod that should run in a sandbox. One that an
// old removal took from a pod that is back is made by the runtime again, and nobody notices.
func (p *pod) lacksCgroup(s *sandbox) string {
	w := p.world
	if !w.opts.Cgroups.PerPod || p.loose() {
		return ""
	}
	if have, want := w.cgroups[s.cgroup], w.limitsOf(p.spec); have != want {
		return fmt.Sprintf("its cgroup %s has %+v, want %+v", s.cgroup, have, want)
	}
	return ""
}

// ownerOfCgroup is the UID of the pod that a cgroup is that of, with every dash an underscore, as
// systemd has it; empty if it is no pod's.
func ownerOfCgroup(dir string) string {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	if slice, is := strings.CutSuffix(base, ".slice"); is {
		base = slice[strings.LastIndexByte(slice, '-')+1:]
	}
	uid, is := strings.CutPrefix(base, "pod")
	if !is {
		return ""
	}
	return escaped(uid)
}

func escaped(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// limitsOf is what the cgroup of a pod should be limited to.
func (w *world) limitsOf(pod *v1.Pod) truth.Limits {
	limits := truth.Limits{PidsMax: w.opts.Cgroups.PidsMax}
	milli, _ := demand(pod, v1.ResourceCPU, false)
	limits.CPUShares = uint64(min(max(milli*1024/1000, 2), 262144))
	if milli, all := demand(pod, v1.ResourceCPU, true); all && milli > 0 {
		limits.CPUQuota, limits.CPUPeriod = max(milli*100, 1000), 100_000
	}
	if milli, all := demand(pod, v1.ResourceMemory, true); all {
		limits.MemoryBytes = milli / 1000
	}
	return limits
}

// demand is what a pod asks for, or may use, of a resource, in thousandths, and whether nothing in
// it is without such a demand. At any time the sidecars that have been started run together with
// either one init container or all app containers.
func demand(pod *v1.Pod, name v1.ResourceName, limit bool) (milli int64, all bool) {
	all = true
	of := func(r *v1.ResourceRequirements) int64 {
		list := r.Requests
		if limit {
			list = r.Limits
		}
		q := list[name]
		return thousandths(q)
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
		all = all && own > 0 // the kubelet takes what runs beside it for its own
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
		milli += thousandths(overhead)
	}
	return milli, all
}

func thousandths(q resource.Quantity) int64 { return q.MilliValue() }
