package pod

import (
	"time"

	"seedlet.dev/core/timer"
)

// The runtime dates by the machine's clock, which somebody may set, by years even; the agent's own
// goes on as it was. So a date of the runtime counts if it can be true, by what this agent has
// done and seen. Of what was before its time it takes the runtime's word.

// began is when the container began to run.
func (c *Container) began() time.Time {
	if c.StartedAt.IsZero() || c.StartedAt.Before(c.Began) || c.StartedAt.After(c.Ran) {
		return c.Ran
	}
	return c.StartedAt
}

// end is when the container ended.
func (c *Container) end() time.Time {
	least := timer.Later(c.Began, c.Alive)
	if c.FinishedAt.IsZero() || c.FinishedAt.Before(least) || c.FinishedAt.After(c.Exited) {
		return c.Exited
	}
	return c.FinishedAt
}

// ranLonger says whether a container that has ended ran for longer than that.
func (c *Container) ranLonger(than time.Duration) bool {
	switch {
	case !c.Ran.IsZero() && c.Alive.Sub(c.Ran) > than:
		return true
	case !c.Began.IsZero() && c.Exited.Sub(c.Began) <= than:
		return false
	}
	return !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) > than
}

// alive takes that the container ran at a time.
func (c *Container) alive(at time.Time) { c.Alive = timer.Later(c.Alive, at) }
