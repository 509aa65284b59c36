package disk

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// A call on a path that hangs, directly or through a link, completes when the path no longer hangs
// and not before, even if its deadline passes. Calls on other paths do not wait.
func TestHungPathCompletesWhenItResumes(t *testing.T) {
	w := newWorld(1, nil)
	w.Call(&world.MakeDir{Path: "/mnt/dead/a", Mode: 0o755})
	w.disk.Link("/srv/link", "/mnt/dead")
	w.disk.Hang("/mnt/dead")
	w.disk.Hang("/mnt/dead/")
	for _, body := range []any{
		&world.StatPath{Path: "/mnt/dead"}, &world.StatPath{Path: "/srv/link"},
		&world.MakeDir{Path: "/mnt/dead/b"}, &world.MakeFile{Path: "/srv/link/f"},
		&world.BindSubPath{Root: "/mnt", SubPath: "dead/a", Target: "/pods/a"},
	} {
		w.Begin(body)
	}
	for _, body := range []any{&world.StatPath{Path: "/mnt"}, &world.MakeDir{Path: "/mnt/deadly"}} {
		if _, err := w.Call(body); err != nil {
			t.Error(err)
		}
	}
	before := len(w.completions)
	w.Sleep(10 * time.Minute)
	if w.disk.Resume("/mnt/dead"); len(w.completions) != before {
		t.Fatalf("%d calls completed while the path hung", len(w.completions)-before)
	}
	w.disk.Resume("/mnt/dead")
	w.Sleep(time.Second)
	if got := len(w.completions) - before; got != 5 || len(w.disk.stuck) != 0 {
		t.Errorf("%d calls completed after the path resumed, want 5", got)
	}
	for op, ev := range w.completions {
		if ev.Err != nil && !ev.Err.Has(world.KindTimeout) {
			t.Errorf("operation %d: %v", op, ev.Err)
		}
	}
}

// A stuck call of a dead agent has no effect when its path no longer hangs.
func TestHungCallDiesWithTheAgent(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Hang("/mnt")
	w.Begin(&world.MakeDir{Path: "/mnt/a"})
	w.Sleep(time.Second)
	w.disk.Disconnect()
	w.disk.Connect(w.deliver)
	w.disk.ResumeAll()
	w.Sleep(time.Second)
	if w.disk.Exists("/mnt/a") || len(w.completions) != 0 || len(w.disk.stuck) != 0 {
		t.Errorf("a call of a dead agent had an effect; completions %v", w.completions)
	}
}
