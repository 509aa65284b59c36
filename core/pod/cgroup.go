package pod

import (
	"fmt"
	"slices"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/core/qos"
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
	// Possible bounds the share of the cgroup after writes of unknown outcome: it has one of their
	// settings, or the one before them. Nil if the last write has succeeded.
	Possible *qos.Share `json:"possible,omitempty"`
	// Announced is the last setting that was announced to the runtime, as it is for a resize before it
	// is applied. Announcing is the one that the operation Pod.Op announces.
	Announced  *CgroupSetting `json:"announced,omitempty"`
	Announcing *CgroupSetting `json:"announcing,omitempty"`
}

// CgroupSetting is the configuration of the pod's cgroup for a sandbox. It is applied again for
// another sandbox, because the cgroup may have been removed together with the old one.
type CgroupSetting struct {
	Attempt uint32          `json:"attempt"` // of the sandbox
	Cgroup  world.SetCgroup `json:"cgroup"`
	Share   qos.Share       `json:"share"` // of the cgroups above it
}

func (s *CgroupSetting) equal(other *CgroupSetting) bool {
	return s.Attempt == other.Attempt && s.Cgroup.Equal(&other.Cgroup)
}

const cgroupTimeout = 2 * time.Minute

// setCgroup applies the configuration of the cgroup for a sandbox, which may be one that is to be
// created, and reports whether the sandbox has to wait for that. The limit of memory of processes
// that run is not lowered to what they use, or below (validateMemoryResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go).
func (p *Pod) setCgroup(sandbox *Sandbox, attempt uint32, env *Env) bool {
	l := &env.Node.Cgroups
	switch {
	case !l.PerPod:
		return false
	case !l.DriverKnown:
		return true
	}
	setting := CgroupSetting{attempt, p.cgroupLimits(p.sandboxCgroup(sandbox, l), l),
		p.desiredShare()}
	if c := &p.Cgroup; c.Applied == nil || !c.Applied.equal(&setting) {
		if env.MustWaitForTier != nil && env.MustWaitForTier(p.UID, criconfig.QOS(p.Spec)) {
			return true
		}
		if p.announceResize(sandbox, setting, env) {
			return true
		}
		setting.Cgroup.NotBelowUsage = setting.Cgroup.MemoryBytes > 0 && p.HasLiveContainers()
		c.Applying, c.Removed = &setting, nil
		p.Op = env.Effects.Issue(p.Key(), "", cgroupTimeout, &setting.Cgroup)
		return true
	}
	return false
}

// announceResize announces to the runtime that the resources of a sandbox are about to change, and
// reports whether it has to. The runtime may refuse that (KEP-1287, UpdatePodSandboxResources).
func (p *Pod) announceResize(sandbox *Sandbox, setting CgroupSetting, env *Env) bool {
	c := &p.Cgroup
	isResize := sandbox != nil && (p.Resize.InProgress != nil ||
		c.Applied != nil && c.Applied.Attempt == setting.Attempt)
	if !isResize || c.Announced != nil && c.Announced.equal(&setting) {
		return false
	}
	c.Announcing = &setting
	cri := p.criPod(env)
	cri.Spec, _ = p.boundedSpec()
	p.Op = env.Effects.Issue(p.Key(), sandbox.ID, env.Node.RuntimeTimeout,
		cri.SandboxResourcesUpdate(sandbox.ID))
	return true
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

// HasShare reports whether the pod adds to the cgroups above its own. It does from its admission
// until its cgroup is removed.
func (p *Pod) HasShare() bool {
	if p.FullyRemoved || p.OverBudget && p.Cgroup.Applied == nil ||
		p.Spec == nil && p.CurrentSandbox() == nil {
		return false
	}
	return p.usesResources() || p.hasCgroup() || p.Cgroup.Possible != nil
}

// Share returns what the pod adds to the cgroups above its own; that of an orphan by the
// annotations of its sandbox. While its cgroup is to shrink, it adds what that has, or may have by
// a request in flight or of unknown outcome.
func (p *Pod) Share(l *cgroup.Layout) qos.Share {
	if p.Spec == nil {
		return qos.ShareOf(p.AllocatedPod(), l.ClassOf(p.CurrentSandbox().Cgroup))
	}
	share := p.desiredShare()
	if p.hasCgroup() {
		share = share.Max(p.Cgroup.Applied.Share)
	}
	if set := p.Cgroup.Applying; set != nil {
		share = share.Max(set.Share)
	}
	if possible := p.Cgroup.Possible; possible != nil {
		share = share.Max(*possible)
	}
	return share
}

// desiredShare returns what the pod's cgroup is to add to those above it: that of its limits, see
// cgroupLimits.
func (p *Pod) desiredShare() qos.Share {
	spec, bounds := p.boundedSpec()
	share := qos.ShareOf(spec, criconfig.QOS(p.Spec))
	if has := p.Cgroup.Applied; len(bounds) > 0 && has != nil {
		share = share.Max(has.Share)
	}
	for i := range bounds {
		share.CPU = max(share.CPU, bounds[i].CPURequest)
	}
	return share
}

// hasCgroup reports whether this incarnation of the agent has set the pod's cgroup and not removed
// it.
func (p *Pod) hasCgroup() bool {
	set := p.Cgroup.Applied
	return set != nil && !slices.Contains(p.Cgroup.Removed, set.Cgroup.Path)
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
		c.Possible = nil
	} else if ev.Err == nil {
		c.Applying.Cgroup.NotBelowUsage = false
		if above, isAbove := ev.Body.(*world.CgroupAboveLimit); isAbove {
			p.Op = 0
			p.clearProblems("", r.Call)
			p.failResize(fmt.Sprintf("cannot decrease memory limits: attempting to set pod memory limit "+
				"(%d) below current usage (%d)", c.Applying.Cgroup.MemoryBytes, above.UsageBytes), env)
			c.Applying.Cgroup.MemoryBytes = above.LimitBytes // new containers have room in it
			c.Applied, c.Possible, c.Applying = c.Applying, nil, nil
			return
		}
		c.Applied, c.Possible = c.Applying, nil
	} else if r.Call == "SetCgroup" {
		c.notePossible()
	}
	c.Applying = nil
	p.handleCreation(id, r, ev, env)
}

// notePossible notes that the write in flight has failed: the cgroup may have either setting.
func (c *Cgroup) notePossible() {
	share := c.Applying.Share
	for _, known := range []*qos.Share{c.Possible, c.appliedShare()} {
		if known != nil {
			share = share.Max(*known)
		}
	}
	c.Possible, c.Applied = &share, nil
}

func (c *Cgroup) appliedShare() *qos.Share {
	if c.Applied == nil {
		return nil
	}
	return &c.Applied.Share
}
