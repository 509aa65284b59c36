package runner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a core that notes its events and does what it is told.
type script struct {
	events []world.Event
	step   func(world.Event) []world.Effect
	wake   time.Time
}

func (s *script) Step(ev world.Event) []world.Effect {
	s.events = append(s.events, ev)
	if s.step == nil {
		return nil
	}
	return s.step(ev)
}

func (s *script) NextWake() time.Time { return s.wake }

// port answers each effect by a function, on a goroutine.
type port func(world.Effect)

func (p port) Do(eff world.Effect) { go p(eff) }

var errTerm = errors.New("terminated signal received")

func TestFromBootToShutdown(t *testing.T) {
	c := clock.New()
	r := runner.New(c)
	ctx, cancel := context.WithCancelCause(t.Context())
	core := &script{}
	core.step = func(ev world.Event) []world.Effect {
		switch ev.Body.(type) {
		case *world.Boot:
			return []world.Effect{{
				Op: 1, Body: &runtimeapi.VersionRequest{}, Deadline: ev.Time.Add(time.Minute),
			}}
		case *runtimeapi.VersionResponse:
			core.wake = ev.Time.Add(30 * time.Millisecond)
		case nil: // the wake-up
			core.wake = time.Time{}
			cancel(errTerm)
		}
		return nil
	}
	l := loop.New(loop.Options{Core: core, Ports: map[world.PortName]world.Port{
		world.PortCRI: port(func(eff world.Effect) {
			r.Deliver(world.Event{Op: eff.Op, Body: &runtimeapi.VersionResponse{}})
		}),
	}})
	r.Offer(world.Event{Body: &world.PodsRequest{Request: 7}}) // before it runs
	r.Run(ctx, l, &world.Boot{Seed: 1})

	want := []string{"Boot", "PodsRequest", "VersionResponse", "", "Shutdown"}
	if len(core.events) != len(want) {
		t.Fatalf("the core has seen %+v, want %v", core.events, want)
	}
	for i, ev := range core.events {
		if world.BodyName(ev.Body) != want[i] {
			t.Errorf("event %d is %q, want %q", i, world.BodyName(ev.Body), want[i])
		}
		if i > 0 && ev.Time.Before(core.events[i-1].Time) {
			t.Errorf("event %d is at %v, before the one before it", i, ev.Time)
		}
	}
	if waited := core.events[3].Time.Sub(core.events[2].Time); waited < 30*time.Millisecond {
		t.Errorf("woken after %v, want 30ms", waited)
	}
	if got := core.events[4].Body.(*world.Shutdown).Reason; got != errTerm.Error() {
		t.Errorf("the reason is %q, want %q", got, errTerm)
	}
	r.Deliver(world.Event{Op: 2}) // must not wait for anybody
	if r.Offer(world.Event{Body: &world.PodsRequest{}}) {
		t.Error("a runner that has ended takes requests")
	}
}

func TestOfferIsRefusedWhenFull(t *testing.T) {
	r := runner.New(clock.New())
	taken := 0
	for taken < 100_000 && r.Offer(world.Event{Body: &world.PodsRequest{}}) {
		taken++
	}
	if taken == 0 || taken == 100_000 {
		t.Fatalf("%d requests taken by a runner that does not run, want a bound", taken)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	core := &script{}
	core.step = func(world.Event) []world.Effect {
		if len(core.events) == taken+1 {
			cancel(errTerm)
		}
		return nil
	}
	r.Run(ctx, loop.New(loop.Options{Core: core}), &world.Boot{})
	if got := len(core.events); got != taken+2 {
		t.Errorf("the core has seen %d events, want all %d, the boot and the shutdown", got, taken)
	}
}

// Many goroutines at once: nothing is lost, and nothing is out of step with the race detector.
func TestDeliverFromManyGoroutines(t *testing.T) {
	const senders, each = 16, 500
	r := runner.New(clock.New())
	ctx, cancel := context.WithCancelCause(t.Context())
	core := &script{}
	core.step = func(world.Event) []world.Effect {
		if len(core.events) == senders*each+1 {
			cancel(errTerm)
		}
		return nil
	}
	for range senders {
		go func() {
			for range each {
				r.Deliver(world.Event{Body: &world.FileChanged{Path: "/x"}})
			}
		}()
	}
	r.Run(ctx, loop.New(loop.Options{Core: core}), &world.Boot{})
	if got := len(core.events); got != senders*each+2 {
		t.Errorf("the core has seen %d events, want %d", got, senders*each+2)
	}
}

func TestWitness(t *testing.T) {
	var died []world.Event
	core := &script{step: func(ev world.Event) []world.Effect {
		if ev.Op == 2 {
			panic("invariant broken")
		}
		return []world.Effect{{Body: &world.Log{}}}
	}}
	witness := runner.Witness{Core: core, Died: func(ev world.Event) { died = append(died, ev) }}
	if effects := witness.Step(world.Event{Op: 1}); len(effects) != 1 || len(died) != 0 {
		t.Errorf("effects %v and deaths %v of a good step", effects, died)
	}
	defer func() {
		if p := recover(); p != "invariant broken" || len(died) != 1 || died[0].Op != 2 {
			t.Errorf("panic %v, deaths %v; want the core's own panic and event 2", p, died)
		}
	}()
	witness.Step(world.Event{Op: 2})
}
