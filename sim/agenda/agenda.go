// Package agenda is the simulated clock: a list of things to do, each at a virtual time. Time
// jumps straight from one entry to the next, so an idle hour costs nothing.
//
// Contract: entries run in the order of their times; the order among entries of one time is
// drawn from the seed, anew for each entry, and is the same in every run of that seed. An entry
// may add others while it runs. Nothing here reads a real clock. For one goroutine.
//
// Start reading at Run.
package agenda

import (
	"math/rand/v2"
	"time"
)

// Agenda is a clock and what is to happen by it.
type Agenda struct {
	now   time.Time
	since int64 // now, in nanoseconds since the start
	start time.Time
	tie   *rand.PCG
	count uint64
	heap  []entry
}

// entry is one thing to do. The fields in front decide the order, first to last.
type entry struct {
	at    int64  // nanoseconds since the start
	tie   uint64 // drawn from the seed
	count uint64 // for two equal draws, so that the order is total
	do    func()
}

// New makes an empty agenda whose clock stands at start.
func New(start time.Time, seed uint64) *Agenda {
	start = start.Round(0)
	return &Agenda{now: start, start: start, tie: rand.NewPCG(seed, 0x61_67_65_6e_64_61)}
}

// Run advances the clock to the earliest entry and runs it. It reports false, and changes
// nothing, when there is none.
func (a *Agenda) Run() bool {
	if len(a.heap) == 0 {
		return false
	}
	first := a.pop()
	if first.at > a.since {
		a.since = first.at
		a.now = a.start.Add(time.Duration(first.at))
	}
	first.do()
	return true
}

// Now is the virtual time.
func (a *Agenda) Now() time.Time { return a.now }

// At has do run at a time; one that has passed is taken as now.
func (a *Agenda) At(t time.Time, do func()) {
	a.add(int64(t.Sub(a.start)), do)
}

// After has do run when d has passed; a negative d is taken as none.
func (a *Agenda) After(d time.Duration, do func()) {
	a.add(a.since+int64(d), do)
}

// Next is the time of the earliest entry; false when there is none.
func (a *Agenda) Next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.start.Add(time.Duration(a.heap[0].at)), true
}

// Len is the number of entries that have not run yet.
func (a *Agenda) Len() int { return len(a.heap) }

func (a *Agenda) add(at int64, do func()) {
	if do == nil {
		panic("agenda: nothing to do")
	}
	a.count++
	a.push(entry{at: max(at, a.since), tie: a.tie.Uint64(), count: a.count, do: do})
}

func (e *entry) before(f *entry) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.tie != f.tie {
		return e.tie < f.tie
	}
	return e.count < f.count
}
