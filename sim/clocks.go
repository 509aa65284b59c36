package sim

import (
	"time"

	"seedlet.dev/world"
)

// offset is how far a clock is ahead of the agenda's, at each time of the run so far.
type offset []offsetChange

type offsetChange struct {
	at time.Time
	to time.Duration
}

// at returns the offset at a time; zero before the first change.
func (o offset) at(t time.Time) time.Duration {
	for i := len(o) - 1; i >= 0; i-- {
		if !t.Before(o[i].at) {
			return o[i].to
		}
	}
	return 0
}

// change changes the offset by a length of time, now.
func (o *offset) change(now time.Time, by time.Duration) {
	*o = append(*o, offsetChange{now, o.at(now) + by})
}

// clocks are the clocks that a plan changes: the machine's date, which is that of the agent and of
// the runtime, and the clock of the runtime alone.
type clocks struct {
	date    offset
	runtime offset // against the date
}

// dateOffset returns how far the machine's date is ahead of the agenda's at a time.
func (c *clocks) dateOffset(t time.Time) time.Duration { return c.date.at(t) }

// runtimeSkew returns how far the runtime's clock is ahead of the agenda's at a time.
func (c *clocks) runtimeSkew(t time.Time) time.Duration { return c.date.at(t) + c.runtime.at(t) }

// changeDate changes the machine's date, for the runtime and for the agent. The agent's clock goes
// on, also from one incarnation to the next.
func (r *run) changeDate(by time.Duration) {
	now := r.agenda.Now()
	r.clocks.date.change(now, by)
	r.runtime.SetClockSkew(r.clocks.runtimeSkew(now))
	r.deliver(world.Event{Body: &world.ClockStepped{Offset: r.clocks.date.at(now)}})
}

// changeRuntimeClock changes the clock of the runtime alone.
func (r *run) changeRuntimeClock(by time.Duration) {
	now := r.agenda.Now()
	r.clocks.runtime.change(now, by)
	r.runtime.SetClockSkew(r.clocks.runtimeSkew(now))
}

// healClocks sets all clocks right.
func (r *run) healClocks() {
	now := r.agenda.Now()
	if wrong := r.clocks.runtime.at(now); wrong != 0 {
		r.changeRuntimeClock(-wrong)
	}
	if len(r.clocks.date) > 0 {
		r.changeDate(-r.clocks.date.at(now))
	}
}
