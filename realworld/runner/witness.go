package runner

import "seedlet.dev/world"

// Witness is a core that tells which event its inner core has died of. A broken invariant is a
// panic, whose stack shows where it was found but not what led to it. The panic itself passes.
type Witness struct {
	world.Core
	Died func(world.Event) // called before the panic goes on
}

// Step lets the inner core take the event.
func (w Witness) Step(ev world.Event) []world.Effect {
	survived := false
	defer func() {
		if !survived {
			w.Died(ev)
		}
	}()
	effects := w.Core.Step(ev)
	survived = true
	return effects
}
