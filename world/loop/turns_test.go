package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// What changes the agent's own files waits for what changes the same, or what is above or below
// it; what only looks does not, and neither does what goes somewhere else.
func TestOneChangeAtATimeOfATree(t *testing.T) {
	effect := func(op world.OpID, body any) world.Effect {
		return world.Effect{Op: op, Body: body, Deadline: t0.Add(time.Minute)}
	}
	l, _, fs := start(Limits{}, effect(1, &world.RemoveTree{Path: "/pods/a"}),
		effect(2, &world.MakeDir{Path: "/pods/a/logs/web"}),
		effect(3, &world.Rename{From: "/x", To: "/pods/a/logs/0"}),
		effect(4, &world.MakeDir{Path: "/pods/ab"}), effect(5, &world.ListDir{Path: "/pods/a"}),
		effect(6, &world.Unmount{Path: "/pods/a/logs/"}))
	if diff := cmp.Diff([]world.OpID{1, 4, 5}, begun(fs)); diff != "" {
		t.Fatalf("begun (-want +got):\n%s", diff)
	}
	l.Offer(world.Event{Op: 1, Body: &world.Done{}})
	l.Turn(t0)
	if diff := cmp.Diff([]world.OpID{1, 4, 5, 2, 3}, begun(fs)); diff != "" {
		t.Errorf("begun after the answer (-want +got):\n%s", diff)
	}
}

// What has been given up but not answered may still take effect: nothing is made there, nor taken
// for removed, before it has ended.
func TestARemovalThatWasGivenUpIsWaitedFor(t *testing.T) {
	removal := func(op world.OpID, deadline time.Duration) world.Effect {
		return world.Effect{Op: op, Body: &world.RemoveTree{Path: "/pods/a"},
			Deadline: t0.Add(deadline)}
	}
	l, core, fs := start(Limits{}, removal(1, 120e9))
	late := t0.Add(2 * time.Minute)
	core.effects = [][]world.Effect{{removal(2, 240e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	for l.Turn(late) {
	}
	if last := core.events[len(core.events)-1]; len(fs.did) != 1 || last.Op != 2 ||
		!last.Err.Has(world.KindUnavailable) {
		t.Fatalf("begun %v; the second removal ended with %+v", begun(fs), last)
	}
	l.Offer(world.Event{Op: 1, Err: world.Errorf(world.KindTimeout, "RemoveTree", "late")})
	l.Turn(late)
	core.effects = [][]world.Effect{{removal(3, 240e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	if l.Turn(late); len(fs.did) != 2 {
		t.Errorf("begun %v after the first has ended, want 3 as well", begun(fs))
	}
}

// Cgroups are in nobody's way but that of cgroups.
func TestCgroupsTakeTurns(t *testing.T) {
	set := placesOf(world.Effect{Body: &world.SetCgroup{Path: "kubepods/pod1"}})
	remove := placesOf(world.Effect{Body: &world.RemoveCgroup{Path: "kubepods/pod1"}})
	file := placesOf(world.Effect{Body: &world.MakeDir{Path: "kubepods/pod1"}})
	if !set.meet(remove) || file.meet(set) {
		t.Errorf("set %v, remove %v, file %v", set, remove, file)
	}
}

// Every call of the machine either changes something, and says where, or is known to only look.
func TestEveryCallHasItsPlace(t *testing.T) {
	looks := []string{"ReadFiles", "ReadTail", "ReadLinks", "ListDir", "StatPath", "MeasureTree",
		"Watch", "ListCgroups"}
	calls := 0
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, []byte(`{"path":"/x","from":"/x","target":"/x"}`))
		if err != nil || !ofTheMachine(body) {
			continue
		}
		calls++
		at := placesOf(world.Effect{Body: body})
		if slices.Contains(looks, name) != (at == places{}) {
			t.Errorf("%s is at %v", name, at)
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls were looked at", calls)
	}
}

func ofTheMachine(body any) (is bool) {
	defer func() { _ = recover() }() // what is no effect has no port
	port := world.PortOf(body)
	return port == world.PortFS || port == world.PortHost
}

// Whatever is asked for and answered, in any order: no path has two operations in flight, no lane
// more than its bound, and in the end everything has been answered once.
func TestTurnsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{}
		limits.Flying[LaneHostPath], limits.Flying[LaneFS] = 2, 2
		l, core, fs := start(limits)
		now, asked := t0, 0
		var flying []world.Effect
		note := func() {
			flying = append(flying, fs.did...)
			fs.did = nil
			lanes := map[Lane]int{}
			for i, eff := range flying {
				if lanes[LaneOf(eff)]++; lanes[LaneOf(eff)] > 2 {
					t.Fatalf("three operations are in flight in %s", LaneOf(eff))
				}
				if awaited(flying[:i], placesOf(eff)) {
					t.Fatalf("two operations are in flight at %v", placesOf(eff))
				}
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
			path := rapid.SampledFrom([]string{"/a", "/a/b", "/a/b/c", "/d"}).Draw(t, "path")
			eff := stat(world.OpID(asked), path, 0)
			if rapid.Bool().Draw(t, "own") {
				eff.Body, eff.HostPath = &world.RemoveTree{Path: path}, ""
			}
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
		if len(l.turns.held) != 0 || l.turns.waiting.len() != 0 {
			t.Errorf("left: %v", l.turns)
		}
	})
}
