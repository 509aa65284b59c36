package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// csiCalls fires when the agent calls a driver in a way that the specification or the cluster
// forbids: a call for a volume while it waits for another one of the same volume; a stage, or a
// publication, of a volume that the Node does not say durably that it uses, or that was not
// attached; and a call that unstages a volume which is published. It also fires for a publication
// that the agent knows to be there. Statistics change nothing: their calls may overlap with others.
// The files of a volume are given to the group of a pod by a call for the volume too.
type csiCalls struct{}

func (*csiCalls) describe() Entry {
	return Entry{"csi-calls", "The calls for one CSI volume never overlap, each has its reason, and " +
		"no volume is used before the Node says that it is in use and it is attached."}
}

// attachedBound is how long after a volume was detached a call for it may still be on its way. The
// agent acts on what it has read of the attachment.
const attachedBound = 30 * time.Second

// checkCSICall judges a call of a driver as it reaches the driver, and notes it.
func (s *Set) checkCSICall(now time.Time, eff *world.Effect) {
	if f := s.model.csi.stats.asked(now, eff); f != nil {
		s.report(&csiStats{}, f, now)
	}
	m := s.model
	name, target, changes := csiVolumeOf(eff.Body)
	if share, isShare := eff.Body.(*world.ShareWithGroup); isShare {
		if name, changes = m.csiVolumeAt(share.Path); changes {
			m.csi.groupUntil[name] = eff.Deadline
		}
	}
	if !changes {
		return
	}
	s.checkCSIContent(now, eff)
	if f := m.noteRepublished(now, eff); f != nil {
		s.report(&csiRepublish{}, f, now)
	}
	if f := m.findWrongCSICall(now, eff, name, target); f != nil {
		s.report(&csiCalls{}, f, now)
	}
	switch body := eff.Body.(type) {
	case *world.UnpublishVolume:
		delete(m.csi.succeeded, target)
		m.csi.releasedAt[m.csiDataDir(target)] = now
	case *world.UnstageVolume:
		m.csi.releasedAt[m.csiDataDir(body.StagingPath)] = now
	}
	m.csi.inFlight[name] = csiInFlight{eff.Op, world.CallName(eff.Body), target, eff.Deadline}
}

// csiVolumeOf returns the volume that a call changes, and the target of a publication; false if it
// changes none.
func csiVolumeOf(body any) (name csiName, target string, changes bool) {
	switch c := body.(type) {
	case *world.StageVolume:
		return csiName{c.Driver.Name, c.Handle}, "", true
	case *world.UnstageVolume:
		return csiName{c.Driver.Name, c.Handle}, "", true
	case *world.PublishVolume:
		return csiName{c.Driver.Name, c.Handle}, c.TargetPath, true
	case *world.UnpublishVolume:
		return csiName{c.Driver.Name, c.Handle}, c.TargetPath, true
	case *world.ExpandVolume:
		return csiName{c.Driver.Name, c.Handle}, "", true
	}
	return csiName{}, "", false
}

func (m *model) findWrongCSICall(now time.Time, eff *world.Effect, name csiName,
	target string) *finding {
	if other, isBusy := m.csi.inFlight[name]; isBusy && now.Before(other.deadline) {
		return findingf("%s is called for %s, while %s is in flight", world.CallName(eff.Body), name,
			other.call)
	}
	switch body := eff.Body.(type) {
	case *world.StageVolume:
		return m.findUnattached(now, eff, name)
	case *world.UnstageVolume:
		if at := m.csi.publishedAt(name); len(at) > 0 {
			return findingf("UnstageVolume is called for %s, which is published at %s", name, at[0])
		}
	case *world.PublishVolume:
		f := m.findNeedless(now, name, target)
		if f == nil && body.StagingPath == "" && isInline(name.handle) {
			return nil // which is never attached
		}
		if f == nil {
			f = m.findUnattached(now, eff, name)
		}
		return f
	}
	return nil
}

// findUnattached returns that a volume is to be used before the Node says so, or although it was
// not attached.
func (m *model) findUnattached(now time.Time, eff *world.Effect, name csiName) *finding {
	node := m.objects.node
	if node == nil || !m.mustBeAttached(now, name.driver) {
		return nil
	}
	if !slices.Contains(node.Status.VolumesInUse, name.unique()) {
		return findingf("%s is called for %s, and the Node does not say that it is in use",
			world.CallName(eff.Body), name)
	}
	isAttached := slices.ContainsFunc(node.Status.VolumesAttached, func(v v1.AttachedVolume) bool {
		return v.Name == name.unique()
	})
	last := m.csi.attached[name.unique()]
	if !isAttached && (last.IsZero() || now.Sub(last) > attachedBound) &&
		!m.anyFaultPossible(now.Add(-reconnectBound), now, "ObjectChanged", "WatchObjects", "GetObject") {
		return findingf("%s is called for %s, which is not attached", world.CallName(eff.Body), name)
	}
	return nil
}

// findNeedless returns that a volume is to be published where the agent knows that it is, unless
// its driver wants that from time to time.
func (m *model) findNeedless(now time.Time, name csiName, target string) *finding {
	p := m.podOfTarget(target)
	is, isPublished := m.csi.published[target]
	switch {
	case requiresRepublish(m.csi.drivers[name.driver]),
		!isPublished, is.csiName != name, !m.csi.succeeded[target],
		p == nil, p.liveContainers == 0, p.wasRemoved(), p.specChanged,
		m.lastFault(now).After(is.since):
		return nil
	}
	return findingf("PublishVolume is called for %s, which is published at %s", name, target)
}

// csiReceived notes the answer of a call.
func (m *model) csiReceived(now time.Time, ev *world.Event) {
	if ev.Op == 0 {
		return
	}
	m.csi.stats.answered(ev)
	for name, call := range m.csi.inFlight { //ordered: an operation is of one volume
		if call.op != ev.Op {
			continue
		}
		delete(m.csi.inFlight, name)
		m.republishAnswered(now, call, ev)
		switch {
		case call.call == "ShareWithGroup":
			m.csi.groupUntil[name] = now
		case call.call == "PublishVolume" && ev.Err == nil:
			m.csi.succeeded[call.target] = true
		case ev.Err == nil && (call.call == "UnstageVolume" || call.call == "UnpublishVolume"):
			m.csi.knownFreeAt = now
		}
	}
}
