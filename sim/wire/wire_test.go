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

// wild draws fates of every kind.
type wild struct{ rng *rand.Rand }

func (w wild) Fate(string, int, time.Time) Fate {
	span := func() time.Duration { return time.Duration(w.rng.Int64N(int64(4 * time.Second))) }
	f := Fate{Receive: span(), Answer: span()}
	switch w.rng.IntN(5) {
	case 0:
		f.Lost = true
	case 1:
		f.EffectDelay = span()
	case 2:
		f.Before = &world.Error{Kind: world.KindInternal}
	case 3:
		f.After = &world.Error{Kind: world.KindInternal}
	}
	return f
}

// port answers some calls at once, some later, some never.
type port struct {
	rng     *rand.Rand
	effects int
}

func (p *port) serve(c *Call) {
	if c.Fate.Before != nil {
		c.Fail(c.Fate.Before)
		return
	}
	done := func() {
		p.effects++
		if p.rng.IntN(10) > 0 {
			c.Reply(&world.Done{})
		}
	}
	if p.rng.IntN(2) == 0 {
		c.Begin(done)
		return
	}
	c.Work(c.Between(time.Millisecond, 8*time.Second), func() {
		if !c.GivesUp() {
			done()
		}
	})
}

// TestEveryCallIsAnsweredOnce sends calls in several lives, with breaks, and checks the contract.
func TestEveryCallIsAnsweredOnce(t *testing.T) {
	for seed := range uint64(100) {
		a := agenda.New(start, seed)
		w := New(Options{Agenda: a, Seed: seed, Faults: wild{Stream(seed, "faults")}})
		p := &port{rng: Stream(seed, "port")}
		for life := range 5 {
			runLife(t, fmt.Sprintf("seed %d, life %d", seed, life), a, w, p)
		}
		for a.Run() {
		}
		if len(w.flying) != 0 || p.effects == 0 {
			t.Fatalf("seed %d: %d in flight, %d effects", seed, len(w.flying), p.effects)
		}
	}
}

func runLife(t *testing.T, name string, a *agenda.Agenda, w *Wire, p *port) {
	ended, answers := false, map[world.OpID]world.Event{}
	deadlines := map[world.OpID]time.Time{}
	w.Connect(func(ev world.Event) {
		_, twice := answers[ev.Op]
		answers[ev.Op] = ev
		switch {
		case ended:
			t.Fatalf("%s: answered after its end", name)
		case twice:
			t.Fatalf("%s: operation %d answered twice", name, ev.Op)
		case ev.Time.After(deadlines[ev.Op]):
			t.Fatalf("%s: answered %v after the deadline", name, ev.Time.Sub(deadlines[ev.Op]))
		case (ev.Body == nil) == (ev.Err == nil) || ev.Err != nil && ev.Err.Op != "MakeDir":
			t.Fatalf("%s: %+v", name, ev)
		case ev.Err.Has(world.KindTimeout) && !ev.Time.Equal(deadlines[ev.Op]):
			t.Fatalf("%s: a timeout before its time", name)
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
	a.After(5*time.Second, func() { w.Break(3 * time.Second) })
	whole := p.rng.IntN(2) == 0
	lasts := 15 * time.Second
	if whole {
		lasts = 40 * time.Second
	}
	a.After(lasts, func() { ended = true })
	for !ended {
		a.Run()
	}
	if whole && len(answers) != calls {
		t.Fatalf("%s: %d of %d calls answered", name, len(answers), calls)
	}
	for len(deadlines) < calls { // let the sender finish; nobody sends in a life that has ended
		ended = false
		a.Run()
	}
	ended = true
	w.Disconnect()
}

// A local port answers when the call has ended, however late; a lost answer is a timeout then.
func TestALocalPortAnswersAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		fate Fate
		kind world.ErrorKind
		at   time.Duration
		done bool
	}{
		{Fate{}, "", 0, true},
		{Fate{EffectDelay: 20 * time.Second}, "", 20 * time.Second, true},
		{Fate{Lost: true}, world.KindTimeout, 10 * time.Second, true},
		{Fate{Lost: true, EffectDelay: time.Hour}, world.KindTimeout, time.Hour, true},
		{Fate{Receive: 20 * time.Second}, world.KindCanceled, 20 * time.Second, false},
	} {
		a, done := agenda.New(start, 1), false
		var got []world.Event
		w := New(Options{Agenda: a, Faults: always(c.fate), Local: true,
			Answer: func(ev world.Event) { got = append(got, ev) }})
		w.Send(world.Effect{Op: 1, Body: &world.MakeDir{}, Deadline: start.Add(10 * time.Second)},
			func(call *Call) {
				call.Begin(func() { done = true; call.Reply(&world.Done{}) })
			})
		for a.Run() {
		}
		if len(got) != 1 || got[0].Time.Sub(start) != c.at || done != c.done ||
			(got[0].Err == nil) != (c.kind == "") || c.kind != "" && !got[0].Err.Has(c.kind) {
			t.Errorf("%+v: done %t, answers %+v", c.fate, done, got)
		}
	}
}

// always is the fate of every call.
type always Fate

func (f always) Fate(string, int, time.Time) Fate { return Fate(f) }

func TestDrawsDependOnTheCallAlone(t *testing.T) {
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
		t.Error("calls of another name change what a call draws")
	}
}

func TestStreamsAreIndependent(t *testing.T) {
	if Stream(1, "a").Uint64() == Stream(1, "b").Uint64() ||
		Stream(1, "a").Uint64() == Stream(2, "a").Uint64() {
		t.Error("two streams begin alike")
	}
	if Stream(1, "a").Uint64() != Stream(1, "a").Uint64() {
		t.Error("a stream is not repeated")
	}
}
