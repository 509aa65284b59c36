package volumeop

import (
	"time"

	"seedlet.dev/world"
)

// BoundDevice is a device of volumeMode Block that may be bound to a file for a pod, with a link in
// the directory of the pod (MapBlockVolume in pkg/volume/util). The pod sets it up itself; it is
// taken from it by the component that knows of all devices of the kind: the agent that ends the pod
// may not be the one that has started it.
type BoundDevice struct {
	// Released is set once the pod needs the device no more.
	Released bool    `json:"released,omitempty"`
	Removal  Removal `json:"removal,omitzero"`
}

// Removal is how far something is removed.
type Removal struct {
	Op        world.OpID `json:"op,omitempty"`
	StepsDone int        `json:"stepsDone,omitempty"`
	Attempts  Attempts   `json:"attempts,omitzero"`
}

// Fail begins the back-off after a failure. The removal begins at its first step then.
func (r *Removal) Fail(ev world.Event, first, longest time.Duration) {
	r.StepsDone = 0
	r.Attempts.FailWithin(ev.Time, ev.Err.Message, first, longest)
}

// IsNeeded reports whether the pod needs the device. One that was found is needed for as long as
// its pod is known or may become known, and until everything was listed (cleansUp).
func (b *BoundDevice) IsNeeded(uid string, cleansUp bool, isKnownPod func(uid string) bool) bool {
	return !b.Released && (!cleansUp || isKnownPod(uid))
}

// removalSteps is the number of operations that take a device from a pod.
const removalSteps = 4

// NextStep returns the next operation that takes the device from the pod: from its links, and from
// the path to which it is bound. A mount is busy as long as the device is kept open, and its file
// goes last: it is what the next agent finds.
func (b *BoundDevice) NextStep(links, bound string) any {
	return [removalSteps]any{
		&world.RemoveTree{Path: links}, &world.ReleaseDevice{Path: bound},
		&world.Unmount{Path: bound}, &world.RemoveTree{Path: bound},
	}[b.Removal.StepsDone]
}

// EndStep applies the completion of an operation of NextStep, and reports whether the pod has
// nothing of the device any more. A pod that has come back meanwhile keeps what is left.
func (b *BoundDevice) EndStep(ev world.Event, isNeeded bool, first, longest time.Duration) bool {
	b.Removal.Op = 0
	switch {
	case ev.Err != nil:
		b.Removal.Fail(ev, first, longest)
		return false
	case isNeeded:
		b.Removal = Removal{}
		return false
	}
	b.Removal.StepsDone++
	return b.Removal.StepsDone == removalSteps
}
