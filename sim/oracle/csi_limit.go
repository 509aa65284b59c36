package oracle

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// csiLimit fires when a pod is ended because the node has too many volumes, and no volume of it
// has failed to be attached for that after the pod was there; and when a pod waits long for such a
// volume, and is not ended.
type csiLimit struct{}

func (*csiLimit) describe() Entry {
	return Entry{"csi-limit", "A pod fails because the node has too many volumes if, and only if, " +
		"it waits long for one that cannot be attached for that."}
}

const (
	reasonVolumeLimit = "VolumeAttachmentLimitExceeded"
	// volumeWait is how long a pod waits for its volumes at least (podAttachAndMountTimeout upstream).
	volumeWait = 2*time.Minute + 3*time.Second
	// volumeLimitBound is how long it may wait: the wait begins again with the agent, and the Node
	// may have to say before that the volume is in use.
	volumeLimitBound = volumeWait + time.Minute
)

// csiFull is when the attachment of a volume has failed because the node has too many.
type csiFull struct {
	since time.Time // zero: it has not, or is attached by now
	last  time.Time // when it was so last
}

// applyAttachment applies a change of a VolumeAttachment.
func (c *csiModel) applyAttachment(f *truth.Fact) {
	o := f.Write.After.Attachment
	if o == nil {
		o = f.Write.Before.Attachment
	}
	if o == nil {
		return
	}
	const resourceExhausted = 8 // of gRPC
	err := o.Status.AttachError
	isFull := f.Write.After.Attachment != nil && !o.Status.Attached && err != nil &&
		err.ErrorCode != nil && *err.ErrorCode == resourceExhausted
	full := c.full[f.Write.Name]
	switch {
	case isFull && full.since.IsZero():
		full.since = f.Time
	case !isFull && !full.since.IsZero():
		full.since, full.last = time.Time{}, f.Time
	}
	c.full[f.Write.Name] = full
}

// fullOf returns when a volume could not be attached because the node has too many.
func (m *model) fullOf(name csiName) csiFull { return m.csi.full[m.attachmentName(name)] }

// attachmentName returns the name of the attachment of a volume to the node.
func (m *model) attachmentName(name csiName) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(name.handle+name.driver+m.opts.NodeName)))
}

// isLimitMutable reports whether a driver may change how many volumes the node can have.
func (c *csiModel) isLimitMutable(driver string) bool {
	d := c.drivers[driver]
	return d != nil && d.Spec.NodeAllocatableUpdatePeriodSeconds != nil
}

// mayBeAtVolumeLimit reports whether the pod may be ended because a volume of it could not be
// attached.
func (p *pod) mayBeAtVolumeLimit() bool {
	if p.spec == nil || len(p.model.csi.full) == 0 {
		return false
	}
	return slices.ContainsFunc(p.model.csiUses(p.spec), func(u csiUse) bool {
		full := p.model.fullOf(u.csiName)
		return p.model.csi.isLimitMutable(u.driver) &&
			(!full.since.IsZero() || full.last.After(p.desiredAt))
	})
}

func (*csiLimit) checkFact(m *model, f *truth.Fact) *finding {
	if !isAgentStatus(f) || f.Write.After.Pod.Status.Reason != reasonVolumeLimit ||
		f.Write.Before.Pod.Status.Reason == reasonVolumeLimit {
		return nil
	}
	p := m.pods[string(f.Write.After.Pod.UID)]
	if p == nil || p.spec == nil || p.specChanged {
		return nil
	}
	if !p.mayBeAtVolumeLimit() {
		return findingf("pod %s is ended as the node has too many volumes, but none of its own failed "+
			"to be attached for that", p)
	}
	if waited := f.Time.Sub(p.desiredAt); waited < volumeWait {
		return findingf("pod %s is ended as the node has too many volumes after %v", p, waited)
	}
	if driver := m.findUnaskedDriver(p, f.Time); driver != nil {
		return findingf("pod %s is ended as the node has too many volumes, and the CSINode does not "+
			"have the number that %s has now", p, driver.Name)
	}
	return nil
}

// limitBound is how long a driver has had its number of volumes before the CSINode has to have it
// when a pod ends for it.
const limitBound = 30 * time.Second

// findUnaskedDriver returns a driver for which a pod may be ended and whose number of volumes the
// CSINode does not have, although it could be asked; nil if there is none.
func (m *model) findUnaskedDriver(p *pod, now time.Time) *truth.Driver {
	for _, use := range m.csiUses(p.spec) {
		is, since := m.csi.processes[use.driver], m.plugins.registeredSince(use.driver)
		up, full := m.csi.driverUpSince[use.driver], m.fullOf(use.csiName)
		if is == nil || up.IsZero() || since.IsZero() || !m.csi.isLimitMutable(use.driver) ||
			full.since.IsZero() && full.last.IsZero() {
			continue
		}
		want, changedAt := is.VolumesMax, later(later(up, since), m.agentStartedAt)
		if !is.LimitAt.IsZero() && now.After(is.LimitAt) {
			want, changedAt = is.VolumesThen, later(changedAt, is.LimitAt)
		}
		if now.Sub(changedAt) > limitBound && m.plugins.places.limitOf(use.driver) != want &&
			!m.anyFaultPossible(now.Add(-volumeWait), now, "GetCSINodeInfo", "GetObject", "UpdateObject") {
			return is
		}
	}
	return nil
}

func (*csiLimit) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		p := m.pods[string(served.UID)]
		if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() ||
			served.DeletionTimestamp != nil || isTerminalPhase(served.Status.Phase) {
			continue
		}
		if use, since := p.waitsInVain(); !since.IsZero() && now.Sub(since) > volumeLimitBound {
			return findingf("pod %s waits for %s since %v, and the node has too many volumes to have it "+
				"attached", p, use, now.Sub(since))
		}
	}
	return nil
}

// waitsInVain returns a volume of the pod that cannot be attached because the node has too many,
// and since when the agent could know that; zero if there is none.
func (p *pod) waitsInVain() (is csiName, since time.Time) {
	m, s := p.model, p.newestSandbox()
	if s == nil || !s.ready || p.rejected || p.liveContainers > 0 {
		return is, since
	}
	for _, use := range m.csiUses(p.spec) {
		full, up := m.fullOf(use.csiName), m.csi.driverUpSince[use.driver]
		if full.since.IsZero() || up.IsZero() || !m.csi.isLimitMutable(use.driver) {
			continue
		}
		since = later(later(full.since, up), later(p.changedAt, m.agentStartedAt))
		// Until the runtime has said which sandboxes there are, the agent waits for no volume.
		since = later(since, m.lastTimeout("ListPodSandbox", "ListContainers"))
		return use.csiName, later(since, m.lastFault(m.now))
	}
	return is, since
}
