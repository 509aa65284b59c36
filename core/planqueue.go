package core

import (
	"time"

	"seedlet.dev/core/image"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
)

// planQueue is the work queue of one step: the components to plan, each at most once, in the order
// in which they were enqueued. The first round of a step is what its event has enqueued, each
// further round what the plans of the round before have.
type planQueue struct {
	keys     []timer.Key
	dueSince map[timer.Key]time.Time // of those whose timers were due
	head     int
	roundEnd int // the length of keys when the current round began
	rounds   int
	isQueued map[timer.Key]bool
	planned  bool // a pod has been planned in this step
}

// roundsMax bounds the rounds of one step. A list of any length makes a round longer and adds none,
// so a step that reaches the bound has plans that enqueue each other for ever.
const roundsMax = 10_000

func (q *planQueue) enqueue(key timer.Key) {
	if q.isQueued[key] {
		return
	}
	if q.isQueued == nil {
		q.isQueued = map[timer.Key]bool{}
	}
	q.isQueued[key] = true
	q.keys = append(q.keys, key)
}

// enqueueDue enqueues a component whose timer has been due since a time.
func (q *planQueue) enqueueDue(key timer.Key, since time.Time) {
	if q.dueSince == nil {
		q.dueSince = map[timer.Key]time.Time{}
	}
	q.dueSince[key] = since
	q.enqueue(key)
}

func (q *planQueue) dequeue() (timer.Key, bool) {
	if q.head == len(q.keys) {
		q.keys, q.head, q.roundEnd, q.rounds = q.keys[:0], 0, 0, 0
		q.planned = false
		clear(q.dueSince)
		return timer.Key{}, false
	}
	if q.head == q.roundEnd {
		if q.rounds++; q.rounds > roundsMax {
			panic("core: plans enqueue each other without end, at " + q.keys[q.head].String())
		}
		q.roundEnd = len(q.keys)
	}
	key := q.keys[q.head]
	q.head++
	delete(q.isQueued, key)
	return key, true
}

// perStepMax bounds what one step does of each kind: operations that expire, components that are
// planned because of the event, and components whose timers are due. Events are handled between
// such steps, so a fact that all pods depend on, such as the first status of the runtime, does not
// hold up requests and completions on a node with thousands of pods. What the plans themselves
// enqueue is not bounded.
const perStepMax = 32

// workPerStepMax bounds what the plans of one step build, see op.Effects.CountWork: once they have
// built more, no further pod is planned in that step. One pod may build more, as much as its bounds
// in package budget allow. A megabyte takes about 1.5 ms.
const workPerStepMax = 2 << 20

// deferPlans leaves the components beyond perStepMax to the next steps, by timers that are due at
// once: what is still to be done is part of the state. It is called before the first plan of a
// step. If the step before has left pods because of its work, the pods of this step's event wait
// behind them: otherwise a pod with many events would keep the others waiting.
func (a *Agent) deferPlans(now time.Time) {
	q := &a.queue
	kept := q.keys[:0]
	for _, key := range q.keys {
		if len(kept) < perStepMax && !(a.state.PodsLeft && isOfPod(key)) {
			kept = append(kept, key)
			continue
		}
		delete(q.isQueued, key)
		a.leave(key, now)
	}
	q.keys, a.state.PodsLeft = kept, false
}

// leavesPod reports whether a component is left to the next step, because this one has built too
// much. It stays due since the time that it was due. The first pod is never left, as the event
// itself may have built too much.
func (a *Agent) leavesPod(key timer.Key, now time.Time) bool {
	if !isOfPod(key) {
		return false
	}
	if !a.queue.planned || a.effects.Work() <= workPerStepMax {
		a.queue.planned = true
		return false
	}
	since, wasDue := a.queue.dueSince[key]
	if !wasDue {
		since = now
	}
	a.leave(key, since)
	a.state.PodsLeft = true
	return true
}

// leave leaves a component to the next steps. What is served of a pod is built again then: the
// facts may have changed already.
func (a *Agent) leave(key timer.Key, since time.Time) {
	if key.Component == pod.Component {
		delete(a.servedPods, key.Name)
	}
	a.state.Timers.SetNoLaterThan(key, since)
}

// isOfPod reports whether a component is a pod, its status, or an image that pods wait for.
func isOfPod(key timer.Key) bool {
	switch key.Component {
	case pod.Component, statuswriter.Component, image.Component:
		return true
	}
	return false
}

func (a *Agent) enqueuePod(uid string) {
	a.queue.enqueue(timer.Key{Component: pod.Component, Name: uid})
}

func (a *Agent) enqueuePods() {
	for _, uid := range a.podUIDs {
		a.enqueuePod(uid)
	}
}
