package wire

import (
	"math/rand/v2"
	"time"

	"seedlet.dev/world"
)

// Call is one effect on its way through a port.
type Call struct {
	Effect world.Effect
	Name   string // of the call, as in "StopContainer"
	Fate   Fate

	wire    *Wire
	rng     rand.PCG // for this call only: a function of the seed, its name and its ordinal
	index   int      // in wire.flying
	replied bool     // the port has said what it had to say
	severed bool     // nobody waits any more: the agent died, or was told of a timeout
	breaks  int      // of the wire, when the call was sent
	onSever func()
}

const landed = -1

// Reply answers with success, unless it is the call's fate to fail after its effect.
func (c *Call) Reply(body any) {
	if c.Fate.After != nil {
		c.Fail(c.Fate.After)
		return
	}
	c.reply(body, nil)
}

// Fail answers with an error.
func (c *Call) Fail(err *world.Error) {
	if err.Op == "" {
		named := *err
		named.Op = c.Name
		err = &named
	}
	c.reply(nil, err)
}

func (c *Call) reply(body any, err *world.Error) {
	if c.replied {
		panic("wire: " + c.Name + " answered twice")
	}
	w := c.wire
	if !c.flying() || c.Fate.Lost && !w.local {
		return
	}
	c.replied = true
	at := w.agenda.Now().Add(c.Fate.Answer)
	switch {
	case c.Fate.Lost: // it is known to have ended, and no more
		body, err = nil, c.timeout()
		if at.Before(c.Effect.Deadline) {
			at = c.Effect.Deadline
		}
	case !w.local && !at.Before(c.Effect.Deadline):
		c.expireAtDeadline()
		return
	}
	w.agenda.At(at, func() {
		if c.flying() {
			w.land(c)
			w.deliver(c, body, err)
		}
	})
}

// Begin runs do, the whole effect of the call, when the port gets round to it; never if the port's
// process dies before.
func (c *Call) Begin(do func()) {
	if c.Fate.EffectDelay <= 0 {
		do()
		return
	}
	c.wire.agenda.After(c.Fate.EffectDelay, func() {
		if !c.PortDied() {
			do()
		}
	})
}

// Work runs do, the rest of a call that takes effect in stages, when the port has worked on it for
// as long as it usually takes and for as long as the call's fate adds to that. It runs in any case:
// do asks GivesUp whether to finish the work or to undo what was begun.
func (c *Call) Work(usual time.Duration, do func()) {
	c.wire.agenda.After(usual+c.Fate.EffectDelay, do)
}

// OnSever has do run at once when nobody waits for the answer any more.
func (c *Call) OnSever(do func()) { c.onSever = do }

// GivesUp decides whether the port abandons its work on the call. It never does while somebody
// waits, always when its own process has died, and else in half of the cases, drawn at each
// question: a cancelled context ends work in some stages of some ports, not in others.
func (c *Call) GivesUp() bool {
	nobodyWaits := c.severed || c.wire.local && c.Late()
	return c.PortDied() || nobodyWaits && c.rng.Uint64()&1 == 0
}

// PortDied reports whether the port's process has died since the call was sent.
func (c *Call) PortDied() bool { return c.breaks != c.wire.breaks }

// Between draws a duration of at least least and less than most.
func (c *Call) Between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rng.Uint64()%uint64(most-least))
}

// Draw returns 64 random bits.
func (c *Call) Draw() uint64 { return c.rng.Uint64() }

// Late reports whether the deadline of the call has passed.
func (c *Call) Late() bool { return !c.wire.agenda.Now().Before(c.Effect.Deadline) }

// Severed reports whether nobody waits for the answer any more.
func (c *Call) Severed() bool { return !c.flying() }

func (c *Call) flying() bool { return c.index != landed }

// expireAtDeadline answers with a timeout at the deadline, if nothing else does before.
func (c *Call) expireAtDeadline() {
	w := c.wire
	if w.local {
		return
	}
	w.agenda.At(c.Effect.Deadline, func() {
		if !c.flying() {
			return
		}
		w.land(c)
		c.sever()
		w.deliver(c, nil, c.timeout())
	})
}

func (c *Call) timeout() *world.Error {
	return world.Errorf(world.KindTimeout, c.Name, "deadline exceeded")
}

// lostMax is how long an answer can be lost before the agent learns that the connection is dead.
const lostMax = 10 * time.Minute

// noticeLoss answers a call whose answer is lost with what a dead connection says, if its deadline
// is not sooner.
func (c *Call) noticeLoss() {
	w := c.wire
	if w.local {
		return
	}
	w.agenda.After(lostMax, func() {
		if !c.flying() {
			return
		}
		w.land(c)
		c.sever()
		w.deliver(c, nil, world.Errorf(world.KindUnavailable, c.Name, "connection lost"))
	})
}

// sever marks a landed call as one that nobody waits for.
func (c *Call) sever() {
	c.severed = true
	if c.onSever != nil {
		c.onSever()
	}
}
