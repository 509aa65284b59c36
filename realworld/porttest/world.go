// Package porttest lets the parity suites drive a real port: it is a parity.World in real time.
// Make a World, give its Deliver to the port, and set Port.
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

// callMax is how long a call may take before the port counts as broken.
const callMax = 2 * time.Minute

// World carries out one effect at a time on a real port.
type World struct {
	Clock clock.Clock
	Port  world.Port

	mu      sync.Mutex
	last    world.OpID
	waiting map[world.OpID]chan world.Event
	changed []string // the paths of FileChanged events
	heard   []*runtimeapi.ContainerEventResponse
	told    []any // what watches of the API server have told
}

// New makes a world without a port.
func New() *World {
	return &World{Clock: clock.New(), waiting: map[world.OpID]chan world.Event{}}
}

// Deliver takes the events of the port.
func (w *World) Deliver(ev world.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := ev.Body.(type) {
	case *world.FileChanged:
		w.changed = append(w.changed, m.Path)
		return
	case *world.ObjectsListed, *world.ObjectChanged, *world.ObjectGone, *world.WatchFailing:
		w.told = append(w.told, m)
		return
	}
	waits, ok := w.waiting[ev.Op]
	if !ok {
		panic(fmt.Sprintf("porttest: operation %d is answered twice, or was never asked", ev.Op))
	}
	delete(w.waiting, ev.Op)
	waits <- ev
}

// Offer takes what the port says by itself, for which there is always room.
func (w *World) Offer(ev world.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, ev.Body.(*runtimeapi.ContainerEventResponse))
	return true
}

// Begin starts an effect; the function it returns waits for the answer.
func (w *World) Begin(body any) (wait func() (any, *world.Error)) {
	return w.beginFor(body, callMax)
}

// CallWithin carries out an effect with a deadline of its own.
func (w *World) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	return w.beginFor(body, timeout)()
}

// Stream begins the stream of container events, which ends at its deadline.
func (w *World) Stream(timeout time.Duration) (wait func() (any, *world.Error)) {
	return w.beginFor(&runtimeapi.GetEventsRequest{}, timeout)
}

func (w *World) beginFor(body any, timeout time.Duration) (wait func() (any, *world.Error)) {
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
		case <-time.After(timeout + 10*time.Second):
			panic("porttest: " + world.Call(body) + " is not answered by its deadline")
		}
	}
}

// Call carries out an effect and waits for its answer.
func (w *World) Call(body any) (any, *world.Error) { return w.Begin(body)() }

// Tell carries out an effect that has no answer.
func (w *World) Tell(body any) { w.Port.Do(world.Effect{Body: body}) }

// Sleep lets time pass.
func (w *World) Sleep(d time.Duration) { time.Sleep(d) }

// Now is the wall clock, which is also the runtime's and the file system's.
func (w *World) Now() time.Time { return time.Now() }

// Heard returns all container events until now.
func (w *World) Heard() []*runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// Changed returns the paths of the FileChanged events since the last call of Changed.
func (w *World) Changed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := slices.Clone(w.changed)
	w.changed = nil
	return changed
}

// Told returns all that watches of the API server have told until now.
func (w *World) Told() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}
