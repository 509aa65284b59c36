// Package porttest lets the parity suites drive a real port: it is a parity.World in real time.
// Make a World, give its Deliver to the port, and set Port.
package porttest

import (
	"fmt"
	"slices"
	"sync"
	"time"

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
}

// New makes a world without a port.
func New() *World {
	return &World{Clock: clock.New(), waiting: map[world.OpID]chan world.Event{}}
}

// Deliver takes the events of the port.
func (w *World) Deliver(ev world.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m, ok := ev.Body.(*world.FileChanged); ok {
		w.changed = append(w.changed, m.Path)
		return
	}
	waits, ok := w.waiting[ev.Op]
	if !ok {
		panic(fmt.Sprintf("porttest: operation %d is answered twice, or was never asked", ev.Op))
	}
	delete(w.waiting, ev.Op)
	waits <- ev
}

// Begin starts an effect; the function it returns waits for the answer.
func (w *World) Begin(body any) (wait func() (any, *world.Error)) {
	w.mu.Lock()
	w.last++
	id, answer := w.last, make(chan world.Event, 1)
	w.waiting[id] = answer
	w.mu.Unlock()
	w.Port.Do(world.Effect{Op: id, Body: body, Deadline: w.Clock.Now().Add(callMax)})
	return func() (any, *world.Error) {
		select {
		case ev := <-answer:
			return ev.Body, ev.Err
		case <-time.After(callMax + 10*time.Second):
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

// Changed returns the paths of the FileChanged events since the last call of Changed.
func (w *World) Changed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := slices.Clone(w.changed)
	w.changed = nil
	return changed
}
