// Package statuswriter writes the statuses of pods to the API server, as the kubelet's status
// manager does.
//
// Facts: for every pod at the API server the newest known version of the object, from the watch or
// from a completed write, and the write in flight. Plan: compares the stored status with the
// desired one and writes the difference. So changes made while the server is unavailable are
// written when it is available again, and after a restart of the agent only actual differences are
// written. If a pod is marked for deletion, its last status is stored and nothing is left of it on
// the node, the object is deleted. Events: observations of objects, and the completions of writes.
// Start reading at Writer, then Writer.Plan; merge.go has the content of a status.
package statuswriter

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component of the keys of statuses.
const Component = "status"

const (
	requestTimeout = 30 * time.Second
	backoffFirst   = time.Second
	backoffMax     = time.Minute
	// delayMax is how long the write of a change that other changes follow soon is delayed, at most;
	// endDelayMax is that of a pod that has run, whose readiness is part of the change.
	delayMax    = 10 * time.Second
	endDelayMax = time.Second
	// restoredAfter is how long an object must be older than the known version before the API server
	// counts as restored from a backup. A watch is late by seconds; if it is later, the write only
	// fails with a conflict.
	restoredAfter = time.Minute
)

// Key returns the owner of the writes for a pod.
func Key(uid string) timer.Key { return timer.Key{Component: Component, Name: uid} }

// Writer writes the statuses of all pods. The zero value is ready.
type Writer struct {
	Entries map[string]*Entry `json:"entries,omitempty"` // by UID of the pod on the node
	Written uint64            `json:"written"`           // number of statuses
	Deleted uint64            `json:"deleted"`           // number of pods
	Failed  uint64            `json:"failed"`            // number of failed writes
}

// Entry is one pod at the API server.
type Entry struct {
	// Stored is the newest known version of the object; for a static pod that is its mirror pod.
	Stored *v1.Pod `json:"stored"`
	// Older is the observed version, if that is older than Stored, and OlderSince since when it is:
	// the watch is late, or the API server was restored from a backup.
	Older      *v1.Pod   `json:"older,omitempty"`
	OlderSince time.Time `json:"olderSince"`

	Op          world.OpID `json:"op,omitempty"`
	SumInFlight string     `json:"sumInFlight,omitempty"` // the sum of the status in flight
	Failures    int        `json:"failures,omitempty"`
	NotBefore   time.Time  `json:"notBefore"`
	// Conflicted reports whether the last write failed with a conflict. The back-off ends when a newer
	// version is observed.
	Conflicted bool `json:"conflicted,omitempty"`
	// Refused reports whether the last write was refused as invalid: the status cannot follow on the
	// one that the object has.
	Refused bool `json:"refused,omitempty"`
	// TooLarge are the bytes of the smallest status that was refused as too large; zero if none was.
	// Of a status that is no smaller the least is written (withoutLists), so that the end and the
	// deletion of the pod go on. BytesInFlight are those of the status in flight; zero if it is the
	// least, of which nothing can be left out.
	TooLarge      int `json:"tooLarge,omitempty"`
	BytesInFlight int `json:"bytesInFlight,omitempty"`
	// StoredSum is the sum of the status that was written last, and StoredVersion the version of the
	// object with it. Fields that the server drops from a status are not written again and again.
	StoredSum     string `json:"storedSum,omitempty"`
	StoredVersion string `json:"storedVersion,omitempty"`
	// DelayedSince is since when the write of a change is delayed for further changes.
	DelayedSince time.Time `json:"delayedSince"`
	// ChangedAt is since when the status differs that is in flight, or that is to be written next;
	// ChangedInFlight is since when the desired status differs from the one in flight.
	ChangedAt       time.Time `json:"changedAt"`
	ChangedInFlight time.Time `json:"changedInFlight"`
	// UpToDate reports whether the object has the desired status.
	UpToDate bool `json:"upToDate"`
	// Deleted reports whether the deletion has completed: only the watch can report more about the
	// object.
	Deleted bool `json:"deleted,omitempty"`
}

// Desired is what to write for a pod.
type Desired struct {
	// Status is the status of the pod; nil if it is not known yet.
	Status *v1.PodStatus
	// ChangeSoon reports whether the status will change soon, by an operation in progress.
	ChangeSoon bool
	// NothingLeft reports whether nothing is left of the pod on the node.
	NothingLeft bool
}

// Observe applies a version of the object of a pod. An object with another UID replaces the old
// one.
func (w *Writer) Observe(uid string, object *v1.Pod) {
	e := w.Entries[uid]
	switch {
	case e == nil || e.Stored.UID != object.UID:
		w.abandon(e)
		if w.Entries == nil {
			w.Entries = map[string]*Entry{}
		}
		w.Entries[uid] = &Entry{Stored: object}
	case isNewer(e.Stored, object) && !isNewer(object, e.Stored):
		e.Older = object
	case !isNewer(object, e.Stored):
		e.Older, e.OlderSince = nil, time.Time{}
	default:
		e.Stored, e.Older, e.OlderSince = object, nil, time.Time{}
		if e.Conflicted {
			e.Conflicted, e.NotBefore = false, time.Time{}
		}
	}
}

// Remove removes a pod that no longer exists at the API server.
func (w *Writer) Remove(uid string) {
	w.abandon(w.Entries[uid])
	delete(w.Entries, uid)
}

// abandon ignores the completion of the write in flight.
func (w *Writer) abandon(e *Entry) {
	if e != nil {
		e.Op = 0
	}
}

// isNewer reports whether one version of an object is newer than another. Versions are increasing
// numbers (KEP-5504). A version that cannot be compared counts as newer: then the order of arrival
// decides.
func isNewer(object, other *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion,
		other.ResourceVersion)
	return err != nil || order > 0
}

// RetryNow ends the back-off of a pod: the API server responds again.
func (w *Writer) RetryNow(uid string) {
	if e := w.Entries[uid]; e != nil {
		e.Failures, e.NotBefore = 0, time.Time{}
	}
}

// Plan issues the next write for a pod, and returns when to plan again.
func (w *Writer) Plan(uid string, desired Desired, effects *op.Effects) time.Time {
	e := w.Entries[uid]
	if e == nil {
		return time.Time{}
	}
	restored := e.adoptOlder(effects.Now())
	return timer.Soonest(restored, e.planWrite(uid, desired, effects))
}

// adoptOlder makes an older version the known one if it has been observed for long enough, and
// returns when it will be.
func (e *Entry) adoptOlder(now time.Time) time.Time {
	switch {
	case e.Older == nil || e.Op != 0:
		return time.Time{}
	case e.OlderSince.IsZero():
		e.OlderSince = now
	}
	if at := e.OlderSince.Add(restoredAfter); now.Before(at) {
		return at
	}
	e.Stored, e.Older, e.OlderSince = e.Older, nil, time.Time{}
	e.StoredSum, e.StoredVersion, e.Deleted = "", "", false
	return time.Time{}
}

// planWrite issues the next write, and returns when to plan again.
func (e *Entry) planWrite(uid string, desired Desired, effects *op.Effects) time.Time {
	switch {
	case e.Op != 0:
		e.noteChangeInFlight(desired.Status, effects)
		return time.Time{}
	}
	e.UpToDate = false
	if effects.Now().Before(e.NotBefore) {
		if desired.Status != nil && e.ChangedAt.IsZero() {
			e.noteChange(!e.hasStatus(e.merged(desired.Status, effects)), effects.Now())
		}
		return e.NotBefore
	}
	if desired.Status != nil {
		merged := e.merged(desired.Status, effects)
		hasStatus := e.hasStatus(merged)
		e.noteChange(!hasStatus, effects.Now())
		if !hasStatus {
			if until := e.delayUntil(merged, desired.ChangeSoon,
				effects.Now()); effects.Now().Before(until) {
				return until
			}
			e.SumInFlight, e.BytesInFlight = statusSum(merged), merged.Size()
			if e.TooLarge > 0 && e.BytesInFlight < e.TooLarge && len(merged.ContainerStatuses) == 0 {
				e.BytesInFlight = 0
			}
			e.Op = effects.Issue(Key(uid), e.Stored.Namespace+"/"+e.Stored.Name, requestTimeout,
				&world.PatchObject{
					Resource: world.ResourcePods, Namespace: e.Stored.Namespace,
					Name: e.Stored.Name, Status: true, Patch: newPatch(e.Stored, merged),
				})
			return time.Time{}
		}
		e.UpToDate, e.DelayedSince = true, time.Time{}
	}
	if desired.NothingLeft && !e.Deleted && e.Stored.DeletionTimestamp != nil &&
		IsTerminal(&e.Stored.Status) && !isKeptByFinalizers(e.Stored) {
		e.Op = effects.Issue(Key(uid), e.Stored.Namespace+"/"+e.Stored.Name, requestTimeout,
			DeleteRequest(e.Stored))
	}
	return time.Time{}
}

// isKeptByFinalizers reports whether a pod was deleted without a grace period: by an earlier
// incarnation of the agent, or by force. Another deletion changes nothing.
func isKeptByFinalizers(pod *v1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return grace != nil && *grace == 0 && len(pod.Finalizers) > 0
}

// merged returns the status to write for a desired one.
func (e *Entry) merged(desired *v1.PodStatus, effects *op.Effects) *v1.PodStatus {
	stored := &e.Stored.Status
	if runsAgain(e.Stored, desired) {
		stored = withoutEnd(stored)
	}
	merged := merge(&e.Stored.Spec, stored, desired)
	if merged.StartTime == nil && IsTerminal(merged) {
		// A pod that was rejected has a start time as well (updateStatusInternal in status_manager.go).
		now := metav1.NewTime(effects.Date().Truncate(time.Second))
		merged.StartTime = &now
	}
	if e.TooLarge > 0 && merged.Size() >= e.TooLarge {
		return withoutLists(merged)
	}
	return merged
}

// noteChange notes whether the desired status is to be written. Of several changes before a write
// the first counts, as in the kubelet.
func (e *Entry) noteChange(changed bool, now time.Time) {
	switch {
	case !changed:
		e.ChangedAt = time.Time{}
	case e.ChangedAt.IsZero():
		e.ChangedAt = now
	}
}

// noteChangeInFlight notes that the desired status has changed since the one in flight was sent.
func (e *Entry) noteChangeInFlight(desired *v1.PodStatus, effects *op.Effects) {
	if desired != nil && e.SumInFlight != "" && e.ChangedInFlight.IsZero() &&
		statusSum(e.merged(desired, effects)) != e.SumInFlight {
		e.ChangedInFlight = effects.Now()
	}
}

// ChangedAt returns since when the status of a pod differs whose write is in flight.
func (w *Writer) ChangedAt(uid string) time.Time {
	if e := w.Entries[uid]; e != nil {
		return e.ChangedAt
	}
	return time.Time{}
}

// delayUntil returns until when to delay a write, so that it includes the changes that come soon.
// Only changes of a pod that stays in a phase that is not final are delayed. The first status of a
// pod, and a change of the phase, are written without delay: other clients act on these, and when
// many pods are created or deleted at once they must not wait for less important writes.
func (e *Entry) delayUntil(desired *v1.PodStatus, changeSoon bool, now time.Time) time.Time {
	stored := &e.Stored.Status
	if !changeSoon || stored.StartTime == nil ||
		stored.Phase != desired.Phase || IsTerminal(stored) {
		e.DelayedSince = time.Time{}
		return e.DelayedSince
	}
	if e.DelayedSince.IsZero() {
		e.DelayedSince = now
	}
	until := e.DelayedSince.Add(endDelayMax)
	if stored.Phase == v1.PodPending {
		until = e.DelayedSince.Add(delayMax)
	}
	if !now.Before(until) {
		e.DelayedSince = time.Time{}
	}
	return until
}

// DeleteRequest returns the request to delete this object, and no later one of the same name.
func DeleteRequest(object *v1.Pod) *world.DeleteObject {
	return &world.DeleteObject{
		Resource: world.ResourcePods, Namespace: object.Namespace, Name: object.Name,
		UID: string(object.UID), GracePeriodSeconds: new(int64),
	}
}

// hasStatus reports whether the object has a status, or what the server stored when that status was
// written.
func (e *Entry) hasStatus(status *v1.PodStatus) bool {
	// The sums come first: they cost less than a comparison by reflection, and decide most plans.
	return e.StoredVersion == e.Stored.ResourceVersion && e.StoredSum == statusSum(status) ||
		equality.Semantic.DeepEqual(ownedStatus(&e.Stored.Status), ownedStatus(status))
}

// IsTerminalWritten reports whether the object has the desired status, with a terminal phase.
func (w *Writer) IsTerminalWritten(uid string) bool {
	e := w.Entries[uid]
	return e != nil && e.UpToDate && IsTerminal(&e.Stored.Status)
}

// IsTerminal reports whether a status has a terminal phase.
func IsTerminal(status *v1.PodStatus) bool {
	return status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed
}

// HandleCompletion applies the completion of a write.
func (w *Writer) HandleCompletion(id world.OpID, r op.Record, ev world.Event, effects *op.Effects) {
	e := w.Entries[r.Owner.Name]
	if e == nil || e.Op != id {
		return // another object has replaced it since
	}
	sum := e.SumInFlight
	inFlight, bytes := e.ChangedInFlight, e.BytesInFlight
	e.Op, e.SumInFlight, e.ChangedInFlight, e.BytesInFlight = 0, "", time.Time{}, 0
	switch {
	case ev.Err == nil && r.Call == "DeleteObject":
		e.Deleted, e.Failures = true, 0
		w.Deleted++
	case ev.Err == nil:
		e.ChangedAt = inFlight
		w.recordWrite(e, ev.Body.(*world.ObjectRead).Object.Pod, sum)
	case ev.Err.Has(world.KindNotFound) && r.Call == "DeleteObject":
		e.Deleted, e.Failures = true, 0
	default:
		isWrite := r.Call == "PatchObject" && bytes > 0
		if isWrite && ev.Err.Has(world.KindTooLarge) && (e.TooLarge == 0 || bytes < e.TooLarge) {
			e.TooLarge = bytes
		}
		w.recordFailure(e, r, ev, effects)
	}
}

func (w *Writer) recordWrite(e *Entry, object *v1.Pod, sum string) {
	w.Written++
	e.Failures, e.Refused = 0, false
	if object == nil || object.UID != e.Stored.UID {
		return // no correct server responds so; the watch reports the object
	}
	if isNewer(object, e.Stored) {
		e.Stored = object
	}
	e.StoredSum, e.StoredVersion = sum, object.ResourceVersion
}

// recordFailure sets the back-off. If the object does not exist, or has been replaced, the watch
// will report that; the failure changes nothing that the plan would write.
func (w *Writer) recordFailure(e *Entry, r op.Record, ev world.Event, effects *op.Effects) {
	w.Failed++
	e.Failures++
	e.Conflicted, e.Refused = ev.Err.Has(world.KindConflict), ev.Err.Has(world.KindInvalid)
	e.NotBefore = ev.Time.Add(timer.RetryDelay(ev.Err, e.Failures, backoffFirst, backoffMax))
	if e.Failures == 1 {
		effects.Log(world.LevelWarning, "writing a pod to the API server failed", "pod", r.Subject,
			"podUID", string(e.Stored.UID), "call", r.Call, "err", ev.Err.Error())
	}
}

// statusSum identifies the content of a status.
func statusSum(status *v1.PodStatus) string {
	data, err := status.Marshal()
	if err != nil {
		panic("statuswriter: marshaling a status: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
