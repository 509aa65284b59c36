package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"seedlet.dev/world"
)

func statHostPath(op world.OpID, path string, deadline time.Duration) world.Effect {
	return world.Effect{Op: op, Body: &world.StatPath{Path: path}, HostPath: path,
		Deadline: t0.Add(deadline)}
}

// runEffects runs a core that issues the effects in one step, and ports that record what is
// started.
func runEffects(limits Limits, effects ...world.Effect) (*Loop, *scriptedCore, *recordingPort) {
	core, fs := &scriptedCore{effects: [][]world.Effect{effects}}, &recordingPort{}
	l := New(Options{Core: core, Limits: limits,
		Ports: map[world.PortName]world.Port{world.PortFS: fs}})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	return l, core, fs
}

func startedOps(p *recordingPort) []world.OpID {
	var ops []world.OpID
	for _, eff := range p.started {
		ops = append(ops, eff.Op)
	}
	return ops
}

// One operation at a time is started on a host path. Operations on other paths, and on the agent's
// own files, do not wait for it.
func TestOneOperationAtATimePerHostPath(t *testing.T) {
	agentFile := statHostPath(4, "/dead", 60e9)
	agentFile.HostPath = ""
	l, _, fs := runEffects(Limits{}, statHostPath(1, "/dead", 60e9), statHostPath(2, "/dead", 60e9),
		statHostPath(3, "/well", 60e9), agentFile)
	if got := startedOps(fs); len(got) != 3 || got[1] != 3 || got[2] != 4 {
		t.Fatalf("started %v, want 1, 3 and 4", got)
	}
	l.Offer(world.Event{Op: 1, Body: &world.PathInfo{}})
	l.Turn(t0)
	if got := startedOps(fs); len(got) != 4 || got[3] != 2 {
		t.Errorf("started %v after the completion, want 2 as well", got)
	}
}

// A file system of the node is measured whatever a pod does at its path, and once at a time.
func TestHostPathOfPodDelaysNoMeasurement(t *testing.T) {
	measure := func(op world.OpID) world.Effect {
		return world.Effect{Op: op, Body: &world.MeasureFilesystem{Path: "/node"},
			Deadline: t0.Add(time.Minute)}
	}
	_, _, fs := runEffects(Limits{}, statHostPath(1, "/node", 60e9), measure(2), measure(3))
	if diff := cmp.Diff([]world.OpID{1, 2}, startedOps(fs)); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
}

// Operations that wait for an overdue operation fail at its deadline. Later operations fail at
// once, until the overdue operation completes.
func TestOverdueOperationFailsOthersAtItsPath(t *testing.T) {
	l, core, fs := runEffects(Limits{}, statHostPath(1, "/dead", 60e9), statHostPath(2, "/dead", 90e9))
	end := t0.Add(time.Minute)
	if !l.NextWake().Equal(end) {
		t.Fatalf("wakes at %v, want %v", l.NextWake(), end)
	}
	core.effects = [][]world.Effect{{statHostPath(3, "/dead", 150e9)}}
	for l.Turn(end) {
	}
	if len(core.events) != 3 || len(fs.started) != 1 {
		t.Fatalf("events %+v, started %v; want two failures", core.events, startedOps(fs))
	}
	for i, ev := range core.events[1:] {
		if ev.Op != world.OpID(i+2) || !ev.Err.Has(world.KindUnavailable) ||
			ev.Err.Message != "an earlier operation on /dead has not been answered" {
			t.Errorf("operation %d completed with %v", ev.Op, ev.Err)
		}
	}
	core.effects = [][]world.Effect{{statHostPath(4, "/dead", 200e9)}}
	l.Offer(world.Event{Op: 1, Body: &world.PathInfo{}})
	l.Turn(end)
	if got := startedOps(fs); len(got) != 1 {
		t.Fatalf("started %v before the path was free", got)
	}
	for l.Turn(end) {
	}
	core.effects = [][]world.Effect{{statHostPath(5, "/dead", 200e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	l.Turn(end)
	if got := startedOps(fs); len(got) != 2 || got[1] != 5 {
		t.Errorf("started %v, want 5 after the completion of 1", got)
	}
}

// An operation that changes the agent's files waits for one that changes the same path, or a path
// above or below it. Reads and changes of other paths do not wait.
func TestOneChangeAtATimePerTree(t *testing.T) {
	effect := func(op world.OpID, body any) world.Effect {
		return world.Effect{Op: op, Body: body, Deadline: t0.Add(time.Minute)}
	}
	l, _, fs := runEffects(Limits{}, effect(1, &world.RemoveTree{Path: "/pods/a"}),
		effect(2, &world.MakeDir{Path: "/pods/a/logs/web"}),
		effect(3, &world.Rename{From: "/x", To: "/pods/a/logs/0"}),
		effect(4, &world.MakeDir{Path: "/pods/ab"}), effect(5, &world.ListDir{Path: "/pods/a"}),
		effect(6, &world.Unmount{Path: "/pods/a/logs/"}))
	if diff := cmp.Diff([]world.OpID{1, 4, 5}, startedOps(fs)); diff != "" {
		t.Fatalf("started (-want +got):\n%s", diff)
	}
	l.Offer(world.Event{Op: 1, Body: &world.Done{}})
	l.Turn(t0)
	if diff := cmp.Diff([]world.OpID{1, 4, 5, 2, 3}, startedOps(fs)); diff != "" {
		t.Errorf("started after the completion (-want +got):\n%s", diff)
	}
}

// A removal without a completion may still take effect after its deadline. No other operation is
// started on its path before it completes.
func TestTimedOutRemovalStillHoldsItsPath(t *testing.T) {
	removal := func(op world.OpID, deadline time.Duration) world.Effect {
		return world.Effect{Op: op, Body: &world.RemoveTree{Path: "/pods/a"},
			Deadline: t0.Add(deadline)}
	}
	l, core, fs := runEffects(Limits{}, removal(1, 120e9))
	late := t0.Add(2 * time.Minute)
	core.effects = [][]world.Effect{{removal(2, 240e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	for l.Turn(late) {
	}
	if last := core.events[len(core.events)-1]; len(fs.started) != 1 || last.Op != 2 ||
		!last.Err.Has(world.KindUnavailable) {
		t.Fatalf("started %v; the second removal completed with %+v", startedOps(fs), last)
	}
	l.Offer(world.Event{Op: 1, Err: world.Errorf(world.KindTimeout, "RemoveTree", "late")})
	l.Turn(late)
	core.effects = [][]world.Effect{{removal(3, 240e9)}}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	if l.Turn(late); len(fs.started) != 2 {
		t.Errorf("started %v after the first has completed, want 3 as well", startedOps(fs))
	}
}

// A cgroup path conflicts only with cgroup paths.
func TestCgroupsConflictOnlyWithCgroups(t *testing.T) {
	set := pathsToLock(world.Effect{Body: &world.SetCgroup{Path: "kubepods/pod1"}})
	remove := pathsToLock(world.Effect{Body: &world.RemoveCgroup{Path: "kubepods/pod1"}})
	file := pathsToLock(world.Effect{Body: &world.MakeDir{Path: "kubepods/pod1"}})
	if !set.conflictsWith(remove) || file.conflictsWith(set) {
		t.Errorf("set %v, remove %v, file %v", set, remove, file)
	}
}

// A pod whose cgroup cannot be removed, or set, does not delay the cgroups above it and those of
// other pods. What is below a removed cgroup waits.
func TestCgroupOfOnePodDelaysNoOther(t *testing.T) {
	effect := func(op world.OpID, body any) world.Effect {
		return world.Effect{Op: op, Body: body, Deadline: t0.Add(time.Minute)}
	}
	host := &recordingPort{}
	core := &scriptedCore{effects: [][]world.Effect{{
		effect(1, &world.RemoveCgroup{Path: "kubepods/burstable/pod1"}),
		effect(2, &world.SetCgroup{Path: "kubepods/burstable/pod2"}),
		effect(3, &world.SetCgroup{Path: "kubepods/burstable"}),
		effect(4, &world.SetCgroup{Path: "kubepods"}),
		effect(5, &world.SetCgroup{Path: "kubepods/burstable/pod3"}),
		effect(6, &world.SetCgroup{Path: "kubepods/burstable/pod1"}),
		effect(7, &world.SetCgroup{Path: "kubepods/burstable/pod1/below"}),
		effect(8, &world.RemoveCgroup{Path: "kubepods/burstable"}),
	}}}
	l := New(Options{Core: core, Ports: map[world.PortName]world.Port{world.PortHost: host}})
	l.Offer(world.Event{Body: &world.Boot{}})
	l.Turn(t0)
	if diff := cmp.Diff([]world.OpID{1, 2, 3, 4, 5}, startedOps(host)); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
}

// A mount of a path that may hang locks its mount point, too: nothing is removed there meanwhile.
func TestMountOfHostPathLocksBoth(t *testing.T) {
	mount := pathsToLock(world.Effect{HostPath: "/mnt/a", Body: &world.BindMount{Source: "/mnt/a",
		Path: "/pods/p/volumes/v"}})
	other := pathsToLock(world.Effect{HostPath: "/mnt/a", Body: &world.BindMount{Source: "/mnt/a",
		Path: "/pods/q/volumes/v"}})
	remove := pathsToLock(world.Effect{Body: &world.RemoveTree{Path: "/pods/p"}})
	stat := pathsToLock(world.Effect{HostPath: "/mnt/a", Body: &world.StatPath{Path: "/mnt/a"}})
	hold := pathsToLock(world.Effect{HostPath: "/dev/a", Body: &world.HoldDevice{Path: "/bound/a"}})
	unmount := pathsToLock(world.Effect{Body: &world.Unmount{Path: "/bound/a"}})
	if !hold.conflictsWith(unmount) || hold.conflictsWith(remove) {
		t.Errorf("a device that is kept open: %v, unmount %v", hold, unmount)
	}
	if !mount.conflictsWith(remove) || !mount.conflictsWith(other) || !stat.conflictsWith(mount) ||
		other.conflictsWith(remove) {
		t.Errorf("mount %v, other %v, remove %v, stat %v", mount, other, remove, stat)
	}
}

// Every operation of the file system and host ports either locks a path, or is listed as a
// read or as one about no path.
func TestEveryFileAndCgroupCallIsClassified(t *testing.T) {
	withoutPath := []string{"ReadFiles", "ReadTail", "ReadLinks", "ListDir", "StatPath",
		"MeasureTree", "MeasureTrees", "MeasureFiles", "MeasureDevice", "Watch", "ListCgroups",
		"ReadMachine", "ReadInVolume", "MeasureNode", "DelayShutdown", "PermitShutdown",
		"ListMounts", "MakeKey"}
	calls := 0
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, []byte(`{"path":"/x","from":"/x","target":"/x"}`))
		if err != nil || !isHostOperation(body) {
			continue
		}
		calls++
		paths := pathsToLock(world.Effect{Body: body})
		if slices.Contains(withoutPath, name) != (paths == lockedPaths{}) {
			t.Errorf("%s locks %v", name, paths)
		}
	}
	if calls < 20 {
		t.Errorf("only %d operations were checked", calls)
	}
}

func isHostOperation(body any) (result bool) {
	defer func() { _ = recover() }() // PortOf panics for a body that is not an effect
	port := world.PortOf(body)
	return port == world.PortFS || port == world.PortHost
}

// checkNextWake compares when the loop wakes for operations that wait with what they wait for.
func checkNextWake(t *rapid.T, l *Loop) {
	var want time.Time
	for _, eff := range l.locks.waiting.all() {
		want = earliest(want, eff.Deadline)
		for _, h := range l.locks.held {
			if h.paths.conflictsWith(pathsToLock(eff)) {
				want = earliest(want, h.deadline)
			}
		}
	}
	if got := l.locks.nextWake(); !got.Equal(want) {
		t.Fatalf("those that wait wake at %v, want %v", got, want)
	}
}

// For operations and completions in any order: no path has two operations in flight, no lane
// exceeds its limit by more than what replaces hung operations, and in the end every operation has
// completed exactly once.
func TestPathLocksUnderRandomOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{}
		limits.InFlight[LaneHostPath], limits.InFlight[LaneRemove] = 2, 2
		l, core, fs := runEffects(limits)
		now, issued := t0, 0
		var inFlight []world.Effect
		recordStarted := func() {
			inFlight = append(inFlight, fs.started...)
			fs.started = nil
			checkNextWake(t, l)
			lanes, hung := map[Lane]int{}, map[Lane]int{}
			for i, eff := range inFlight {
				lanes[LaneOf(eff)]++
				if !now.Before(eff.Deadline) {
					hung[LaneOf(eff)]++
				}
				if conflictsWithAny(inFlight[:i], pathsToLock(eff)) {
					t.Fatalf("two operations are in flight at %v", pathsToLock(eff))
				}
			}
			for lane, count := range lanes {
				if count > 2+min(hung[lane], 2) {
					t.Fatalf("%d operations are in flight in %s, %d of them hung", count, lane, hung[lane])
				}
			}
		}
		complete := func(i int) {
			l.Offer(world.Event{Op: inFlight[i].Op, Body: &world.PathInfo{}})
			inFlight = append(inFlight[:i], inFlight[i+1:]...)
			for l.Turn(now) {
			}
			recordStarted()
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second)
			if len(inFlight) > 0 && rapid.Bool().Draw(t, "complete") {
				complete(rapid.IntRange(0, len(inFlight)-1).Draw(t, "index"))
				continue
			}
			issued++
			path := rapid.SampledFrom([]string{"/a", "/a/b", "/a/b/c", "/d"}).Draw(t, "path")
			eff := statHostPath(world.OpID(issued), path, 0)
			if rapid.Bool().Draw(t, "own") {
				eff.Body, eff.HostPath = &world.RemoveTree{Path: path}, ""
			}
			eff.Deadline = now.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "s")) * time.Second)
			core.effects = [][]world.Effect{{eff}}
			l.Offer(world.Event{Body: &world.FileChanged{}})
			for l.Turn(now) {
			}
			recordStarted()
		}
		for len(inFlight) > 0 {
			complete(0)
		}
		completions := map[world.OpID]int{}
		for _, ev := range core.events {
			completions[ev.Op]++
		}
		for op := 1; op <= issued; op++ {
			if completions[world.OpID(op)] != 1 {
				t.Errorf("operation %d completed %d times", op, completions[world.OpID(op)])
			}
		}
		if len(l.locks.held) != 0 || l.locks.waiting.len() != 0 {
			t.Errorf("locks left at the end: %v", l.locks)
		}
	})
}
