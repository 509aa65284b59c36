package agenda

import (
	"slices"
	"time"
)

// priorities order entries as probabilistic concurrency testing does (Burckhardt et al., "A
// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"): each actor has a random
// priority. Of the entries that are due within a window, one of the actor with the highest priority
// runs first. At each of a few change points the actor that is about to run gets a priority below
// all others. An ordering that is needed for a bug and has d-1 changes is found with a probability
// that depends on the number of actors and steps, and not on how rare it is.
type priorities struct {
	window  int64 // nanoseconds
	changes []int64
	lowered map[int]int // the actors of change points: the number of the latest one
	passed  int         // change points
	due     []int       // places in the heap, of the current choice; kept for its memory
}

// OrderByPriority has entries that are due within a window run in the order of the priorities of
// their actors. An entry runs later than its time by less than the window. The change points are
// times.
func (a *Agenda) OrderByPriority(window time.Duration, changes []time.Time) {
	p := &priorities{window: int64(window), lowered: map[int]int{}}
	for _, at := range changes {
		p.changes = append(p.changes, int64(at.Sub(a.start)))
	}
	slices.Sort(p.changes)
	a.priorities = p
}

// Actor returns the agenda as the actor of a name sees it. Entries of one actor never overtake each
// other.
func (a *Agenda) Actor(name string) *Agenda {
	i := slices.IndexFunc(a.actors, func(known actor) bool { return known.name == name })
	if i < 0 {
		i = len(a.actors)
		a.actors = append(a.actors, actor{name, priorityOf(name, a.seed)})
	}
	return &Agenda{queue: a.queue, actor: i}
}

// actor is what adds entries. Its priority is drawn from the seed and the name.
type actor struct {
	name     string
	priority uint64
}

func priorityOf(name string, seed uint64) uint64 {
	h := seed
	for _, c := range []byte(name) {
		h = mix(h ^ uint64(c))
	}
	return h
}

// choose returns the place of the entry that runs next. The heap must not be empty.
func (a *queue) choose() int {
	p := a.priorities
	p.due = p.due[:0]
	a.collectDue(0, a.heap[0].at+p.window)
	best := a.bestOf(p.due)
	if p.passed == len(p.changes) || a.heap[0].at < p.changes[p.passed] ||
		!slices.ContainsFunc(p.due, func(i int) bool {
			return a.heap[i].actor != a.heap[best].actor
		}) {
		return best
	}
	p.passed++
	p.lowered[a.heap[best].actor] = p.passed
	return a.bestOf(p.due)
}

// collectDue adds the place of an entry, and of those below it, if they are due before a time.
func (a *queue) collectDue(i int, before int64) {
	if a.heap[i].at >= before && i != 0 {
		return
	}
	a.priorities.due = append(a.priorities.due, i)
	least := i*heapArity + 1
	for child := least; child < min(least+heapArity, len(a.heap)); child++ {
		a.collectDue(child, before)
	}
}

// bestOf returns the place of the entry whose actor has the highest priority. Of one actor the
// earliest entry is first.
func (a *queue) bestOf(places []int) int {
	return slices.MinFunc(places, func(i, k int) int {
		x, y := &a.heap[i], &a.heap[k]
		switch {
		case x.actor == y.actor && x.before(y), x.actor != y.actor && a.outranks(x.actor, y.actor):
			return -1
		}
		return 1
	})
}

// outranks reports whether an actor has a higher priority than another one. An actor that was
// lowered later has the lower priority of the two.
func (a *queue) outranks(actor, other int) bool {
	lowered, otherLowered := a.priorities.lowered[actor], a.priorities.lowered[other]
	if lowered != otherLowered {
		return lowered < otherLowered
	}
	if x, y := a.actors[actor].priority, a.actors[other].priority; x != y {
		return x > y
	}
	return actor < other
}
