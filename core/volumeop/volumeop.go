// Package volumeop has what the volumes of CSI drivers and the disks of package scsi have in
// common: the failures of the operations on them, which pods have some of them, the events that a
// pod has got a device, and how a device is taken from it, as one of a local volume is.
package volumeop

import (
	"fmt"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
)

// Attempts are the failures in a row of something.
type Attempts struct {
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	Problem   string    `json:"problem,omitempty"` // the last failure, in the kubelet's words
}

// The first and the longest back-off: those of the kubelet's volume operations (exponentialbackoff
// in pkg/util/goroutinemap).
const (
	BackoffFirst = 500 * time.Millisecond
	BackoffMax   = 2*time.Minute + 2*time.Second
)

// Fail notes a failure, and begins its back-off.
func (a *Attempts) Fail(now time.Time, problem string) {
	a.FailWithin(now, problem, BackoffFirst, BackoffMax)
}

// FailWithin notes a failure, and begins a back-off with another first and longest one.
func (a *Attempts) FailWithin(now time.Time, problem string, first, longest time.Duration) {
	a.Failures++
	a.NotBefore = now.Add(timer.Backoff(a.Failures, first, longest))
	a.Problem = budget.CutMessage(problem)
}

// BackOff begins the back-off after the last failure.
func (a *Attempts) BackOff(now time.Time) {
	a.NotBefore = now.Add(timer.Backoff(a.Failures, BackoffFirst, BackoffMax))
}

// Succeed forgets the failures.
func (a *Attempts) Succeed() { *a = Attempts{} }

// IsWaiting reports whether the back-off has not passed, and notes its end in wake.
func (a *Attempts) IsWaiting(now time.Time, wake *time.Time) bool {
	if !now.Before(a.NotBefore) {
		return false
	}
	*wake = timer.Soonest(*wake, a.NotBefore)
	return true
}

// RecordMapped records the events that a pod has got the device of a volume, as upstream
// (GenerateMapVolumeFunc in pkg/volume/util/operationexecutor). The device is bound to a file among
// those of other pods, and a link in the pod's directory leads to it.
func RecordMapped(effects *op.Effects, pod v1.ObjectReference, volume, bound, link string) {
	for _, place := range []string{
		fmt.Sprintf("globalMapPath %q", path.Dir(bound)),
		fmt.Sprintf("volumeMapPath %q", path.Dir(link)),
	} {
		effects.RecordEvent(pod, v1.EventTypeNormal, "SuccessfulMountVolume",
			"MapVolume.MapPodDevice succeeded for volume %q %s", volume, place)
	}
}

// Owners are the names of what pods have, sorted, by the UIDs of the pods.
type Owners map[string][]string

// Add notes that a pod has something.
func (o *Owners) Add(uid, name string) {
	if *o == nil {
		*o = Owners{}
	}
	if i, found := slices.BinarySearch((*o)[uid], name); !found {
		(*o)[uid] = slices.Insert((*o)[uid], i, name)
	}
}

// Remove notes that a pod has something no more.
func (o Owners) Remove(uid, name string) {
	if i, found := slices.BinarySearch(o[uid], name); found {
		o[uid] = slices.Delete(o[uid], i, i+1)
	}
	if len(o[uid]) == 0 {
		delete(o, uid)
	}
}

// SubPathDir returns the directory under which sub-paths of a pod's volumes are mounted.
func SubPathDir(podDir string) string { return podDir + "/volume-subpaths" }
