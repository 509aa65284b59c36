package begun

import (
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Until the directory has been listed every pod may have been begun; then those in it.
func TestPods(t *testing.T) {
	p, table, out := Pods{Dir: "/pods"}, op.Table{}, &op.Out{}
	at := func(after time.Duration) time.Time {
		out.Begin(&table, t0.Add(after))
		return p.Plan(out)
	}
	at(0)
	p.Answered(world.Event{Time: t0, Err: world.Errorf(world.KindTimeout, "ListDir", "")}, out)
	if wake := at(0); !p.May("a") || p.Op != 0 || !wake.After(t0) {
		t.Fatalf("after a failure: %+v, to be called at %v", p, wake)
	}
	if at(time.Minute); p.Op == 0 {
		t.Fatal("it is not tried again")
	}
	p.Answered(world.Event{Body: &world.DirListed{Entries: []world.DirEntry{
		{Name: "a", Directory: true}, {Name: "b"}}}}, out)
	if at(time.Hour); p.Op != 0 || !p.May("a") || p.May("b") || p.May("c") {
		t.Errorf("%+v", p)
	}
}

// Where nothing was ever begun there is nothing to list.
func TestNoDirectory(t *testing.T) {
	p := Pods{}
	p.Answered(world.Event{Err: world.Errorf(world.KindNotFound, "ListDir", "")}, &op.Out{})
	if !p.Listed || p.May("a") {
		t.Errorf("%+v", p)
	}
}
