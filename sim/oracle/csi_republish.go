package oracle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// csiRepublish fires when a volume of a pod that runs has not been published again for long,
// although its CSIDriver asks for it and nothing has gone wrong, and when one is published again
// although the last call has just succeeded. A driver that hangs, and a call that has failed, delay
// the next one.
type csiRepublish struct{}

func (*csiRepublish) describe() Entry {
	return Entry{"csi-republish", "A volume whose CSIDriver asks for that is published again in " +
		"each sync while its pod runs, and not more often. What its driver makes then gets the group " +
		"of the pod."}
}

const (
	csiRepublishDelay = 3 * time.Minute
	// csiRegroupBound is how long the files of a volume that was published again may not belong to
	// the group of its pod.
	csiRegroupBound = 30 * time.Second
)

// syncPeriod returns the period of the syncs of a pod, in which volumes are published and claims
// read again.
func (m *model) syncPeriod() time.Duration {
	return cmp.Or(m.opts.ChangeDetection.SyncPeriod, time.Minute)
}

// republishBound is how long a volume may be without a call: a period, the back-off after a
// failure, and a token that is renewed.
func (m *model) republishBound() time.Duration { return m.syncPeriod() + csiRepublishDelay }

// csiRepublished is the last call that has published a volume at a target.
type csiRepublished struct {
	deadline time.Time // until when the agent waits for the answer, or when it came
	isDone   bool      // this agent knows that it has succeeded
}

// noteRepublished notes a call that publishes a volume, and finds one that comes too early.
func (m *model) noteRepublished(now time.Time, eff *world.Effect) *finding {
	switch call := eff.Body.(type) {
	case *world.UnpublishVolume:
		delete(m.csi.republished, call.TargetPath)
	case *world.PublishVolume:
		least := m.syncPeriod() - time.Second // from an answer to the next call of one agent
		last := m.csi.republished[call.TargetPath]
		m.csi.republished[call.TargetPath] = csiRepublished{deadline: eff.Deadline}
		_, isPublished := m.csi.published[call.TargetPath]
		if !last.isDone || !isPublished || now.Sub(last.deadline) >= least ||
			m.lastFault(now).After(last.deadline.Add(-least)) {
			return nil
		}
		return findingf("PublishVolume is called for %s at %s %v after it has succeeded", call.Handle,
			call.TargetPath, now.Sub(last.deadline))
	}
	return nil
}

// republishAnswered notes the answer of a call.
func (m *model) republishAnswered(now time.Time, call csiInFlight, ev *world.Event) {
	if call.call == "PublishVolume" {
		m.csi.republished[call.target] = csiRepublished{deadline: now, isDone: ev.Err == nil}
	}
}

// requiresRepublish reports whether a driver wants its volumes published again from time to time;
// nil: it has no CSIDriver.
func requiresRepublish(d *storagev1.CSIDriver) bool {
	return d != nil && isTrue(d.Spec.RequiresRepublish)
}

// checkServed finds a volume that should have been published again by now.
func (*csiRepublish) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	since := now.Add(-m.republishBound())
	if m.agentDown || m.agentStartedAt.After(since) || m.lastFault(now).After(since) {
		return nil
	}
	// A volume that this agent has found counts as published when it started.
	for _, target := range slices.Sorted(maps.Keys(m.csi.published)) {
		is, p := m.csi.published[target], m.podOfTarget(target)
		if !requiresRepublish(m.csi.drivers[is.driver]) || p == nil || p.spec == nil ||
			p.spec.DeletionTimestamp != nil || p.specChanged || p.liveContainers == 0 {
			continue
		}
		if f := m.findUngrouped(now, p, target, m.csi.republished[target]); f != nil {
			return f
		}
		if m.isRepublishDelayed(p, is, since) {
			continue
		}
		if last := m.csi.republished[target].deadline; last.Before(since) {
			return findingf("%s of %s has not been published again since %s", is.csiName, p,
				lastTime(last))
		}
	}
	return nil
}

// findUngrouped returns that what a driver has made in a volume, when it published it again, is not
// of the group of the pod.
func (m *model) findUngrouped(now time.Time, p *pod, target string, last csiRepublished) *finding {
	is := m.csi.published[target]
	_, isBusy := m.csi.inFlight[is.csiName]
	if m.opts.GroupOf == nil || !last.isDone || isBusy || now.Sub(last.deadline) <= csiRegroupBound ||
		m.lastFault(now).After(last.deadline) || m.agentStartedAt.After(last.deadline) ||
		m.isCSIDriverAway(now, is.driver, now.Sub(last.deadline)) || m.isPublishedTwice(is.csiName) {
		return nil
	}
	want, mustHave := m.wantedGroup(p, target)
	got, exists := m.opts.GroupOf(target + "/" + truth.RenewedFile)
	if !mustHave || !exists || got == want || isOnRootMismatch(p.spec) {
		return nil
	}
	return findingf("%s of %s was published again %v ago, and a new file in it has group %d, want %d",
		is.csiName, p, now.Sub(last.deadline).Round(time.Second), got, want)
}

// isOnRootMismatch reports whether the files of volumes of a pod stay as they are if the root has
// the group of the pod.
func isOnRootMismatch(pod *v1.Pod) bool {
	s := pod.Spec.SecurityContext
	return s != nil && s.FSGroupChangePolicy != nil &&
		*s.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
}

// isPublishedTwice reports whether a volume is published for several pods, each of which may have
// another group.
func (m *model) isPublishedTwice(name csiName) bool {
	count := 0
	for _, is := range m.csi.published { //ordered: a count
		if is.csiName == name {
			count++
		}
	}
	return count > 1
}

// wantedGroup returns the group that the agent gives to the files of a volume, and whether it does.
// By default, it does so for volumes of one node with a type of file system.
func (m *model) wantedGroup(p *pod, target string) (gid int64, mustHave bool) {
	security, driver := p.spec.Spec.SecurityContext, m.csi.published[target].driver
	d := m.csi.drivers[driver]
	if security == nil || security.FSGroup == nil || d == nil || m.csi.grouping[driver] {
		return 0, false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if d.Spec.FSGroupPolicy != nil {
		policy = *d.Spec.FSGroupPolicy
	}
	for _, use := range m.csiUses(p.spec) {
		if use.path == target {
			fsType, isOfOneNode, readOnly := m.fileSystemOf(p.spec, use.volume)
			return *security.FSGroup, !readOnly && (policy == storagev1.FileFSGroupPolicy ||
				policy == storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy && fsType != "" && isOfOneNode)
		}
	}
	return 0, false
}

// fileSystemOf returns what decides whether the agent changes the group of a volume of a driver.
func (m *model) fileSystemOf(pod *v1.Pod, volume string) (fsType string, isOfOneNode,
	readOnly bool) {
	at := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	v := &pod.Spec.Volumes[at]
	if v.CSI != nil {
		if v.CSI.FSType != nil {
			fsType = *v.CSI.FSType
		}
		return fsType, true, isTrue(v.CSI.ReadOnly)
	}
	pv := m.volumes.volumeOf(pod, v)
	if pv == nil || pv.Spec.CSI == nil {
		return "", true, false
	}
	_, readOnly = claimName(pod, v)
	modes := pv.Spec.AccessModes
	return pv.Spec.CSI.FSType, slices.Contains(modes, v1.ReadWriteOnce) ||
		slices.Contains(modes, v1.ReadWriteOncePod), readOnly
}

// isRepublishDelayed reports whether there was a reason since a time not to publish a volume again.
func (m *model) isRepublishDelayed(p *pod, is csiPlace, since time.Time) bool {
	other, isBusy := m.csi.inFlight[is.csiName]
	states := m.csi.driverStates[is.driver]
	return is.since.After(since) || p.lastStartedAt.After(since) ||
		m.isCSIDriverAway(m.now, is.driver, m.republishBound()) || m.mayChangeGroup(m.now, is.csiName) ||
		isBusy && other.deadline.After(since) ||
		len(states) > 1 && states[len(states)-2].until.After(since) || m.lacksSecret(p, since)
}

// lacksSecret reports whether a Secret that a volume of a pod needs has not existed all the time.
func (m *model) lacksSecret(p *pod, since time.Time) bool {
	for i := range p.spec.Spec.Volumes {
		for _, ref := range m.csiSecretsOf(p.spec, &p.spec.Spec.Volumes[i]) {
			if ref == nil {
				continue
			}
			name := objectKey(world.ResourceSecrets, ref.Namespace, ref.Name)
			if m.objectHistory.current(ref) == nil || m.objectHistory.changedAt[name].After(since) {
				return true
			}
		}
	}
	return false
}
