package housekeeping

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The mounts in an orphaned directory are unmounted before the directory is removed. A pod that
// becomes known meanwhile keeps its directory.
func TestOrphanIsUnmountedFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for back, want := range map[bool]string{
		false: "Unmount /pods/u, RemoveTree /pods/u", true: "Unmount /pods/u",
	} {
		s := Cleanup{PodsDir: "/pods", LogsDir: "/logs", ParentIndex: 2,
			Candidates: []Candidate{{Path: "/pods/u", UID: "u"}}}
		var table op.Table
		var got []string
		env := Env{IsKnownPod: func(string) bool { return back && len(got) > 0 },
			Cgroups: &cgroup.Layout{}}
		for range 3 {
			effects := &op.Effects{}
			effects.Reset(&table, now)
			if s.Plan(env, effects); s.Op == 0 {
				break
			}
			record, _ := table.Complete(s.Op)
			got = append(got, record.Call+" "+record.Subject)
			s.HandleCompletion(record, world.Event{Time: now, Body: &world.Done{}}, env)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("back %v: %v, want %s", back, got, want)
		}
	}
}

// A directory whose pod became known meanwhile is unmounted again before it is removed.
func TestOrphanIsUnmountedAgainAfterItsPodReturned(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	found := []Candidate{{Path: "/pods/u", UID: "u"}}
	s := Cleanup{PodsDir: "/pods", LogsDir: "/logs", ParentIndex: 2, Candidates: found,
		Unmounted: "/pods/u"}
	var table op.Table
	plan := func(back bool) {
		effects := &op.Effects{}
		effects.Reset(&table, now)
		s.Plan(Env{IsKnownPod: func(string) bool { return back }, Cgroups: &cgroup.Layout{}}, effects)
	}
	plan(true)
	s.Candidates, s.NextAt = found, time.Time{}
	plan(false)
	if call := table.Records[s.Op].Call; call != "Unmount" {
		t.Errorf("%s comes first", call)
	}
}
