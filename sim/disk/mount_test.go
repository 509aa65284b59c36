package disk

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"seedlet.dev/world"
)

// mustCall carries out an operation that must succeed.
func (w *simWorld) mustCall(t *testing.T, body any) {
	t.Helper()
	if _, err := w.Call(body); err != nil {
		t.Fatal(err)
	}
}

// fails carries out an operation that must fail with an error of the given kind.
func (w *simWorld) fails(t *testing.T, body any, kind world.ErrorKind) {
	t.Helper()
	if _, err := w.Call(body); !err.Has(kind) {
		t.Errorf("%s: got %v, want %s", world.CallName(body), err, kind)
	}
}

func (w *simWorld) wantFile(t *testing.T, p, want string) {
	t.Helper()
	if data, ok := w.disk.Read(p); !ok || string(data) != want {
		t.Errorf("%s has %q (%v), want %q", p, data, ok, want)
	}
}

func (w *simWorld) wantFacts(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.facts, want) {
		t.Errorf("facts %q,\nwant %q", w.facts, want)
	}
	w.facts = nil
}

func TestMountHidesItsMountPoint(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/v/below", []byte("old"))
	w.facts = nil
	for range 2 {
		w.mustCall(t, &world.MountMemory{Path: "/v", Mode: 0o1777})
	}
	if w.disk.Exists("/v/below") {
		t.Error("a covered file is visible")
	}
	w.disk.Write("/v/new", []byte("new"))
	w.fails(t, &world.RemoveTree{Path: "/v"}, world.KindRefused)
	w.fails(t, &world.RemoveTree{Path: "/"}, world.KindRefused)
	w.mustCall(t, &world.RemoveTree{Path: "/v/new"})
	for range 2 {
		w.mustCall(t, &world.Unmount{Path: "/v"})
	}
	w.wantFile(t, "/v/below", "old")
	w.mustCall(t, &world.RemoveTree{Path: "/v"})
	w.wantFacts(t, "Mounted /v", "PathWritten /v/new user", "PathRemoved /v/new", "Unmounted /v",
		"PathRemoved /v")
}

func TestBindMountIsItsSource(t *testing.T) {
	w := newWorld(1, nil)
	bind := &world.BindSubPath{Root: "/v", SubPath: "a/b", Target: "/sub/0"}
	w.fails(t, bind, world.KindNotFound)
	w.disk.CreateSpecial("/v", world.PathDirectory)
	for range 2 {
		w.mustCall(t, bind)
	}
	if got := w.disk.Mounts(); !slices.Equal(got, []string{"/sub/0"}) {
		t.Fatalf("mounts %q", got)
	}
	w.disk.Write("/sub/0/file", []byte("x"))
	w.wantFile(t, "/v/a/b/file", "x")
	w.fails(t, &world.Rename{From: "/sub/0/file", To: "/v/file"}, world.KindInvalid)
	w.mustCall(t, &world.RemoveTree{Path: "/v"})
	w.wantFile(t, "/sub/0/file", "x")
	w.mustCall(t, &world.Unmount{Path: "/sub"})
	if w.disk.Exists("/sub/0/file") {
		t.Error("the source is visible after the unmount")
	}
}

func TestBindMountOfAFile(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/v/conf", []byte("one"))
	w.mustCall(t, &world.BindSubPath{Root: "/v", SubPath: "conf", Target: "/sub/0"})
	w.wantFile(t, "/sub/0", "one")
	w.disk.Open("/sub/0").Write([]byte("two"))
	w.wantFile(t, "/v/conf", "two")
	w.disk.Write("/v/conf", []byte("three")) // a new file takes the name
	w.wantFile(t, "/sub/0", "two")
	w.mustCall(t, &world.BindSubPath{Root: "/v", SubPath: "conf", Target: "/sub/0"})
	w.wantFile(t, "/sub/0", "three")
	w.fails(t, &world.WriteFile{Path: "/sub/0", Data: []byte("x")}, world.KindInternal)
}

func TestBindMountNeverLeavesTheVolume(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/etc/shadow", nil)
	w.disk.Link("/v/abs", "/etc")
	w.disk.Link("/v/up", "..")
	w.disk.Link("/v/dangling", "nowhere")
	for _, sub := range []string{"abs", "abs/shadow", "up/etc", "dangling", "dangling/x", "..",
		"../etc", "a/../../etc", "/etc"} {
		w.fails(t, &world.BindSubPath{Root: "/v", SubPath: sub, Target: "/sub/0"},
			world.KindInvalid)
	}
	if len(w.disk.Mounts()) != 0 || w.disk.Exists("/sub") || w.disk.Exists("/v/nowhere") {
		t.Errorf("mounts %q, paths %q", w.disk.Mounts(), w.disk.Walk())
	}
}

func TestCircularBindMounts(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/a/file", []byte("a"))
	w.disk.Write("/b/file", []byte("b"))
	w.mustCall(t, &world.BindSubPath{Root: "/", SubPath: "a", Target: "/b"})
	w.mustCall(t, &world.BindSubPath{Root: "/", SubPath: "b", Target: "/a"})
	w.wantFile(t, "/a/file", "a")
	w.wantFile(t, "/b/file", "a")
	w.mustCall(t, &world.Unmount{Path: "/"})
	w.wantFile(t, "/a/file", "a")
	w.wantFile(t, "/b/file", "b")
}

func TestNestedMounts(t *testing.T) {
	w := newWorld(1, nil)
	w.mustCall(t, &world.MountMemory{Path: "/pod/v", Mode: 0o777})
	w.disk.Write("/pod/v/deep/file", []byte("x"))
	w.mustCall(t, &world.MountMemory{Path: "/pod/v/deep", Mode: 0o777})
	w.disk.Write("/pod/v/deep/other", nil)
	w.mustCall(t, &world.Unmount{Path: "/pod/v/deep"})
	w.wantFile(t, "/pod/v/deep/file", "x")
	w.mustCall(t, &world.MountMemory{Path: "/pod/v/deep", Mode: 0o777})
	w.facts = nil
	w.mustCall(t, &world.Unmount{Path: "/pod"})
	w.wantFacts(t, "Unmounted /pod/v/deep", "Unmounted /pod/v")
}

func TestPowerLossDropsMounts(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, nil)
		w.disk.Write("/v/below", []byte("old"))
		w.mustCall(t, &world.MountMemory{Path: "/v/memory", Mode: 0o777})
		w.disk.Write("/v/memory/secret", []byte("x"))
		w.mustCall(t, &world.BindSubPath{Root: "/v", SubPath: ".", Target: "/sub/0"})
		w.Sleep(time.Minute)
		w.facts = nil
		w.disk.LosePower()
		w.wantFacts(t, "Unmounted /v/memory reboot", "Unmounted /sub/0 reboot", "PowerLost")
		if len(w.disk.Mounts()) != 0 || len(w.disk.List("/v/memory")) != 0 ||
			len(w.disk.List("/sub/0")) != 0 {
			t.Fatalf("seed %d: %q", seed, w.disk.Walk())
		}
		w.wantFile(t, "/v/below", "old")
		w.mustCall(t, &world.RemoveTree{Path: "/v"})
	}
}

func TestFullDiskLeavesMemoryFree(t *testing.T) {
	w := newWorld(1, nil)
	w.mustCall(t, &world.MountMemory{Path: "/v", Mode: 0o777})
	w.disk.CreateSpecial("/dir", world.PathDirectory)
	w.disk.SetFull(true)
	w.mustCall(t, &world.WriteFile{Path: "/v/file", Data: []byte("x"), Mode: 0o644})
	w.mustCall(t, &world.WriteDir{Path: "/v/dir", Files: []world.DirFile{{Path: "a"}}})
	w.mustCall(t, &world.MountMemory{Path: "/dir", Mode: 0o777})
	w.mustCall(t, &world.Unmount{Path: "/dir"})
	file := []world.DirFile{{Path: "a"}}
	for _, body := range []any{
		&world.MakeFile{Path: "/dir/a"}, &world.MakeLink{Path: "/dir/a", Target: "b"},
		&world.WriteDir{Path: "/dir", Files: file}, &world.MountMemory{Path: "/new"},
		&world.BindSubPath{Root: "/dir", SubPath: "a", Target: "/v/sub"},
		&world.BindSubPath{Root: "/v", SubPath: "file", Target: "/dir/sub"},
	} {
		w.fails(t, body, world.KindExhausted)
	}
	if n := len(w.disk.List("/dir")); n != 0 {
		t.Errorf("%d files were created on a full disk", n)
	}
}

// An agent that dies leaves operations half done, and each of them can be repeated.
func TestKilledAgentLeavesWorkHalfDone(t *testing.T) {
	states := map[string]bool{}
	for seed := range uint64(60) {
		w := newWorld(seed, nil)
		w.disk.Write("/logs/log", []byte("text"))
		w.disk.CreateSpecial("/v", world.PathDirectory)
		w.mustCall(t, &world.WriteDir{Path: "/d", Files: []world.DirFile{{Path: "f", Data: []byte("1")}}})
		work := []any{
			&world.BindSubPath{Root: "/v", SubPath: "s", Target: "/sub"},
			&world.MountMemory{Path: "/m"}, &world.Compress{Path: "/logs/log"},
			&world.WriteDir{Path: "/d", Files: []world.DirFile{{Path: "f", Data: []byte("2")}}},
		}
		for _, body := range work {
			w.Begin(body)
		}
		w.Sleep(time.Duration(seed) * 200 * time.Microsecond)
		w.disk.Disconnect()
		w.Sleep(time.Minute)
		data, _ := w.disk.Read("/d/f")
		states[fmt.Sprint("logs ", w.disk.List("/logs"))] = true
		states[fmt.Sprint("file ", string(data), " of ", len(w.disk.List("/d")))] = true
		bound := slices.Contains(w.disk.Mounts(), "/sub")
		states[fmt.Sprint("sub ", w.disk.Exists("/sub"), " ", bound)] = true
		w.disk.Connect(w.deliver)
		for _, body := range work {
			w.mustCall(t, body)
		}
		w.wantFile(t, "/d/f", "2")
		if got := w.disk.List("/d"); len(got) != 3 || w.disk.Exists("/logs/log") ||
			!w.disk.Exists("/logs/log.gz") || len(w.disk.Mounts()) != 2 {
			t.Fatalf("seed %d: %q, mounts %q", seed, w.disk.Walk(), w.disk.Mounts())
		}
	}
	for _, want := range []string{"logs [log]", "logs [log log.gz.tmp]", "logs [log log.gz]",
		"logs [log.gz]", "file 1 of 3", "file 1 of 4",
		"file 2 of 3", "sub true false", "sub true true"} {
		if !states[want] {
			t.Errorf("state %q never occurred; states %v", want, states)
		}
	}
}

func TestFaultsOfMounts(t *testing.T) {
	refused := world.Errorf(world.KindInternal, "", "by the test")
	w := newWorld(1, outcomes{"MountMemory": {ErrorBefore: refused}, "Unmount": {ErrorAfter: refused}})
	w.fails(t, &world.MountMemory{Path: "/m"}, world.KindInternal)
	if w.disk.Exists("/m") {
		t.Error("a call that failed before its effect had an effect")
	}
	w = newWorld(1, outcomes{"MountMemory": {ResponseLost: true}, "Unmount": {ErrorAfter: refused}})
	w.fails(t, &world.MountMemory{Path: "/m"}, world.KindTimeout)
	if len(w.disk.Mounts()) != 1 {
		t.Error("a call with a lost response had no effect")
	}
	w.fails(t, &world.Unmount{Path: "/m"}, world.KindInternal)
	if len(w.disk.Mounts()) != 0 {
		t.Error("a call that failed after its effect had none")
	}
}

// An operation that takes longer than its deadline completes when it has ended, finished or
// aborted, and not before.
func TestCallCompletesWhenItEnds(t *testing.T) {
	done := 0
	for seed := range uint64(20) {
		w := newWorld(seed, outcomes{"MountMemory": {EffectDelay: time.Hour}})
		w.Begin(&world.MountMemory{Path: "/m"})
		w.Sleep(59 * time.Minute)
		if w.disk.Exists("/m") || len(w.completions) != 0 {
			t.Fatalf("seed %d: started %t, completions %v", seed, w.disk.Exists("/m"), w.completions)
		}
		w.Sleep(2 * time.Minute)
		ev, completed := w.completions[w.ops]
		if mounted := len(w.disk.Mounts()) == 1; !completed || mounted != (ev.Err == nil) ||
			ev.Err != nil && !ev.Err.Has(world.KindTimeout) {
			t.Fatalf("seed %d: completed %t with %v, mounts %v", seed, completed, ev.Err,
				w.disk.Mounts())
		}
		if ev.Err == nil {
			done++
		}
	}
	if done == 0 || done == 20 {
		t.Errorf("%d of 20 calls succeeded", done)
	}
}
