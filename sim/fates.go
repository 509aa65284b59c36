package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// fates decides what happens to calls. It is a function of the plan's seed, the windows that are
// open, and the ordinal of the call, so that a plan without one of its entries changes as little
// else as possible.
type fates struct {
	plan  *Plan
	start time.Time
	hash  map[string]uint64
	own   map[string]ownLatency // of calls, in priority order
}

// ownLatency is how long calls of one kind take in priority order, and from which ordinal on it
// is another.
type ownLatency struct {
	first, then time.Duration
	change      int
}

const (
	latencyMin = 100 * time.Microsecond
	latencyMax = 8 * time.Millisecond
	slowMax    = 700 * time.Millisecond // of a whole kind of call in priority order
)

func newFates(plan *Plan, start time.Time) *fates {
	return &fates{plan: plan, start: start, hash: map[string]uint64{},
		own: map[string]ownLatency{}}
}

// Fate implements wire.FaultSource.
func (f *fates) Fate(call string, op int, now time.Time) wire.Fate {
	rng := f.stream(call, op, 0)
	fate := wire.Fate{Receive: f.latency(call, op, &rng), Answer: f.latency(call, op, &rng)}
	at := since(f.start, now)
	for i := range f.plan.Faults {
		w := &f.plan.Faults[i]
		if at < w.At.Duration || at >= w.At.Duration+w.For.Duration {
			continue
		}
		if len(w.Calls) > 0 && !slices.Contains(w.Calls, call) {
			continue
		}
		rng := f.stream(call, op, w.ID)
		if float64(rng.Uint64()>>11)/(1<<53) < w.Probability {
			strike(&fate, w, &rng)
		}
	}
	return fate
}

// strike makes a call go wrong.
func strike(fate *wire.Fate, w *Window, rng *rand.PCG) {
	takes := between(rng, w.Takes.Min.Duration, w.Takes.Max.Duration)
	switch w.Class {
	case FaultSlow:
		if rng.Uint64()&1 == 0 {
			fate.Receive += takes
		} else {
			fate.Answer += takes
		}
	case FaultFailBefore:
		fate.Before = &world.Error{Kind: failures[rng.Uint64()%uint64(len(failures))],
			Message: "planned failure before the effect"}
	case FaultFailAfter:
		fate.After = &world.Error{Kind: world.KindInternal,
			Message: "planned failure after the effect"}
	case FaultLost:
		fate.Lost, fate.EffectDelay = true, takes
	case FaultGone:
		fate.Before = &world.Error{Kind: world.KindUnavailable, Message: "planned: unreachable"}
	}
}

// failures are the kinds of error that a healthy request may meet.
var failures = []world.ErrorKind{
	world.KindInternal, world.KindExhausted, world.KindUnavailable, world.KindTimeout,
}

func (f *fates) latency(call string, op int, rng *rand.PCG) time.Duration {
	base := between(rng, latencyMin, latencyMax)
	if f.plan.Order != OrderPriority {
		return base
	}
	own, known := f.own[call]
	if !known {
		draw := f.stream(call, 0, -1)
		own = ownLatency{first: skewed(&draw), then: skewed(&draw),
			change: int(draw.Uint64() % 64)}
		f.own[call] = own
	}
	if op >= own.change {
		return base + own.then
	}
	return base + own.first
}

// skewed draws a latency that is mostly short and sometimes long.
func skewed(rng *rand.PCG) time.Duration {
	return slowMax >> (rng.Uint64() % 12)
}

func (f *fates) stream(call string, op, window int) (rng rand.PCG) {
	h, known := f.hash[call]
	if !known {
		sum := fnv.New64a()
		sum.Write([]byte(call))
		h = sum.Sum64()
		f.hash[call] = h
	}
	rng.Seed(f.plan.Seed*0x9e3779b97f4a7c15^h, uint64(op)<<20^uint64(window))
	return rng
}

func between(rng *rand.PCG, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(rng.Uint64()%uint64(most-least))
}
