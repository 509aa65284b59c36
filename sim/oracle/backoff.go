package oracle

import (
	"fmt"
	"time"

	"seedlet.dev/sim/truth"
)

// backoff fires when a container is restarted too early, also by an agent that was restarted
// itself. Runs that the agent or the machine ended, and containers that were changed, may be
// followed at once; so may the init containers of a former sandbox.
type backoff struct{}

func (*backoff) entry() Entry {
	return Entry{"back-off", "The first restart of a container may be at once; later ones wait " +
		"10 s after the exit, twice as long each time up to the maximum, until a run takes " +
		"more than 10 min."}
}

const (
	backoffFirst = 10 * time.Second
	backoffReset = 10 * time.Minute
	clockSlack   = 10 * time.Millisecond // the runtime notes an exit a little before the truth
)

func (*backoff) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil {
		return nil
	}
	last := c.pod.runsOf(c.name).last
	if last == nil || last == c || last.hash != c.hash || last.endedFromOutside() ||
		c.pod.uncounted {
		return nil
	}
	if c.pod.isInit(c.name) && last.sandbox != c.sandbox {
		return nil
	}
	waited, due := f.Time.Sub(last.exitedAt), last.wait()-w.misdated(last)
	if waited >= due-clockSlack {
		return nil
	}
	return &finding{message: fmt.Sprintf("%s was restarted %v after its exit, it should have "+
		"waited %v", c, waited.Round(time.Millisecond), due)}
}

// misdated is how much too early the end of a run may seem to have been: if the runtime's clock was
// slow, the agent only knows that it was after it was last told that it runs.
func (w *world) misdated(c *container) time.Duration {
	switch {
	case w.skew(c.exitedAt) >= 0:
		return 0
	case !c.toldAt.After(w.started),
		w.struck("ListContainers", c.toldAt.Add(-slowestList), c.toldAt):
		return -w.skew(c.exitedAt)
	}
	return min(-w.skew(c.exitedAt), c.exitedAt.Sub(c.toldAt)+toldWithin)
}

const (
	toldWithin  = time.Second     // longer than it usually takes until the answer to a list is there
	slowestList = 2 * time.Minute // when something goes wrong
)

func (w *world) skew(at time.Time) time.Duration {
	if w.opts.Skew == nil {
		return 0
	}
	return w.opts.Skew(at)
}

// endedFromOutside says whether it was ended by the agent, or with the machine.
func (c *container) endedFromOutside() bool {
	switch c.cause {
	case truth.CauseStop, truth.CauseSandbox, truth.CauseRemove, truth.CauseReboot:
		return true
	}
	return false
}

// lasted is how long it ran, at least and at most, as far as the agent can know. One that was not
// there when it was made, or even came up after the end, has only the dates of the runtime, whose
// clock may have been set meanwhile.
func (c *container) lasted() (least, most time.Duration) {
	if !c.ran() {
		return 0, 0
	}
	w, truly := c.pod.world, c.exitedAt.Sub(c.startedAt)
	if !w.started.After(c.madeAt) {
		return truly, truly
	}
	dated := truly + w.skew(c.exitedAt) - w.skew(c.startedAt)
	return min(truly, dated), max(truly, dated)
}

// wait is how long the next run has to wait at least after the exit of this one.
func (c *container) wait() time.Duration {
	if _, most := c.lasted(); most >= backoffReset-time.Second {
		return 0 // in doubt for the agent
	}
	return c.backoff
}

// waitAtMost is the same in doubt against the agent: what it has written on the container counts
// where what is known of the runs before is not all there is.
func (c *container) waitAtMost() time.Duration {
	if least, _ := c.lasted(); least > backoffReset+time.Second {
		return 0
	}
	return max(c.backoff, c.waits)
}

// backoffAfter is the back-off that the run after last is created with.
func backoffAfter(last *container, hash string, most time.Duration) time.Duration {
	switch {
	case last == nil || last.hash != hash:
		return 0
	case last.wait() == 0:
		return min(backoffFirst, most)
	}
	return min(2*last.wait(), most)
}
