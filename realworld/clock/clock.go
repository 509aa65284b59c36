// Package clock is the agent's clock: wall time at the start of the process, moved on by the
// monotonic clock. It never goes back and never jumps, whatever is done to the machine's date
// while the agent runs, so a step of the date neither ends a back-off early nor holds up a relist.
//
// All deadlines of effects are times of this clock; a port turns them into timeouts with Until.
package clock

import "time"

// Clock tells the agent's time. Make one per process with New, and share it by value.
type Clock struct {
	began time.Time // with its monotonic reading
}

// New starts a clock.
func New() Clock { return Clock{began: time.Now()} }

// Now is the agent's time in UTC. It has no monotonic reading, so that it survives being written
// down and read back unchanged.
func (c Clock) Now() time.Time { return c.began.Round(0).UTC().Add(c.Elapsed()) }

// Elapsed is how long the clock has been running.
func (c Clock) Elapsed() time.Duration { return time.Since(c.began) }

// Until is how long it is until a time of this clock; negative when it has passed.
func (c Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
