package core

import (
	"time"

	"seedlet.dev/core/pod"
	"seedlet.dev/core/timer"
)

// planQueue is the work queue of one step: the components to plan, each at most once, in the order
// in which they were enqueued. The first round of a step is what its event has enqueued, each
// further round what the plans of the round before have.
type planQueue struct {
	keys     []timer.Key
	head     int
	roundEnd int // the length of keys when the current round began
	rounds   int
	isQueued map[timer.Key]bool
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

func (q *planQueue) dequeue() (timer.Key, bool) {
	if q.head == len(q.keys) {
		q.keys, q.head, q.roundEnd, q.rounds = q.keys[:0], 0, 0, 0
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

// deferPlans leaves the components beyond perStepMax to the next steps, by timers that are due at
// once: what is still to be done is part of the state. It is called before the first plan of a
// step.
func (a *Agent) deferPlans(now time.Time) {
	q := &a.queue
	for i := perStepMax; i < len(q.keys); i++ {
		delete(q.isQueued, q.keys[i])
		a.state.Timers.SetNoLaterThan(q.keys[i], now)
	}
	q.keys = q.keys[:min(len(q.keys), perStepMax)]
}

func (a *Agent) enqueuePod(uid string) {
	a.queue.enqueue(timer.Key{Component: pod.Component, Name: uid})
}

func (a *Agent) enqueuePods() {
	for _, uid := range a.podUIDs {
		a.enqueuePod(uid)
	}
}
