package plugins

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// parityWorld runs the suite on simulated plugins.
type parityWorld struct {
	agenda      *agenda.Agenda
	plugins     *Plugins
	completions map[world.OpID]world.Event
	ops         world.OpID
	observed    []world.PluginSocket
	notified    map[string][]world.NotifyPluginRegistration // by path
}

func newParityWorld(seed uint64) *parityWorld {
	w := &parityWorld{agenda: agenda.New(begin, seed), completions: map[world.OpID]world.Event{},
		notified: map[string][]world.NotifyPluginRegistration{}}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		if f.Kind == truth.PluginNotified {
			w.notified[f.Path] = append(w.notified[f.Path],
				world.NotifyPluginRegistration{Registered: f.IsRegistered, Error: f.Message})
		}
	})
	w.plugins = New(Options{Agenda: w.agenda, Truth: log, Seed: seed, Dir: "/r",
		Deliver: func(ev world.Event) {
			if observed, ok := ev.Body.(*world.PluginSocketsObserved); ok {
				w.observed = observed.Sockets
				return
			}
			w.completions[ev.Op] = ev
		}})
	return w
}

// faults are those of the suite.
var faults = map[parity.PluginFault]plan.PluginFault{
	parity.PluginHangs: plan.PluginHangs, parity.PluginFails: plan.PluginFails,
	parity.PluginTooLong: plan.PluginTooLong, parity.PluginDown: plan.PluginDown,
}

func (w *parityWorld) Serve(name string, info *world.PluginInfo, wrong parity.PluginFault) {
	w.plugins.Change(&plan.PluginChange{Socket: name, Type: info.Type, Name: info.Name,
		Endpoint: info.Endpoint, Versions: info.Versions, Wrong: faults[wrong]})
}

func (w *parityWorld) Remove(name string) {
	w.plugins.Change(&plan.PluginChange{Socket: name, Gone: true})
}

func (w *parityWorld) Path(name string) string { return "/r/" + name }

func (w *parityWorld) Observed() []world.PluginSocket { return w.observed }

func (w *parityWorld) Notified(name string) []world.NotifyPluginRegistration {
	return w.notified[w.Path(name)]
}

func (w *parityWorld) Now() time.Time { return w.agenda.Now() }

func (w *parityWorld) Sleep(d time.Duration) {
	awake := false
	w.agenda.After(d, func() { awake = true })
	for !awake {
		w.agenda.Run()
	}
}

func (w *parityWorld) CallWithin(body any, timeout time.Duration) (any, *world.Error) {
	w.ops++
	w.plugins.Do(world.Effect{Op: w.ops, Body: body, Deadline: w.agenda.Now().Add(timeout)})
	for {
		if ev, completed := w.completions[w.ops]; completed {
			return ev.Body, ev.Err
		}
		if !w.agenda.Run() {
			panic(world.CallName(body) + " never completed")
		}
	}
}

func TestParity(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			parity.PluginsPort(t, func(*testing.T) parity.Plugins { return newParityWorld(seed) })
		})
	}
}
