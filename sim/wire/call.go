package wire

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/world"
)

// Call is one operation on its way from the agent to a port and back.
type Call struct {
	Effect  world.Effect
	Name    string // of the operation, as in "StopContainer"
	Outcome Outcome

	wire           *Wire
	agenda         *agenda.Agenda
	rng            rand.PCG // of this call only, seeded with the wire's seed and the CallID
	index          int      // in wire.inFlight
	replied        bool     // the port has completed the call
	callerGone     bool     // the agent has died or the call has timed out
	deathsWhenSent int      // wire.portDeaths when the call was sent
	onCallerGone   func()
}

const notInFlight = -1

// Reply completes the call with a body, or with the injected error after the effect.
func (c *Call) Reply(body any) {
	c.observeEffect()
	if c.Outcome.ErrorAfter != nil {
		c.Fail(c.Outcome.ErrorAfter)
		return
	}
	c.complete(body, nil)
}

// observeEffect reports an effect of which the agent does not learn.
func (c *Call) observeEffect() {
	if o := c.wire.observer; o != nil {
		switch {
		case !c.isInFlight():
			o.ObserveEffect(c.Name, EffectLate)
		case c.Outcome.ErrorAfter != nil:
			o.ObserveEffect(c.Name, EffectFailed)
		case c.Outcome.ResponseLost:
			o.ObserveEffect(c.Name, EffectLost)
		}
	}
}

// Fail completes the call with an error.
func (c *Call) Fail(err *world.Error) {
	if err.Op == "" {
		named := *err
		named.Op = c.Name
		err = &named
	}
	c.complete(nil, err)
}

func (c *Call) complete(body any, err *world.Error) {
	if c.replied {
		panic("wire: " + c.Name + " completed twice")
	}
	w := c.wire
	if !c.isInFlight() || c.Outcome.ResponseLost && !w.local {
		return
	}
	c.replied = true
	at := w.agenda.Now().Add(c.Outcome.ResponseLatency)
	switch {
	case c.Outcome.ResponseLost: // the operation has ended, with an unknown result
		body, err = nil, c.timeoutError()
		if at.Before(c.Effect.Deadline) {
			at = c.Effect.Deadline
		}
	case !w.local && !at.Before(c.Effect.Deadline):
		c.expireAtDeadline()
		return
	}
	c.agenda.At(at, func() {
		if c.isInFlight() {
			w.removeInFlight(c)
			w.complete(c, body, err)
		}
	})
}

// Execute runs do, the whole effect of the call, after the injected delay. It does not run do if
// the port's process dies before.
func (c *Call) Execute(do func()) {
	if c.Outcome.EffectDelay <= 0 {
		do()
		return
	}
	c.agenda.After(c.Outcome.EffectDelay, func() {
		if !c.HasPortDied() {
			do()
		}
	})
}

// ContinueAfter runs do, the next stage of a call that takes effect in stages, after the usual
// duration and the injected delay. It runs do in any case: do calls DrawsAbort to decide whether to
// finish the work or to undo it.
func (c *Call) ContinueAfter(usual time.Duration, do func()) {
	c.agenda.After(usual+c.Outcome.EffectDelay, do)
}

// OnCallerGone sets a function that runs when the caller stops waiting for the completion.
func (c *Call) OnCallerGone(do func()) { c.onCallerGone = do }

// DrawsAbort decides whether the port aborts its work on the call. It returns false while the
// caller waits and true if the port's process has died. Otherwise each call of DrawsAbort draws a
// random value: a cancelled context ends the work in some stages of some ports and not in others.
func (c *Call) DrawsAbort() bool {
	callerGone := c.callerGone || c.wire.local && c.IsPastDeadline()
	return c.HasPortDied() || callerGone && c.rng.Uint64()&1 == 0
}

// HasPortDied reports whether the port's process has died since the call was sent.
func (c *Call) HasPortDied() bool { return c.deathsWhenSent != c.wire.portDeaths }

// DurationBetween draws a duration of at least minimum and less than limit.
func (c *Call) DurationBetween(minimum, limit time.Duration) time.Duration {
	return minimum + time.Duration(c.rng.Uint64()%uint64(limit-minimum))
}

// Draw returns 64 random bits.
func (c *Call) Draw() uint64 { return c.rng.Uint64() }

// IsPastDeadline reports whether the deadline of the call has passed.
func (c *Call) IsPastDeadline() bool { return !c.wire.agenda.Now().Before(c.Effect.Deadline) }

// IsCallerGone reports whether the caller no longer waits for the completion.
func (c *Call) IsCallerGone() bool { return !c.isInFlight() }

func (c *Call) isInFlight() bool { return c.index != notInFlight }

// expireAtDeadline completes the call with a timeout at its deadline, unless it completes before.
func (c *Call) expireAtDeadline() {
	w := c.wire
	if w.local {
		return
	}
	c.agenda.At(c.Effect.Deadline, func() {
		if !c.isInFlight() {
			return
		}
		w.removeInFlight(c)
		c.markCallerGone()
		w.complete(c, nil, c.timeoutError())
	})
}

func (c *Call) timeoutError() *world.Error {
	return world.Errorf(world.KindTimeout, c.Name, "deadline exceeded")
}

// connectionTimeout is the time after a lost response until the agent detects the dead connection.
const connectionTimeout = 10 * time.Minute

// failAtConnectionTimeout completes a call whose response is lost with KindUnavailable after
// connectionTimeout, unless its deadline is earlier.
func (c *Call) failAtConnectionTimeout() {
	w := c.wire
	if w.local {
		return
	}
	c.agenda.After(connectionTimeout, func() {
		if !c.isInFlight() {
			return
		}
		w.removeInFlight(c)
		c.markCallerGone()
		w.complete(c, nil, world.Errorf(world.KindUnavailable, c.Name, "connection lost"))
	})
}

// markCallerGone records that the caller of a removed call no longer waits.
func (c *Call) markCallerGone() {
	c.callerGone = true
	if c.onCallerGone != nil {
		c.onCallerGone()
	}
}
