package housekeeping

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// What an orphaned pod left mounted is unmounted before anything is removed, and a pod that comes
// meanwhile keeps its directory.
func TestAnOrphanIsUnmountedFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for back, want := range map[bool]string{
		false: "Unmount /pods/u, RemoveTree /pods/u", true: "Unmount /pods/u",
	} {
		s := Sweep{PodsDir: "/pods", LogsDir: "/logs", Step: 2,
			Found: []Found{{Path: "/pods/u", UID: "u"}}}
		var table op.Table
		var got []string
		v := View{Known: func(string) bool { return back && len(got) > 0 },
			Cgroups: &cgroup.Layout{}}
		for range 3 {
			out := &op.Out{}
			out.Begin(&table, now)
			if s.Plan(v, out); s.Op == 0 {
				break
			}
			rec, _ := table.Settle(s.Op)
			got = append(got, rec.Call+" "+rec.Subject)
			s.Answered(rec, world.Event{Time: now, Body: &world.Done{}}, v)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("back %v: %v, want %s", back, got, want)
		}
	}
}

// A directory whose pod was back meanwhile is unmounted once more before it is removed.
func TestAnOrphanThatWasBack(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	found := []Found{{Path: "/pods/u", UID: "u"}}
	s := Sweep{PodsDir: "/pods", LogsDir: "/logs", Step: 2, Found: found, Unmounted: "/pods/u"}
	var table op.Table
	plan := func(back bool) {
		out := &op.Out{}
		out.Begin(&table, now)
		s.Plan(View{Known: func(string) bool { return back }, Cgroups: &cgroup.Layout{}}, out)
	}
	plan(true)
	s.Found, s.NextAt = found, time.Time{}
	plan(false)
	if call := table.Records[s.Op].Call; call != "Unmount" {
		t.Errorf("%s comes first", call)
	}
}
