package pod

import (
	"slices"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The cgroup of the pod. It is created and configured before a sandbox is created in it, again by
// every incarnation of the agent, and whenever the resources of the pod change. It is removed when
// no process of the pod is left in it. All these operations are idempotent, so the facts are only
// what this incarnation has done.

// Cgroup holds what this incarnation of the agent has done to the pod's cgroup.
type Cgroup struct {
	Applied  *CgroupSetting `json:"applied,omitempty"`  // the last one that was applied
	Applying *CgroupSetting `json:"applying,omitempty"` // the one that the operation Pod.Op applies
	Removed  []string       `json:"removed,omitempty"`  // paths
}

// CgroupSetting is the configuration of the pod's cgroup for a sandbox. It is applied again for
// another sandbox, because the cgroup may have been removed together with the old one.
type CgroupSetting struct {
	Attempt uint32          `json:"attempt"` // of the sandbox
	Cgroup  world.SetCgroup `json:"cgroup"`
}

const cgroupTimeout = 2 * time.Minute

// setCgroup applies the configuration of the cgroup for a sandbox, and reports whether the sandbox
// has to wait for that.
func (p *Pod) setCgroup(path string, attempt uint32, env *Env) bool {
	l := &env.Node.Cgroups
	switch {
	case !l.PerPod:
		return false
	case !l.DriverKnown:
		return true
	}
	setting := CgroupSetting{attempt, l.Limits(p.Spec, criconfig.QOS(p.Spec), path)}
	if c := &p.Cgroup; c.Applied == nil || *c.Applied != setting {
		c.Applying, c.Removed = &setting, nil
		p.Op = env.Effects.Issue(p.Key(), "", cgroupTimeout, &setting.Cgroup)
		return true
	}
	return false
}

// removeCgroups removes every cgroup that the pod may have, and reports whether that goes on. None
// of the pod's processes may be left.
func (p *Pod) removeCgroups(env *Env) bool {
	l := &env.Node.Cgroups
	switch {
	case !l.PerPod:
		return false
	case !l.DriverKnown:
		return true
	}
	for _, path := range p.cgroupPaths(l) {
		if slices.Contains(p.Cgroup.Removed, path) {
			continue
		}
		p.Op = env.Effects.Issue(p.Key(), path, cgroupTimeout,
			&world.RemoveCgroup{Path: path, Systemd: l.Systemd})
		return true
	}
	return false
}

// cgroupPaths returns the cgroups that the pod may have, as far as that is known. The sandbox of
// another agent has no annotation of its cgroup.
func (p *Pod) cgroupPaths(l *cgroup.Layout) []string {
	var paths []string
	if set := p.Cgroup.Applied; set != nil {
		paths = append(paths, set.Cgroup.Path)
	}
	if p.Spec != nil {
		paths = append(paths, l.PodPath(p.UID, criconfig.QOS(p.Spec)))
	}
	for i := range p.Sandboxes {
		if path := p.Sandboxes[i].Cgroup; l.IsPodPath(path, p.UID) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return l.PodPaths(p.UID)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// handleCgroupCompletion handles the completion of SetCgroup or RemoveCgroup. A path that cannot be
// a cgroup at all counts as removed.
func (p *Pod) handleCgroupCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	c := &p.Cgroup
	if r.Call == "RemoveCgroup" && ev.Err.Has(world.KindInvalid) {
		ev.Body, ev.Err = &world.Done{}, nil
	}
	if ev.Err == nil && r.Call == "RemoveCgroup" {
		c.Removed = append(c.Removed, r.Subject)
	} else if ev.Err == nil {
		c.Applied = c.Applying
	}
	c.Applying = nil
	p.handleCreation(id, r, ev, env)
}
