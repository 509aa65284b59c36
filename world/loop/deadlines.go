package loop

import (
	"container/heap"
	"fmt"
	"strings"
	"time"

	"seedlet.dev/world"
)

// operation is an operation that has a slot in a lane, or waits for one.
type operation struct {
	effect world.Effect
	lane   Lane
	group  string // see groupOf
	hung   bool   // it has a slot, and its deadline has passed
	index  int    // in its deadlines; -1: in none
	number int    // in the order in which operations of its lane began to wait
}

// deadlines are operations by their deadline, and by their number if that is the same.
type deadlines struct{ heap operationHeap }

func (d *deadlines) push(op *operation) { heap.Push(&d.heap, op) }

// remove removes an operation; one that was removed before is ignored.
func (d *deadlines) remove(op *operation) {
	if op.index >= 0 {
		heap.Remove(&d.heap, op.index)
	}
}

// popExpired removes and returns an operation whose deadline has passed; nil without one.
func (d *deadlines) popExpired(now time.Time) *operation {
	if len(d.heap) == 0 || now.Before(d.heap[0].effect.Deadline) {
		return nil
	}
	return heap.Pop(&d.heap).(*operation)
}

// next returns the first deadline; zero without an operation.
func (d *deadlines) next() time.Time {
	if len(d.heap) == 0 {
		return time.Time{}
	}
	return d.heap[0].effect.Deadline
}

// operationHeap implements heap.Interface.
type operationHeap []*operation

func (h operationHeap) Len() int { return len(h) }

func (h operationHeap) Less(i, j int) bool {
	x, y := &h[i].effect, &h[j].effect
	if !x.Deadline.Equal(y.Deadline) {
		return x.Deadline.Before(y.Deadline)
	}
	return x.Op < y.Op
}

func (h operationHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *operationHeap) Push(x any) {
	op := x.(*operation)
	op.index = len(*h)
	*h = append(*h, op)
}

func (h *operationHeap) Pop() any {
	last := len(*h) - 1
	op := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	op.index = -1
	return op
}

// expire cancels the operations that have waited for a slot until their deadline: the core, which
// gave them up at the deadline, no longer expects their effect. An operation that has a slot at its
// deadline is hung, and its slot is replaced.
func (l *Loop) expire(now time.Time) {
	for op := l.queued.popExpired(now); op != nil; op = l.queued.popExpired(now) {
		l.drop(op, "waited for a slot until its deadline")
	}
	for op := l.started.popExpired(now); op != nil; op = l.started.popExpired(now) {
		op.hung = true
		l.lanes[op.lane].hung++
		l.startWaiting(op.lane)
	}
	l.expireWaiting(now)
}

// Check returns the health check of the lanes: which of them have hung operations, and how many.
// Nothing that the agent could do makes such a call return, so the check is information.
func (l *Loop) Check() world.Check {
	var problems []string
	for i := range l.lanes {
		if hung := l.lanes[i].hung; hung > 0 {
			problems = append(problems, fmt.Sprintf("lane %s: %d of %d operations in flight are hung",
				Lane(i), hung, l.lanes[i].inFlight))
		}
	}
	return world.Check{Name: "lanes", Problem: strings.Join(problems, ", ")}
}
