package sim

import (
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The origin of a fact is an effect of the agent or a happening of the plan, by their numbers. That
// an operation took effect late, or that a process exited by its script, goes back to the effect
// that began it.

const (
	isHappening      truth.Origin = 1 << 63
	incarnationShift              = 40
)

// EffectOrigin returns the origin of what an effect of an incarnation of the agent leads to.
func EffectOrigin(incarnation int, op world.OpID) truth.Origin {
	return truth.Origin(incarnation)<<incarnationShift | truth.Origin(op)
}

// HappeningOrigin returns the origin of what the n-th happening leads to, counted from one in the
// order in which they begin.
func HappeningOrigin(n int) truth.Origin { return isHappening | truth.Origin(n) }
