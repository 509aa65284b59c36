// Package clock is the agent's clock: the wall time at the start of the process plus the monotonic
// time since then. It never goes back and never jumps, even if the machine's date is changed while
// the agent runs: so a change of the date neither ends a back-off early nor delays a relist.
//
// Offset is the difference between the date and this clock. The core adds it to timestamps that
// others read (timer.WallClock).
//
// All deadlines of effects are times of this clock; a port converts them to timeouts with Until.
package clock

import "time"

// Clock returns the agent's time. Make one per process with New, and share it by value.
type Clock struct {
	started time.Time // with its monotonic reading
}

// New returns a clock that starts now.
func New() Clock { return Clock{started: time.Now()} }

// Now returns the agent's time in UTC, without a monotonic reading: so a time is unchanged by being
// marshaled and unmarshaled.
func (c Clock) Now() time.Time { return c.started.Round(0).UTC().Add(c.Elapsed()) }

// Elapsed returns how long the clock has been running.
func (c Clock) Elapsed() time.Duration { return time.Since(c.started) }

// Until returns the duration until a time of this clock; negative if it has passed.
func (c Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Offset returns how far the machine's date is from the agent's time: by how much the date was
// changed, and how long the machine was suspended, since the clock was made.
func (c Clock) Offset() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(c.started.Round(0)) - now.Sub(c.started)
}
