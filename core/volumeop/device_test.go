package volumeop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/world"
)

// A device is taken from a pod in an order that lets the next agent find it: its file goes last.
// After a failure all steps are done again, and a pod that has come back keeps what is left.
func TestDeviceIsTakenFromPod(t *testing.T) {
	b, now := &BoundDevice{Released: true}, time.Unix(0, 0)
	step := func(ev world.Event, isNeeded bool) (any, bool) {
		ev.Time = now
		body := b.NextStep("/links", "/bound")
		return body, b.EndStep(ev, isNeeded, time.Second, time.Minute)
	}
	failed := world.Event{Err: world.Errorf(world.KindInternal, "Unmount", "busy")}
	var done []any
	for _, ev := range []world.Event{{}, {}, failed, {}, {}, {}, {}} {
		body, isRemoved := step(ev, false)
		if done = append(done, body); isRemoved != (len(done) == 7) {
			t.Errorf("after %d steps: removed %t", len(done), isRemoved)
		}
		if at := b.Removal.Attempts.NotBefore; ev.Err != nil && !at.Equal(now.Add(time.Second)) {
			t.Errorf("a failure is followed by a back-off until %v", at)
		}
	}
	links, release := &world.RemoveTree{Path: "/links"}, &world.ReleaseDevice{Path: "/bound"}
	unmount, remove := &world.Unmount{Path: "/bound"}, &world.RemoveTree{Path: "/bound"}
	want := []any{links, release, unmount, links, release, unmount, remove}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b = &BoundDevice{Released: true}
	step(world.Event{}, false)
	if _, isRemoved := step(world.Event{}, true); isRemoved || b.Removal != (Removal{}) {
		t.Errorf("a pod that has come back: %t, %+v", isRemoved, b.Removal)
	}
}

// A device is needed until it is released, and one that was found until its pod is known to have
// gone.
func TestDeviceIsNeeded(t *testing.T) {
	known := func(uid string) bool { return uid == "a" }
	for _, c := range []struct {
		uid                    string
		released, cleansUp, is bool
	}{{"a", false, true, true}, {"b", false, true, false}, {"b", false, false, true},
		{"a", true, true, false}, {"a", true, false, false}} {
		b := BoundDevice{Released: c.released}
		if got := b.IsNeeded(c.uid, c.cleansUp, known); got != c.is {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
