package oracle

import (
	"maps"
	"path"
	"slices"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// volumeCalls is what the agent waits for before the volumes of a pod are unmounted: the calls that
// set them up, as a pod has one operation on files at a time, and the drivers of CSI.
type volumeCalls struct {
	settingUp map[world.OpID]setUp // of this agent
	// unpublishing are the targets that this agent has asked a driver to unpublish, until that has
	// succeeded.
	unpublishing map[string]world.OpID
	// changedAt is when a volume of a pod was last unmounted, or such a call was answered, by UID.
	changedAt map[string]time.Time
}

// setUp is a call that mounts something at a path, or gives it to a group.
type setUp struct {
	path     string
	deadline time.Time
}

func newVolumeCalls() volumeCalls {
	return volumeCalls{settingUp: map[world.OpID]setUp{}, unpublishing: map[string]world.OpID{},
		changedAt: map[string]time.Time{}}
}

// agentStarted forgets the calls of the agent before.
func (v *volumeCalls) agentStarted() {
	clear(v.settingUp)
	clear(v.unpublishing)
}

// setUpPath returns at which path a call sets up a volume; empty: it does not.
func setUpPath(body any) string {
	switch c := body.(type) {
	case *world.MountDevice:
		return c.Path
	case *world.MountMemory:
		return c.Path
	case *world.MountNFS:
		return c.Path
	case *world.BindMount:
		return c.Path
	case *world.BindSubPath:
		return c.Target
	case *world.ShareWithGroup:
		return c.Path
	case *world.PublishVolume:
		return c.TargetPath
	}
	return ""
}

func (v *volumeCalls) asked(eff *world.Effect) {
	if at := setUpPath(eff.Body); at != "" {
		v.settingUp[eff.Op] = setUp{at, eff.Deadline}
	}
	if c, isUnpublish := eff.Body.(*world.UnpublishVolume); isUnpublish {
		v.unpublishing[c.TargetPath] = eff.Op
	}
}

func (m *model) volumeCallAnswered(now time.Time, ev *world.Event) {
	v := &m.volumeCalls
	if call, isSetUp := v.settingUp[ev.Op]; isSetUp {
		delete(v.settingUp, ev.Op)
		for _, p := range m.podsInOrder {
			if p.hasVolumeAt(call.path) {
				v.changedAt[p.uid] = now
			}
		}
	}
	for target, op := range v.unpublishing { //ordered: an operation is of one target
		if op != ev.Op || ev.Err != nil {
			continue
		}
		delete(v.unpublishing, target)
		if p := m.podOfTarget(target); p != nil {
			v.changedAt[p.uid] = now
		}
	}
}

// applyUnmounted notes when a volume of a pod was unmounted.
func (m *model) applyUnmounted(f *truth.Fact) {
	if p := m.podOfTarget(f.Path); f.Kind == truth.Unmounted && p != nil {
		m.volumeCalls.changedAt[p.uid] = f.Time
	}
}

// hasVolumeAt reports whether a path is of a volume of the pod, or of the device that backs one:
// its mount is named after the persistent volume, and any pod with that volume waits for it.
func (p *pod) hasVolumeAt(at string) bool {
	if p.model.podOfTarget(at) == p {
		return true
	}
	for _, spec := range p.specs {
		for i := range spec.Spec.Volumes {
			claim := p.model.volumes.claimOf(spec, &spec.Spec.Volumes[i])
			if claim != nil && claim.Spec.VolumeName == path.Base(at) {
				return true
			}
		}
	}
	return false
}

// awaitsSetUp reports whether a call is in flight that sets up a volume of the pod.
func (p *pod) awaitsSetUp(now time.Time) bool {
	for _, call := range p.model.volumeCalls.settingUp { //ordered: whether there is one
		if now.Before(call.deadline) && p.hasVolumeAt(call.path) {
			return true
		}
	}
	return false
}

// holdsVolumes reports whether the agent waits for volumes of the pod: one is mounted or published,
// its driver has not said that it is not any more, or may have been away, or another one is being
// set up.
func (p *pod) holdsVolumes(now time.Time) bool {
	m := p.model
	isOfPod := func(target string) bool { return m.podOfTarget(target) == p }
	return m.volumes.countMountsBelow(m.opts.PodsDir+"/"+p.uid) > 0 ||
		slices.ContainsFunc(m.volumes.mounts, func(at mounted) bool {
			return (isWithin(at.path, m.localBlocks()) || m.isInDiskBlocks(at.path)) &&
				isOfPod(at.path)
		}) ||
		slices.ContainsFunc(slices.Sorted(maps.Keys(m.csi.published)), isOfPod) ||
		slices.ContainsFunc(slices.Sorted(maps.Keys(m.volumeCalls.unpublishing)), isOfPod) ||
		p.keepsVolume(now, groupBeginBound) || p.awaitsSetUp(now)
}
