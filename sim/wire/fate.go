package wire

import (
	"time"

	"seedlet.dev/world"
)

// Fate is what happens to one call on its way, there and back. The zero Fate is a call that
// takes no time and succeeds.
type Fate struct {
	Receive time.Duration // from the agent to the port
	Answer  time.Duration // from the port to the agent

	// Before fails the call without an effect, After once it has taken effect.
	Before, After *world.Error

	// Lost means that no answer comes: the agent's side gives up at the deadline, with
	// KindTimeout, as gRPC does. The effect happens all the same, EffectDelay after the call
	// was received. A local port tells of the timeout when the call has ended.
	Lost bool

	// Twice means that something the port says of its own accord arrives a second time, so much
	// later than usual as EffectDelay says.
	Twice bool

	// EffectDelay is how much longer than usual the port takes; the effect may come after the
	// deadline. In a call that takes effect in stages the delay lies between them.
	EffectDelay time.Duration
}

// FaultSource decides the fates of calls. It must be a function of its arguments and of what was
// planned, not of how often it was asked, so that a changed plan changes little else.
type FaultSource interface {
	// Fate decides about the call with this ordinal among those of the same name, counted from
	// zero over all lives of the agent.
	Fate(call string, op int, now time.Time) Fate
}

// calm is the FaultSource of a world where nothing goes wrong.
type calm struct{}

func (calm) Fate(string, int, time.Time) Fate {
	return Fate{Receive: 200 * time.Microsecond, Answer: 200 * time.Microsecond}
}
