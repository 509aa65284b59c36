package runner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a core that records its events and runs a function for each.
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
				Op: 1, Body: &runtimeapi.VersionRequest{}, Deadline: ev.Time.Add(porttest.Patience),
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
	r.Deliver(world.Event{Op: 2}) // must not block
	if r.Offer(world.Event{Body: &world.PodsRequest{}}) {
		t.Error("a runner that has ended takes requests")
	}
}

// A change of the date is reported once, before the events after it; a small one is not.
func TestChangeOfTheDateIsReported(t *testing.T) {
	r := runner.New(clock.New())
	offset := time.Duration(0)
	r.SetOffset(func() time.Duration { return offset })
	ctx, cancel := context.WithCancelCause(t.Context())
	core := &script{}
	core.step = func(ev world.Event) []world.Effect {
		switch body := ev.Body.(type) {
		case *world.PodsRequest:
			offset += []time.Duration{400 * time.Millisecond, -time.Hour, 0}[body.Request-1]
			if body.Request == 3 {
				cancel(errTerm)
			}
			r.Offer(world.Event{Body: &world.PodsRequest{Request: body.Request + 1}})
		case *world.ClockStepped:
			if want := 400*time.Millisecond - time.Hour; body.Offset != want {
				t.Errorf("the offset is %v, want %v", body.Offset, want)
			}
		}
		return nil
	}
	r.Offer(world.Event{Body: &world.PodsRequest{Request: 1}})
	r.Run(ctx, loop.New(loop.Options{Core: core}), &world.Boot{})
	var got []string
	for _, ev := range core.events {
		got = append(got, world.BodyName(ev.Body))
	}
	want := []string{"Boot", "PodsRequest", "PodsRequest", "ClockStepped", "PodsRequest", "Shutdown"}
	if !slices.Equal(got, want) {
		t.Errorf("the core has seen %q, want %q", got, want)
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

// Requests whose clients have gone never reach the core, however many they are.
func TestRequestsOfGoneClientsAreDropped(t *testing.T) {
	r := runner.New(clock.New())
	gone, leave := context.WithCancel(t.Context())
	for id := range world.RequestID(500) {
		if !r.OfferRequest(gone, world.Event{Body: &world.StateRequest{Request: id}}) {
			t.Fatal("refused")
		}
	}
	r.OfferRequest(t.Context(), world.Event{Body: &world.PodsRequest{Request: 501}})
	leave()
	ctx, cancel := context.WithCancelCause(t.Context())
	core := &script{}
	core.step = func(ev world.Event) []world.Effect {
		if _, isRequest := ev.Body.(*world.PodsRequest); isRequest {
			cancel(errTerm)
		}
		return nil
	}
	r.Run(ctx, loop.New(loop.Options{Core: core}), &world.Boot{})
	if got := len(core.events); got != 3 {
		t.Errorf("the core has seen %d events, want the boot, one request and the shutdown", got)
	}
	if dropped := r.Metrics()[0].Value; dropped != 500 {
		t.Errorf("%v requests were dropped, want 500", dropped)
	}
}

// Events of many concurrent goroutines are all delivered, without data races.
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

func TestPanicReporter(t *testing.T) {
	var panicked []runner.Panic
	core := &script{step: func(ev world.Event) []world.Effect {
		if ev.Op == 2 {
			panic("invariant broken")
		}
		return []world.Effect{{Body: &world.Log{}}}
	}}
	reporter := runner.PanicReporter{Core: core,
		Panicked: func(p runner.Panic) { panicked = append(panicked, p) }}
	if effects := reporter.Step(world.Event{Op: 1}); len(effects) != 1 || len(panicked) != 0 {
		t.Errorf("effects %v and panics %v of a good step", effects, panicked)
	}
	defer func() {
		if p := recover(); p != "invariant broken" || len(panicked) != 1 ||
			panicked[0].Event.Op != 2 || panicked[0].Value != p ||
			!strings.Contains(panicked[0].Place, "TestPanicReporter") ||
			!strings.Contains(string(panicked[0].Stack), "runner_test.go") {
			t.Errorf("panic %v, reported %+v; want the core's own panic and event 2", p, panicked)
		}
	}()
	reporter.Step(world.Event{Op: 2})
}
