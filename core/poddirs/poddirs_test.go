package poddirs

import (
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Until the directory has been listed every pod may have been started, then only those in it.
func TestMayHaveStarted(t *testing.T) {
	p, table, out := Listing{Dir: "/pods"}, op.Table{}, &op.Effects{}
	at := func(after time.Duration) time.Time {
		out.Reset(&table, t0.Add(after))
		return p.Plan(out)
	}
	at(0)
	p.HandleCompletion(world.Event{Time: t0, Err: world.Errorf(world.KindTimeout, "ListDir", "")}, out)
	if wake := at(0); !p.MayHaveStarted("a") || p.Op != 0 || !wake.After(t0) {
		t.Fatalf("after a failure: %+v, next wake at %v", p, wake)
	}
	if at(time.Minute); p.Op == 0 {
		t.Fatal("the listing is not retried")
	}
	p.HandleCompletion(world.Event{Body: &world.DirListed{Entries: []world.DirEntry{
		{Name: "a", Directory: true}, {Name: "b"}}}}, out)
	if at(time.Hour); p.Op != 0 || !p.MayHaveStarted("a") || p.MayHaveStarted("b") ||
		p.MayHaveStarted("c") {
		t.Errorf("%+v", p)
	}
}

// Without a directory of pods no pod was ever started.
func TestNoDirectory(t *testing.T) {
	p := Listing{}
	p.HandleCompletion(world.Event{Err: world.Errorf(world.KindNotFound, "ListDir", "")},
		&op.Effects{})
	if !p.Listed || p.MayHaveStarted("a") {
		t.Errorf("%+v", p)
	}
}
