package pod

import (
	"time"

	"seedlet.dev/core/timer"
)

// Timestamps of the runtime are of the machine's wall clock, which an administrator may set, even
// by years; the agent's clock is monotonic. So a timestamp of the runtime counts if it agrees with
// the requests and observations of this agent. Older timestamps, for which this agent has no
// requests and observations, are trusted.

// startTime returns when the container was started.
func (c *Container) startTime() time.Time {
	if c.StartedAt.IsZero() || c.StartedAt.Before(c.StartIssuedAt) ||
		c.StartedAt.After(c.RunningSeenAt) {
		return c.RunningSeenAt
	}
	return c.StartedAt
}

// endTime returns when the container exited.
func (c *Container) endTime() time.Time {
	earliest := timer.Later(c.StartIssuedAt, c.LastSeenRunning)
	if c.FinishedAt.IsZero() || c.FinishedAt.Before(earliest) || c.FinishedAt.After(c.ExitSeenAt) {
		return c.ExitSeenAt
	}
	return c.FinishedAt
}

// ranLongerThan reports whether a container that has exited ran for longer than a duration.
func (c *Container) ranLongerThan(duration time.Duration) bool {
	switch {
	case !c.RunningSeenAt.IsZero() && c.LastSeenRunning.Sub(c.RunningSeenAt) > duration:
		return true
	case !c.StartIssuedAt.IsZero() && c.ExitSeenAt.Sub(c.StartIssuedAt) <= duration:
		return false
	}
	return !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) > duration
}

// noteRunningAt records that the container ran at a time.
func (c *Container) noteRunningAt(at time.Time) {
	c.LastSeenRunning = timer.Later(c.LastSeenRunning, at)
}
