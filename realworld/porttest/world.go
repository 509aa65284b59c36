// Package porttest has what tests on real programs share. World runs the parity suites against a
// real port: create one, hand its Deliver to the port, and set Port. Patience bounds what tests
// wait for.
package porttest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/world"
)

// World carries out one effect at a time on a real port.
type World struct {
	Clock clock.Clock
	Port  world.Port

	mu              sync.Mutex
	last            world.OpID
	waiting         map[world.OpID]chan world.Event
	changedPaths    []string // the paths of FileChanged events
	containerEvents []*runtimeapi.ContainerEventResponse
	watchEvents     []any // of watches of the API server
}

// New returns a world without a port.
func New() *World {
	return &World{Clock: clock.New(), waiting: map[world.OpID]chan world.Event{}}
}

// Deliver handles the events of the port.
func (w *World) Deliver(ev world.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := ev.Body.(type) {
	case *world.FileChanged:
		w.changedPaths = append(w.changedPaths, m.Path)
		return
	case *world.ObjectsListed, *world.ObjectChanged, *world.ObjectGone, *world.WatchFailing:
		w.watchEvents = append(w.watchEvents, m)
		return
	}
	waits, ok := w.waiting[ev.Op]
	if !ok {
		panic(fmt.Sprintf("porttest: operation %d is answered twice, or was never asked", ev.Op))
	}
	delete(w.waiting, ev.Op)
	waits <- ev
}

// Offer handles events that the port sends without a request. It always has room.
func (w *World) Offer(ev world.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.containerEvents = append(w.containerEvents, ev.Body.(*runtimeapi.ContainerEventResponse))
	return true
}

// Begin starts an operation. The returned function waits for its result.
func (w *World) Begin(body any) (wait func() (any, *world.Error)) {
	return w.beginWithin(body, Patience)
}

// CallWithin runs an operation with the given timeout.
func (w *World) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return w.beginWithin(body, timeout)()
}

// Stream opens the stream of container events, which ends after the timeout.
func (w *World) Stream(timeout time.Duration) (wait func() (any, *world.Error)) {
	return w.beginWithin(&runtimeapi.GetEventsRequest{}, timeout)
}

func (w *World) beginWithin(body any, timeout time.Duration) (wait func() (any, *world.Error)) {
	w.mu.Lock()
	w.last++
	id, answer := w.last, make(chan world.Event, 1)
	w.waiting[id] = answer
	w.mu.Unlock()
	w.Port.Do(world.Effect{Op: id, Body: body, Deadline: w.Clock.Now().Add(timeout)})
	return func() (any, *world.Error) {
		select {
		case ev := <-answer:
			return ev.Body, ev.Err
		case <-time.After(timeout + Patience):
			panic("porttest: " + world.CallName(body) + " is not answered by its deadline")
		}
	}
}

// CancelLast cancels the operation that was started last.
func (w *World) CancelLast() {
	w.mu.Lock()
	id := w.last
	w.mu.Unlock()
	w.Port.(world.Canceler).Cancel(id)
}

// Call runs an operation and waits for its result.
func (w *World) Call(body any) (any, *world.Error) { return w.Begin(body)() }

// Send carries out an effect that has no result.
func (w *World) Send(body any) { w.Port.Do(world.Effect{Body: body}) }

// Sleep lets time pass.
func (w *World) Sleep(d time.Duration) { time.Sleep(d) }

// Now is the wall clock, which is also the runtime's and the file system's.
func (w *World) Now() time.Time { return time.Now() }

// Events returns all container events so far.
func (w *World) Events() []*runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.containerEvents)
}

// Changed returns the paths of the FileChanged events since the last call of Changed.
func (w *World) Changed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := slices.Clone(w.changedPaths)
	w.changedPaths = nil
	return changed
}

// WatchEvents returns all events of watches of the API server so far.
func (w *World) WatchEvents() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.watchEvents)
}
