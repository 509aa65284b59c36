package disk

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// What goes to a path that hangs, by whichever way, is answered when it goes on and not before,
// its deadline passes or not. Nothing else waits.
func TestAPathHangs(t *testing.T) {
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
	before := len(w.answers)
	w.Sleep(10 * time.Minute)
	if w.disk.GoOn("/mnt/dead"); len(w.answers) != before {
		t.Fatalf("%d calls were answered while it hung", len(w.answers)-before)
	}
	w.disk.GoOn("/mnt/dead")
	w.Sleep(time.Second)
	if got := len(w.answers) - before; got != 5 || len(w.disk.stuck) != 0 {
		t.Errorf("%d calls were answered when it went on, want 5", got)
	}
	for op, ev := range w.answers {
		if ev.Err != nil && !ev.Err.Has(world.KindTimeout) {
			t.Errorf("operation %d: %v", op, ev.Err)
		}
	}
}

// What was asked by an agent that has died is not done when the path goes on.
func TestAPathHangsLongerThanTheAgentLives(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Hang("/mnt")
	w.Begin(&world.MakeDir{Path: "/mnt/a"})
	w.Sleep(time.Second)
	w.disk.Disconnect()
	w.disk.Connect(w.answer)
	w.disk.GoOnAll()
	w.Sleep(time.Second)
	if w.disk.Exists("/mnt/a") || len(w.answers) != 0 || len(w.disk.stuck) != 0 {
		t.Errorf("made for an agent that is dead; answers %v", w.answers)
	}
}
