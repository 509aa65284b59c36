package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// storageReads fires when the agent reads a claim, a persistent volume or an attachment too often.
// It may read one that a pod waits for with a back-off, and one that a pod has once in a while.
// Each pod waits by itself for an attachment. The author of a pod decides how many there are of
// them, and none may take the rate of requests from the others.
type storageReads struct{}

func (*storageReads) describe() Entry {
	return Entry{"storage-reads", "Claims, persistent volumes and attachments that pods wait for " +
		"are read with a back-off, the others once a minute."}
}

// readModel is which objects of storage the agent has read.
type readModel struct {
	reads map[string][]time.Time // of the last readWindow, by key
	// changed is when the object was created, deleted, bound, attached or expanded, by key, and
	// expandedAt when a claim was last expanded further.
	changed    map[string][]time.Time
	expandedAt map[string]time.Time
	// written is the last write of a claim or a volume, by anybody and whatever has changed.
	written  map[string]storageWrite
	needless map[string][]time.Time // of the last readWindow, by key: the reads without a reason
}

// storageWrite is when an object of storage was written, and whether it exists since.
type storageWrite struct {
	at     time.Time
	exists bool
}

const (
	readWindow = time.Minute
	// readsMax is how often an object is read within readWindow by an agent that begins to wait for
	// it: a quarter of a second after the first time, and each time after twice as long, up to 30 s.
	readsMax = 10
	// needlessReadsMax is how many reads of a claim or a volume that no pod waits for may be earlier
	// than once a minute: a pod may go and come back.
	needlessReadsMax = 2
)

// checkFact notes what lets the agent begin to wait once more.
func (*storageReads) checkFact(m *model, f *truth.Fact) *finding {
	if f.Write == nil || !isStorageResource(f.Write.Resource) {
		return nil
	}
	w := f.Write
	m.reads.noteWrite(w, f.Time)
	isByOthers := w.Incarnation == 0 && storageState(&w.Before) != storageState(&w.After)
	isExpanded := expansionState(&w.Before) != expansionState(&w.After)
	if isExpanded {
		m.reads.noteExpansion(w, f.Time)
	}
	if isByOthers || isExpanded {
		r := &m.reads
		if r.changed == nil {
			r.changed = map[string][]time.Time{}
		}
		key := objectKey(w.Resource, w.Namespace, w.Name)
		r.changed[key] = append(inWindow(r.changed[key], f.Time), f.Time)
	}
	return nil
}

func isStorageResource(r world.Resource) bool {
	return r == world.ResourceClaims || r == world.ResourceVolumes || r == world.ResourceAttachments
}

// storageState returns what a pod waits for in an object of storage: that it exists, that a claim
// is bound, that a volume has a claim, and that an attachment is attached.
func storageState(o *world.Object) string {
	switch {
	case o.Claim != nil:
		return string(o.Claim.UID) + " " + string(o.Claim.Status.Phase)
	case o.Volume != nil && o.Volume.Spec.ClaimRef != nil:
		return string(o.Volume.UID) + " " + string(o.Volume.Spec.ClaimRef.UID)
	case o.Volume != nil:
		return string(o.Volume.UID)
	case o.Attachment != nil && o.Attachment.Status.Attached:
		return string(o.Attachment.UID) + " attached"
	case o.Attachment != nil:
		return string(o.Attachment.UID)
	}
	return ""
}

// expansionState returns how far a claim is expanded, which the agent reads it for.
func expansionState(o *world.Object) string {
	if o.Claim == nil {
		return ""
	}
	return fmt.Sprint(o.Claim.Status.AllocatedResourceStatuses, o.Claim.Status.Capacity.Storage())
}

// storageAsked judges a request as the agent makes it.
func (s *Set) storageAsked(now time.Time, request any) {
	get, isGet := request.(*world.GetObject)
	if !isGet || !isStorageResource(get.Resource) {
		return
	}
	r := &s.model.reads
	key := objectKey(get.Resource, get.Namespace, get.Name)
	if r.reads == nil {
		r.reads = map[string][]time.Time{}
	}
	reads := slices.DeleteFunc(inWindow(r.reads[key], now), func(at time.Time) bool {
		return at.Before(s.model.agentStartedAt) // by an earlier agent
	})
	reads = append(reads, now)
	r.reads[key] = reads
	most := readsMax * (1 + len(inWindow(r.changed[key], now)))
	switch {
	case len(reads) <= most:
	case get.Resource == world.ResourceAttachments:
		if s.model.faultPossible("GetObject", reads[0], now) { // a pod waits again after an outage
			most += readsMax
		}
		most *= s.model.countAttached(get.Name, now)
	default:
		most += readsMax * s.model.countNewUsers(get, now)
	}
	if len(reads) > most {
		s.report(&storageReads{}, findingf("%s %s was read %d times within %v", get.Resource, get.Name,
			len(reads), now.Sub(reads[0]).Round(time.Millisecond)), now)
	}
}

// countNewUsers counts the pods that have come within readWindow and wait for a claim or a volume:
// if no other one has waited, the agent begins again.
func (m *model) countNewUsers(get *world.GetObject, now time.Time) (n int) {
	for _, p := range m.podsInOrder {
		if len(p.specs) == 0 || now.Sub(p.desiredAt) > readWindow {
			continue
		}
		spec := p.newestSpec()
		if slices.ContainsFunc(spec.Spec.Volumes, func(v v1.Volume) bool {
			return m.volumes.isReadFor(get, spec, &v)
		}) {
			n++
		}
	}
	return n
}

// countAttached counts the pods that may wait for an attachment within readWindow. Each waits for
// itself, and again after each attempt to mount its volume (GenerateMountVolumeFunc in
// pkg/volume/util/operationexecutor/operation_generator.go).
func (m *model) countAttached(attachment string, now time.Time) (n int) {
	for _, p := range m.podsInOrder {
		if p.spec == nil && p.removedAt.Before(now.Add(-readWindow)) || len(p.specs) == 0 {
			continue
		}
		if slices.ContainsFunc(m.csiUses(p.newestSpec()), func(use csiUse) bool {
			return m.attachmentName(use.csiName) == attachment
		}) {
			n++
		}
	}
	return n
}

// noteExpansion notes that a claim was expanded further.
func (r *readModel) noteExpansion(w *truth.Write, now time.Time) {
	if r.expandedAt == nil {
		r.expandedAt = map[string]time.Time{}
	}
	r.expandedAt[objectKey(w.Resource, w.Namespace, w.Name)] = now
}

// noteWrite notes that an object was written.
func (r *readModel) noteWrite(w *truth.Write, now time.Time) {
	if r.written == nil {
		r.written = map[string]storageWrite{}
	}
	r.written[objectKey(w.Resource, w.Namespace, w.Name)] = storageWrite{now,
		storageState(&w.After) != ""}
}

// storageAskedAgain judges a read of a claim or a volume by what the one before has shown: if no
// pod waits for a change of it, it is read once a minute.
func (s *Set) storageAskedAgain(now time.Time, request any) {
	get, isGet := request.(*world.GetObject)
	if !isGet || get.Resource != world.ResourceClaims && get.Resource != world.ResourceVolumes {
		return
	}
	m, key := s.model, objectKey(get.Resource, get.Namespace, get.Name)
	reads := m.reads.reads[key] // with this one
	if len(reads) < 2 {
		return
	}
	last := reads[len(reads)-2]
	if now.Sub(last) >= m.syncPeriod()-claimSlack || m.isRereadNeeded(get, last, now) {
		return
	}
	r := &m.reads
	if r.needless == nil {
		r.needless = map[string][]time.Time{}
	}
	r.needless[key] = append(inWindow(r.needless[key], now), now)
	if n := len(r.needless[key]); n > needlessReadsMax {
		s.report(&storageReads{}, findingf("%s %s was read %v after the last time, and %d times like "+
			"that within %v, and no pod waits for it", get.Resource, get.Name,
			now.Sub(last).Round(time.Millisecond), n, readWindow), now)
	}
}

// isRereadNeeded reports whether a claim or a volume that was read at a time may have to be read
// again now: a pod waits for it, or had just come; it or the other object has changed since; or the
// read may have failed.
func (m *model) isRereadNeeded(get *world.GetObject, last, now time.Time) bool {
	if m.isFirstOfUser(get, last) || m.isRejected(get) || m.faultPossible("GetObject", last, now) {
		return true
	}
	return slices.ContainsFunc(m.podsInOrder, func(p *pod) bool {
		if len(p.specs) == 0 || p.spec == nil && len(p.leftovers()) == 0 &&
			p.removedAt.Before(now.Add(-readWindow)) {
			return false
		}
		spec := p.newestSpec()
		return slices.ContainsFunc(spec.Spec.Volumes, func(v v1.Volume) bool {
			return m.volumes.isReadFor(get, spec, &v) && m.awaitsStorage(spec, &v, last)
		})
	})
}

// awaitsStorage reports whether a volume of a pod lacks a claim or its persistent volume, or has
// them in another state than at a time, or they are expanded.
func (m *model) awaitsStorage(pod *v1.Pod, v *v1.Volume, since time.Time) bool {
	claim := m.volumes.claimOf(pod, v)
	if claim == nil || claim.Status.Phase != v1.ClaimBound || isOfAnother(pod, v, claim) ||
		len(claim.Status.AllocatedResourceStatuses) > 0 {
		return true
	}
	for _, key := range []string{objectKey(world.ResourceClaims, claim.Namespace, claim.Name),
		objectKey(world.ResourceVolumes, "", claim.Spec.VolumeName)} {
		last := m.reads.written[key]
		if !last.exists || !last.at.Before(since.Add(-transitSlack)) {
			return true
		}
	}
	return false
}

// inWindow returns those of some times, oldest first, that are within readWindow before another.
func inWindow(times []time.Time, now time.Time) []time.Time {
	first := slices.IndexFunc(times, func(at time.Time) bool { return now.Sub(at) <= readWindow })
	if first < 0 {
		return nil
	}
	return times[first:]
}
