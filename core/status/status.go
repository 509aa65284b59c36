// Package status tells the API server how the pods are.
//
// It keeps, for every pod that is there: the newest state of the object that is known, from the
// watch or from an answer, whichever is newer; and the write in flight. Its plan compares what
// the object says with what is so, and writes the difference; so what was not told while the
// server was away is told when it is back, and an agent that has just started tells what is
// different now and nothing else. Once a pod is marked for deletion, its last status is there and
// nothing is left of it on the node, it removes the object. Start reading at Writer, then Plan;
// what a status may say is in merge.go.
package status

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component part of the key of every status.
const Component = "status"

const (
	timeout      = 30 * time.Second
	failureFirst = time.Second
	failureMost  = time.Minute
	patience     = 10 * time.Second
)

// Key is the owner of the writes for a pod.
func Key(uid string) timer.Key { return timer.Key{Component: Component, Name: uid} }

// Writer is the statuses of all pods that the API server has. The zero value is ready.
type Writer struct {
	Entries map[string]*Entry `json:"entries,omitempty"` // by UID of the pod that is run
	Written uint64            `json:"written"`           // statuses
	Deleted uint64            `json:"deleted"`           // pods
	Failed  uint64            `json:"failed"`            // writes
}

// Entry is one pod there.
type Entry struct {
	// Stored is the newest state of the object that is known. That of a static pod is its mirror.
	Stored *v1.Pod `json:"stored"`

	Op        world.OpID `json:"op,omitempty"`
	Writing   string     `json:"writing,omitempty"` // the sum of what the write in flight writes
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
	// Outdated says that the last write failed because somebody else had written: once that is
	// seen there is nothing to wait for.
	Outdated bool `json:"outdated,omitempty"`
	// Sum is that of the status which was stored last, and Version the object's with it. What the
	// server leaves out of a status is not written again and again.
	Sum     string `json:"sum,omitempty"`
	Version string `json:"version,omitempty"`
	// Since is when there was something to tell that waits for what comes next.
	Since time.Time `json:"since"`
	// Settled says that the object says what is so.
	Settled bool `json:"settled"`
	// Removed says that the removal was answered: only the watch can have more to say.
	Removed bool `json:"removed,omitempty"`
}

// Want is what is to be told of a pod.
type Want struct {
	// Status is how the pod is; nil if that is not known yet.
	Status *v1.PodStatus
	// Soon says that there is more to tell as soon as what is under way has been done.
	Soon bool
	// Gone says that nothing is left of the pod on the node.
	Gone bool
}

// Observe takes a state of the object of a pod. One of another UID is another object.
func (w *Writer) Observe(uid string, object *v1.Pod) {
	e := w.Entries[uid]
	switch {
	case e == nil || e.Stored.UID != object.UID:
		w.forget(e)
		if w.Entries == nil {
			w.Entries = map[string]*Entry{}
		}
		w.Entries[uid] = &Entry{Stored: object}
	case newer(object, e.Stored):
		e.Stored = object
		if e.Outdated {
			e.Outdated, e.NotBefore = false, time.Time{}
		}
	}
}

// Lose says that a pod is not there any more.
func (w *Writer) Lose(uid string) {
	w.forget(w.Entries[uid])
	delete(w.Entries, uid)
}

// forget gives up an entry; what is in flight answers nobody.
func (w *Writer) forget(e *Entry) {
	if e != nil {
		e.Op = 0
	}
}

// newer says whether one state of an object is newer than another. Versions are numbers that grow
// (KEP-5504); a server with others is believed in the order in which it tells.
func newer(object, than *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion,
		than.ResourceVersion)
	return err != nil || order > 0
}

// Hurry says that the server answers again: nothing waits any longer because of a failure.
func (w *Writer) Hurry(uid string) {
	if e := w.Entries[uid]; e != nil {
		e.Failures, e.NotBefore = 0, time.Time{}
	}
}

// Plan writes what is to be told of a pod, and says when to be called again.
func (w *Writer) Plan(uid string, want Want, out *op.Out) time.Time {
	e := w.Entries[uid]
	if e == nil || e.Op != 0 {
		return time.Time{}
	}
	e.Settled = false
	if out.Now().Before(e.NotBefore) {
		return e.NotBefore
	}
	if want.Status != nil {
		merged := merge(&e.Stored.Status, want.Status)
		if !e.says(merged) {
			if until := e.hold(merged, want.Soon, out.Now()); out.Now().Before(until) {
				return until
			}
			e.Writing = sumOf(merged)
			e.Op = out.Ask(Key(uid), e.Stored.Namespace+"/"+e.Stored.Name, timeout,
				&world.PatchObject{
					Resource: world.ResourcePods, Namespace: e.Stored.Namespace,
					Name: e.Stored.Name, Status: true, Patch: patch(e.Stored, merged),
				})
			return time.Time{}
		}
		e.Settled, e.Since = true, time.Time{}
	}
	if want.Gone && !e.Removed && e.Stored.DeletionTimestamp != nil && Terminal(&e.Stored.Status) {
		e.Op = out.Ask(Key(uid), e.Stored.Namespace+"/"+e.Stored.Name, timeout, Removal(e.Stored))
	}
	return time.Time{}
}

// hold is until when a write waits for what comes next, so that both are told at once. That a pod
// was taken, and that it is not pending any more, never waits: of many pods that are made at once
// the server shall hear what others act upon.
func (e *Entry) hold(is *v1.PodStatus, soon bool, now time.Time) time.Time {
	stored := &e.Stored.Status
	if !soon || stored.StartTime == nil || stored.Phase != v1.PodPending ||
		is.Phase != v1.PodPending {
		e.Since = time.Time{}
		return e.Since
	}
	if e.Since.IsZero() {
		e.Since = now
	}
	until := e.Since.Add(patience)
	if !now.Before(until) {
		e.Since = time.Time{}
	}
	return until
}

// Removal removes this object, and none of the same name that came after it.
func Removal(object *v1.Pod) *world.DeleteObject {
	return &world.DeleteObject{
		Resource: world.ResourcePods, Namespace: object.Namespace, Name: object.Name,
		UID: string(object.UID), GracePeriodSeconds: new(int64),
	}
}

// says reports whether the object has this status, or has what the server made of it.
func (e *Entry) says(want *v1.PodStatus) bool {
	return equality.Semantic.DeepEqual(owned(&e.Stored.Status), owned(want)) ||
		e.Version == e.Stored.ResourceVersion && e.Sum == sumOf(want)
}

// Acknowledged says whether the server has everything that is to be told of a pod, and that it is
// over.
func (w *Writer) Acknowledged(uid string) bool {
	e := w.Entries[uid]
	return e != nil && e.Settled && Terminal(&e.Stored.Status)
}

// Terminal says whether a pod is over for good.
func Terminal(status *v1.PodStatus) bool {
	return status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed
}

// Answered takes the answer to a write.
func (w *Writer) Answered(id world.OpID, r op.Record, ev world.Event, out *op.Out) {
	e := w.Entries[r.Owner.Name]
	if e == nil || e.Op != id {
		return // another object has taken its place since
	}
	writing := e.Writing
	e.Op, e.Writing = 0, ""
	switch {
	case ev.Err == nil && r.Call == "DeleteObject":
		e.Removed, e.Failures = true, 0
		w.Deleted++
	case ev.Err == nil:
		w.stored(e, ev.Body.(*world.ObjectRead).Object.Pod, writing)
	case ev.Err.Has(world.KindNotFound) && r.Call == "DeleteObject":
		e.Removed, e.Failures = true, 0
	default:
		w.failed(e, r, ev, out)
	}
}

func (w *Writer) stored(e *Entry, object *v1.Pod, sum string) {
	w.Written++
	e.Failures = 0
	if object == nil || object.UID != e.Stored.UID {
		return // no server answers so; the watch knows better
	}
	if newer(object, e.Stored) {
		e.Stored = object
	}
	e.Sum, e.Version = sum, object.ResourceVersion
}

// failed waits, and tries again. An object that is not there, or is another one by now, is for
// the watch to tell; that it was so is no reason to write anything else.
func (w *Writer) failed(e *Entry, r op.Record, ev world.Event, out *op.Out) {
	w.Failed++
	e.Failures++
	e.Outdated = ev.Err.Has(world.KindConflict)
	e.NotBefore = ev.Time.Add(timer.Retry(ev.Err, e.Failures, failureFirst, failureMost))
	if e.Failures == 1 {
		out.Log(world.LevelWarning, "the API server did not take a pod's status", "pod", r.Subject,
			"uid", string(e.Stored.UID), "call", r.Call, "error", ev.Err.Error())
	}
}

// sumOf is what tells one status from another.
func sumOf(status *v1.PodStatus) string {
	data, err := status.Marshal()
	if err != nil {
		panic("status: a status cannot be written: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
