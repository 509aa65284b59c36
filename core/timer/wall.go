package timer

import (
	"slices"
	"time"
)

// WallClock converts times of the agent's clock to the date. The agent's clock begins as the date
// and is monotonic from then on, so that a change of the date neither ends a back-off early nor
// delays one. Whatever others read has the date: timestamps of statuses and conditions, the renewal
// of the lease, the record of a pod. Events and log lines get it from the ports that write them.
//
// A time keeps its date when the date is changed later: a timestamp that was written does not
// change, as long as no more than stepsMax changes are to be kept. The zero value is a clock that
// agrees with the date.
type WallClock struct {
	Steps []ClockStep `json:"steps,omitempty"` // the newest last
}

// ClockStep is a change of the date.
type ClockStep struct {
	At     time.Time     `json:"at"`     // when it was observed, by the agent's clock
	Offset time.Duration `json:"offset"` // from the agent's clock to the date, since then
}

// stepsMax bounds the steps that are kept. Beyond that the two neighbours whose offsets differ
// least become one, so that the dates of few times change, and by as little as possible.
const stepsMax = 64

// Record records that the date has been changed.
func (w *WallClock) Record(at time.Time, offset time.Duration) {
	if len(w.Steps) == stepsMax {
		w.mergeClosest()
	}
	w.Steps = append(w.Steps, ClockStep{at, offset})
}

// mergeClosest drops the step whose offset differs least from that of the step before it.
func (w *WallClock) mergeClosest() {
	closest := 1
	difference := func(i int) time.Duration { return (w.Steps[i].Offset - w.Steps[i-1].Offset).Abs() }
	for i := 2; i < len(w.Steps); i++ {
		if difference(i) < difference(closest) {
			closest = i
		}
	}
	w.Steps = slices.Delete(w.Steps, closest, closest+1)
}

// Date returns the date of a time of the agent's clock. A time from before the agent's start is one
// of another clock, and stays as it is.
func (w *WallClock) Date(at time.Time) time.Time {
	if w == nil || at.IsZero() {
		return at
	}
	for i := len(w.Steps) - 1; i >= 0; i-- {
		if step := &w.Steps[i]; !at.Before(step.At) {
			return at.Add(step.Offset)
		}
	}
	return at
}
