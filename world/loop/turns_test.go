package loop

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"seedlet.dev/world"
)

func stat(op world.OpID, path string, deadline time.Duration) world.Effect {
	return world.Effect{Op: op, Body: &world.StatPath{Path: path}, HostPath: path,
		Deadline: t0.Add(deadline)}
}

// start has a core ask for effects at once, of ports that note what is begun.
func start(limits Limits, effects ...world.Effect) (*Loop, *script, *port) {
	core, fs := &script{effects: [][]world.Effect{effects}}, &port{}
	l := New(Options{Core: core, Limits: limits,
		Ports: map[world.PortName]world.Port{world.PortFS: fs}})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	return l, core, fs
}

func begun(p *port) []world.OpID {
	var ops []world.OpID
	for _, eff := range p.did {
		ops = append(ops, eff.Op)
	}
	return ops
}

// One operation at a time is begun at a path of a pod's choice; other paths do not wait for it,
// and neither does what is the agent's own.
func TestOneAtATimeAtAHostPath(t *testing.T) {
	own := stat(4, "/dead", 60e9)
	own.HostPath = ""
	l, _, fs := start(Limits{}, stat(1, "/dead", 60e9), stat(2, "/dead", 60e9),
		stat(3, "/well", 60e9), own)
	if got := begun(fs); len(got) != 3 || got[1] != 3 || got[2] != 4 {
		t.Fatalf("begun %v, want 1, 3 and 4", got)
	}
	l.Offer(world.Event{Op: 1, Body: &world.PathInfo{}})
	l.Turn(t0)
	if got := begun(fs); len(got) != 4 || got[3] != 2 {
		t.Errorf("begun %v after the answer, want 2 as well", got)
	}
}

// What waits for an operation that was not answered in time fails when that is known, and what
// comes later at once, until the answer is there.
func TestAnUnansweredOperationFailsOthersAtItsPath(t *testing.T) {
	l, core, fs := start(Limits{}, stat(1, "/dead", 60e9), stat(2, "/dead", 90e9))
	end := t0.Add(time.Minute)
	if !l.Wake().Equal(end) {
		t.Fatalf("wakes at %v, want %v", l.Wake(), end)
	}
	core.effects = [][]world.Effect{{stat(3, "/dead", 150e9)}}
	for l.Turn(end) {
	}
	if len(core.events) != 3 || len(fs.did) != 1 {
		t.Fatalf("events %+v, begun %v; want two failures", core.events, begun(fs))
	}
	for i, ev := range core.events[1:] {
		if ev.Op != world.OpID(i+2) || !ev.Err.Has(world.KindUnavailable) ||
			ev.Err.Message != "an earlier operation on /dead has not been answered" {
			t.Errorf("operation %d ended with %v", ev.Op, ev.Err)
		}
	}
	core.effects = [][]world.Effect{{stat(4, "/dead", 200e9)}}
	l.Offer(world.Event{Op: 1, Body: &world.PathInfo{}})
	l.Turn(end)
	if got := begun(fs); len(got) != 1 {
		t.Fatalf("begun %v before the place was free", got)
	}
	for l.Turn(end) {
	}
	core.effects = [][]world.Effect{{stat(5, "/dead", 200e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	l.Turn(end)
	if got := begun(fs); len(got) != 2 || got[1] != 5 {
		t.Errorf("begun %v, want 5 once 1 was answered", got)
	}
}

// Whatever is asked for and answered, in any order: no path has two operations in flight, no lane
// more than its bound, and in the end everything has been answered once.
func TestTurnsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{}
		limits.Flying[LaneHostPath] = 2
		l, core, fs := start(limits)
		now, asked := t0, 0
		var flying []world.Effect
		note := func() {
			flying = append(flying, fs.did...)
			fs.did = nil
			at := map[string]bool{}
			for _, eff := range flying {
				if at[eff.HostPath] {
					t.Fatalf("two operations are in flight at %s", eff.HostPath)
				}
				at[eff.HostPath] = true
			}
			if len(flying) > 2 {
				t.Fatalf("%d operations are in flight", len(flying))
			}
		}
		answer := func(i int) {
			l.Offer(world.Event{Op: flying[i].Op, Body: &world.PathInfo{}})
			flying = append(flying[:i], flying[i+1:]...)
			for l.Turn(now) {
			}
			note()
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "later")) * time.Second)
			if len(flying) > 0 && rapid.Bool().Draw(t, "answer") {
				answer(rapid.IntRange(0, len(flying)-1).Draw(t, "which"))
				continue
			}
			asked++
			path := rapid.SampledFrom([]string{"/a", "/b", "/c"}).Draw(t, "path")
			eff := stat(world.OpID(asked), path, 0)
			eff.Deadline = now.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "s")) * time.Second)
			core.effects = [][]world.Effect{{eff}}
			l.Offer(world.Event{Body: &world.FileChanged{}})
			for l.Turn(now) {
			}
			note()
		}
		for len(flying) > 0 {
			answer(0)
		}
		ended := map[world.OpID]int{}
		for _, ev := range core.events {
			ended[ev.Op]++
		}
		for op := 1; op <= asked; op++ {
			if ended[world.OpID(op)] != 1 {
				t.Errorf("operation %d ended %d times", op, ended[world.OpID(op)])
			}
		}
		if len(l.turns.holders) != 0 || l.turns.waiting.len() != 0 {
			t.Errorf("left: %v", l.turns)
		}
	})
}
