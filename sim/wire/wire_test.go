package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/world"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// randomFaults decides random outcomes of every kind.
type randomFaults struct{ rng *rand.Rand }

func (w randomFaults) Decide(CallID, time.Time) Outcome {
	span := func() time.Duration { return time.Duration(w.rng.Int64N(int64(4 * time.Second))) }
	f := Outcome{RequestLatency: span(), ResponseLatency: span()}
	switch w.rng.IntN(5) {
	case 0:
		f.ResponseLost = true
	case 1:
		f.EffectDelay = span()
	case 2:
		f.ErrorBefore = &world.Error{Kind: world.KindInternal}
	case 3:
		f.ErrorAfter = &world.Error{Kind: world.KindInternal}
	}
	return f
}

// randomPort completes some calls at once, some later, some never.
type randomPort struct {
	rng     *rand.Rand
	effects int
}

func (p *randomPort) serve(c *Call) {
	if c.Outcome.ErrorBefore != nil {
		c.Fail(c.Outcome.ErrorBefore)
		return
	}
	done := func() {
		p.effects++
		if p.rng.IntN(10) > 0 {
			c.Reply(&world.Done{})
		}
	}
	if p.rng.IntN(2) == 0 {
		c.Execute(done)
		return
	}
	c.ContinueAfter(c.DurationBetween(time.Millisecond, 8*time.Second), func() {
		if !c.DrawsAbort() {
			done()
		}
	})
}

// TestEveryCallCompletesOnce sends calls in several incarnations, crashes the port, and checks the
// contract.
func TestEveryCallCompletesOnce(t *testing.T) {
	for seed := range uint64(100) {
		a := agenda.New(start, seed)
		w := New(Options{Agenda: a, Seed: seed, Faults: randomFaults{Stream(seed, "faults")}})
		p := &randomPort{rng: Stream(seed, "port")}
		for life := range 5 {
			runIncarnation(t, fmt.Sprintf("seed %d, life %d", seed, life), a, w, p)
		}
		for a.Run() {
		}
		if len(w.inFlight) != 0 || p.effects == 0 {
			t.Fatalf("seed %d: %d in flight, %d effects", seed, len(w.inFlight), p.effects)
		}
	}
}

func runIncarnation(t *testing.T, name string, a *agenda.Agenda, w *Wire, p *randomPort) {
	ended, completions := false, map[world.OpID]world.Event{}
	deadlines := map[world.OpID]time.Time{}
	w.Connect(func(ev world.Event) {
		_, duplicate := completions[ev.Op]
		completions[ev.Op] = ev
		switch {
		case ended:
			t.Fatalf("%s: a completion after its end", name)
		case duplicate:
			t.Fatalf("%s: operation %d completed twice", name, ev.Op)
		case ev.Time.After(deadlines[ev.Op]):
			t.Fatalf("%s: completed %v after the deadline", name, ev.Time.Sub(deadlines[ev.Op]))
		case (ev.Body == nil) == (ev.Err == nil) || ev.Err != nil && ev.Err.Op != "MakeDir":
			t.Fatalf("%s: %+v", name, ev)
		case ev.Err.Has(world.KindTimeout) && !ev.Time.Equal(deadlines[ev.Op]):
			t.Fatalf("%s: a timeout before the deadline", name)
		}
	})
	const calls = 50
	for op := world.OpID(1); op <= calls; op++ {
		a.After(time.Duration(p.rng.Int64N(int64(20*time.Second))), func() {
			deadlines[op] = a.Now().Add(10 * time.Second)
			w.Send(world.Effect{Op: op, Body: &world.MakeDir{Path: "/x"}, Deadline: deadlines[op]},
				p.serve)
		})
	}
	a.After(5*time.Second, func() { w.Crash(3 * time.Second) })
	waitForAll := p.rng.IntN(2) == 0
	duration := 15 * time.Second
	if waitForAll {
		duration = 40 * time.Second
	}
	a.After(duration, func() { ended = true })
	for !ended {
		a.Run()
	}
	if waitForAll && len(completions) != calls {
		t.Fatalf("%s: %d of %d calls completed", name, len(completions), calls)
	}
	for len(deadlines) < calls { // let the sender finish; no incarnation sends after its end
		ended = false
		a.Run()
	}
	ended = true
	w.Disconnect()
}

// A local port completes a call when it has ended, however late; a lost response is a timeout then.
func TestLocalPortCompletesWhenTheCallEnds(t *testing.T) {
	for _, c := range []struct {
		fate Outcome
		kind world.ErrorKind
		at   time.Duration
		done bool
	}{
		{Outcome{}, "", 0, true},
		{Outcome{EffectDelay: 20 * time.Second}, "", 20 * time.Second, true},
		{Outcome{ResponseLost: true}, world.KindTimeout, 10 * time.Second, true},
		{Outcome{ResponseLost: true, EffectDelay: time.Hour}, world.KindTimeout, time.Hour, true},
		{Outcome{RequestLatency: 20 * time.Second}, world.KindCanceled, 20 * time.Second, false},
	} {
		a, done := agenda.New(start, 1), false
		var got []world.Event
		w := New(Options{Agenda: a, Faults: sameOutcome(c.fate), Local: true,
			Deliver: func(ev world.Event) { got = append(got, ev) }})
		w.Send(world.Effect{Op: 1, Body: &world.MakeDir{}, Deadline: start.Add(10 * time.Second)},
			func(call *Call) {
				call.Execute(func() { done = true; call.Reply(&world.Done{}) })
			})
		for a.Run() {
		}
		if len(got) != 1 || got[0].Time.Sub(start) != c.at || done != c.done ||
			(got[0].Err == nil) != (c.kind == "") || c.kind != "" && !got[0].Err.Has(c.kind) {
			t.Errorf("%+v: done %t, completions %+v", c.fate, done, got)
		}
	}
}

// A canceled operation of a local port whose response is lost fails at once, and any other goes on.
func TestCancelLocal(t *testing.T) {
	for _, c := range []struct {
		fate Outcome
		at   time.Duration
		kind world.ErrorKind
	}{
		{Outcome{ResponseLost: true}, time.Second, world.KindUnavailable},
		{Outcome{ResponseLost: true, EffectDelay: 2 * time.Second}, 10 * time.Second,
			world.KindTimeout},
		{Outcome{ResponseLatency: 2 * time.Second}, 2 * time.Second, ""},
	} {
		a := agenda.New(start, 1)
		var got []world.Event
		w := New(Options{Agenda: a, Faults: sameOutcome(c.fate), Local: true,
			Deliver: func(ev world.Event) { got = append(got, ev) }})
		w.Send(world.Effect{Op: 1, Body: &world.MakeDir{}, Deadline: start.Add(10 * time.Second)},
			func(call *Call) {
				call.Execute(func() { call.Reply(&world.Done{}) })
			})
		a.After(time.Second, func() { w.Cancel(1) })
		for a.Run() {
		}
		if len(got) != 1 || got[0].Time.Sub(start) != c.at || c.kind != "" && !got[0].Err.Has(c.kind) {
			t.Errorf("%+v: completions %+v", c.fate, got)
		}
	}
}

// sameOutcome decides the same outcome for every call.
type sameOutcome Outcome

func (f sameOutcome) Decide(CallID, time.Time) Outcome { return Outcome(f) }

func TestDrawsDependOnlyOnTheCall(t *testing.T) {
	draw := func(before int) uint64 {
		a := agenda.New(start, 1)
		w := New(Options{Agenda: a, Seed: 1})
		for range before {
			w.Send(world.Effect{Op: 1, Body: &world.MakeDir{}, Deadline: start.Add(time.Hour)},
				func(c *Call) { c.Draw() })
		}
		var got uint64
		w.Send(world.Effect{Op: 2, Body: &world.RemoveTree{}, Deadline: start.Add(time.Hour)},
			func(c *Call) { got = c.Draw() })
		for got == 0 {
			a.Run()
		}
		return got
	}
	if draw(0) != draw(3) {
		t.Error("calls of another name changed the draws of a call")
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	if Stream(1, "a").Uint64() == Stream(1, "b").Uint64() ||
		Stream(1, "a").Uint64() == Stream(2, "a").Uint64() {
		t.Error("two streams are equal")
	}
	if Stream(1, "a").Uint64() != Stream(1, "a").Uint64() {
		t.Error("a stream is not reproducible")
	}
}
