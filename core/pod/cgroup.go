package pod

import (
	"slices"
	"time"

	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The cgroup of the pod. It is set before a sandbox is run in it, once more by every life of the
// agent and whenever what the pod asks for changes, and it is removed when nothing of the pod is
// left in it. All of that can be done any number of times, so that the facts are only what this
// life has done.

// Cgroup is what this life of the agent has done about the pod's cgroup.
type Cgroup struct {
	Set     *Setting `json:"set,omitempty"`     // that it was set to last
	Setting *Setting `json:"setting,omitempty"` // by a request in flight; Op is that request
	Removed []string `json:"removed,omitempty"` // paths
}

// Setting is a cgroup that is set for a sandbox. For another one it is set again: whoever removed
// the sandbox may have removed it as well.
type Setting struct {
	Attempt uint32          `json:"attempt"` // of the sandbox
	Cgroup  world.SetCgroup `json:"cgroup"`
}

const hostTimeout = 2 * time.Minute

// cgroupPath is the cgroup that a sandbox is in or will be in: as it was made, or nil for a new
// one, as the spec has it now.
func (p *Pod) cgroupPath(s *Sandbox, l *cgroup.Layout) string {
	if s != nil && l.Has(s.Cgroup, p.UID) {
		return s.Cgroup
	}
	return l.Path(p.UID, QOS(p.Spec))
}

// setCgroup sees that the cgroup of a sandbox is as it should be, and reports whether there is
// still something to do.
func (p *Pod) setCgroup(path string, attempt uint32, env *Env) bool {
	l := &env.Node.Cgroups
	switch {
	case !l.PerPod:
		return false
	case !l.Settled:
		return true
	}
	want := Setting{attempt, l.Limits(p.Spec, QOS(p.Spec), path)}
	if c := &p.Cgroup; c.Set == nil || *c.Set != want {
		c.Setting, c.Removed = &want, nil
		p.Op = env.Out.Ask(p.Key(), "", hostTimeout, &want.Cgroup)
		return true
	}
	return false
}

// removeCgroups removes every cgroup that the pod may have, and reports whether there is still
// something to do. None of its processes may be left.
func (p *Pod) removeCgroups(env *Env) bool {
	l := &env.Node.Cgroups
	switch {
	case !l.PerPod:
		return false
	case !l.Settled:
		return true
	}
	for _, path := range p.cgroups(l) {
		if slices.Contains(p.Cgroup.Removed, path) {
			continue
		}
		p.Op = env.Out.Ask(p.Key(), path, hostTimeout,
			&world.RemoveCgroup{Path: path, Systemd: l.Systemd})
		return true
	}
	return false
}

// cgroups are those that the pod may have, as far as it is known. Of a pod of another agent the
// sandbox does not tell.
func (p *Pod) cgroups(l *cgroup.Layout) []string {
	var paths []string
	if set := p.Cgroup.Set; set != nil {
		paths = append(paths, set.Cgroup.Path)
	}
	if p.Spec != nil {
		paths = append(paths, l.Path(p.UID, QOS(p.Spec)))
	}
	for i := range p.Sandboxes {
		if in := p.Sandboxes[i].Cgroup; l.Has(in, p.UID) {
			paths = append(paths, in)
		}
	}
	if len(paths) == 0 {
		return l.Paths(p.UID)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// cgroupAnswered takes the answer to a setting or a removal. What cannot be a cgroup at all is not
// there.
func (p *Pod) cgroupAnswered(id world.OpID, r op.Record, ev world.Event, env *Env) {
	c := &p.Cgroup
	if r.Call == "RemoveCgroup" && ev.Err.Has(world.KindInvalid) {
		ev.Body, ev.Err = &world.Done{}, nil
	}
	if ev.Err == nil && r.Call == "RemoveCgroup" {
		c.Removed = append(c.Removed, r.Subject)
	} else if ev.Err == nil {
		c.Set = c.Setting
	}
	c.Setting = nil
	p.made(id, r, ev, env)
}

// sandboxResources are what all containers of the pod ask for and may use, for runtimes whose
// sandboxes have to be made large enough.
func (p *Pod) sandboxResources() *runtimeapi.LinuxContainerResources {
	without := podresources.PodResourcesOptions{ExcludeOverhead: true}
	requests := podresources.PodRequests(p.Spec, without)
	limits := podresources.PodLimits(p.Spec, without)
	asked, is := requests["cpu"]
	if !is {
		asked = *limits.Cpu()
	}
	return linuxResources(asked.MilliValue(), limits.Cpu().MilliValue(), limits.Memory().Value())
}

// overhead is what the sandbox itself is given besides.
func (p *Pod) overhead() *runtimeapi.LinuxContainerResources {
	o := p.Spec.Spec.Overhead
	if o == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return linuxResources(o.Cpu().MilliValue(), o.Cpu().MilliValue(), o.Memory().Value())
}

// linuxResources are amounts as the runtime wants them: thousandths of CPUs, and bytes.
func linuxResources(cpuRequest, cpuLimit, memory int64) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: cgroup.Period, CpuShares: cgroup.Shares(cpuRequest),
		CpuQuota: cgroup.Quota(cpuLimit), MemoryLimitInBytes: memory,
	}
}
