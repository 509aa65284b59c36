// Package agenda is the simulated clock and its event queue: functions to call, each at a virtual
// time. The clock jumps from one entry to the next, so an idle hour costs nothing.
//
// Contract: entries run in the order of their times. Entries of equal times run in an order that is
// drawn from the seed, and is the same in every run of that seed: the draw of an entry depends on
// its time, and on how many entries there were before it of that time and of the few times that
// share a counter with it. So an entry more or less changes next to nothing at other times. An
// entry may add others while it runs. Nothing here reads a real clock. One goroutine uses an
// agenda. After OrderByPriority, entries that are due close together run in the order of the
// priorities of their actors instead (pct.go).
//
// Start reading at Run.
package agenda

import "time"

// Agenda is a virtual clock with the entries that it will run, as one actor sees it. All actors
// have the same clock and entries.
type Agenda struct {
	*queue
	actor int // that adds entries
}

// queue is the clock and the entries of all actors.
type queue struct {
	now        time.Time
	sinceStart int64 // now, in nanoseconds since the start
	start      time.Time
	seed       uint64
	added      [1024]uint64 // entries so far, by the hash of their time
	sequence   uint64
	origin     Origin // of the entry that runs
	heap       []entry
	actors     []actor     // an entry has the index of its own
	priorities *priorities // nil: entries run in the order of their times
}

// entry is a function and when to call it. The fields before do are the order, first to last.
type entry struct {
	at       int64  // nanoseconds since the start
	tie      uint64 // drawn from the seed
	sequence uint64 // breaks equal draws, so that the order is total
	actor    int
	origin   Origin
	do       func()
}

// Origin is what an entry goes back to, as a number that the caller of Because chooses. Entries
// have the origin of the entry that added them. Zero: none.
type Origin uint64

// New returns an empty agenda whose clock stands at start.
func New(start time.Time, seed uint64) *Agenda {
	start = start.Round(0)
	return &Agenda{queue: &queue{now: start, start: start, seed: seed,
		actors: []actor{{"", priorityOf("", seed)}}}}
}

// Reseed draws the order of entries that are added from now on from another seed.
func (a *Agenda) Reseed(seed uint64) { a.seed = seed }

// Run advances the clock to the earliest entry and runs it. It reports false, and changes
// nothing, if there is no entry.
func (a *Agenda) Run() bool {
	if len(a.heap) == 0 {
		return false
	}
	var first entry
	if a.priorities == nil {
		first = a.pop()
	} else {
		first = a.removeAt(a.choose())
	}
	if first.at > a.sinceStart {
		a.sinceStart = first.at
		a.now = a.start.Add(time.Duration(first.at))
	}
	a.origin = first.origin
	first.do()
	return true
}

// Because calls a function. What it adds goes back to an origin.
func (a *Agenda) Because(origin Origin, do func()) {
	before := a.origin
	a.origin = origin
	do()
	a.origin = before
}

// Origin returns what happens now goes back to.
func (a *Agenda) Origin() Origin { return a.origin }

// Now returns the virtual time.
func (a *Agenda) Now() time.Time { return a.now }

// At adds an entry at a time; a past time means now.
func (a *Agenda) At(t time.Time, do func()) {
	a.add(int64(t.Sub(a.start)), do)
}

// After adds an entry at now plus d; a negative d means now.
func (a *Agenda) After(d time.Duration, do func()) {
	a.add(a.sinceStart+int64(d), do)
}

// Next returns the time of the earliest entry; false if there is none. The time has passed if
// entries of a higher priority have overtaken it.
func (a *Agenda) Next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.start.Add(time.Duration(a.heap[0].at)), true
}

// Len returns the number of entries that have not run yet.
func (a *Agenda) Len() int { return len(a.heap) }

func (a *Agenda) add(at int64, do func()) {
	if do == nil {
		panic("agenda: nothing to do")
	}
	at = max(at, a.sinceStart)
	hash := mix(uint64(at))
	before := &a.added[hash%uint64(len(a.added))]
	*before++
	a.sequence++
	a.push(entry{at: at, tie: mix(a.seed ^ hash ^ *before), sequence: a.sequence,
		actor: a.actor, origin: a.origin, do: do})
}

// mix spreads the bits of a number: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (e *entry) before(f *entry) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.tie != f.tie {
		return e.tie < f.tie
	}
	return e.sequence < f.sequence
}
