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
			s.HandleCompletion(record, world.Event{Time: now, Body: &world.Done{}}, env, effects)
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

// A panic over one candidate is about the pod that it has the name of, also while a listing is gone
// through.
func TestPanicIsAboutOneCandidate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	env := Env{Cgroups: &cgroup.Layout{}, RuntimeListedAt: now.Add(time.Hour)}
	env.IsKnownPod = func(uid string) bool {
		if uid == "bad" {
			panic(uid)
		}
		return true
	}
	env.MayOwnCgroup = env.IsKnownPod
	var table op.Table
	directories := &world.DirListed{Entries: []world.DirEntry{{Name: "good", Directory: true},
		{Name: "bad", Directory: true}, {Name: "other", Directory: true}}}
	for name, run := range map[string]func(*Cleanup, *op.Effects){
		"plan": func(s *Cleanup, effects *op.Effects) {
			s.Candidates = []Candidate{{UID: "good"}, {UID: "bad", Cgroup: true}, {UID: "other"}}
			s.Plan(env, effects)
		},
		"directories": func(s *Cleanup, effects *op.Effects) {
			s.HandleCompletion(op.Record{Call: "ListDir", Subject: "/pods"},
				world.Event{Time: now, Body: directories}, env, effects)
		},
		"cgroups": func(s *Cleanup, effects *op.Effects) {
			s.HandleCompletion(op.Record{Call: "ListCgroups", Subject: "/kubepods"},
				world.Event{Time: now, Body: &world.CgroupsListed{
					Names: []string{"podgood", "podbad", "podother"}}}, env, effects)
		},
	} {
		effects := &op.Effects{}
		effects.Reset(&table, now)
		func() {
			defer func() {
				if recover() == nil || effects.CurrentPod() != "bad" {
					t.Errorf("%s: the panic is about pod %q, want bad", name, effects.CurrentPod())
				}
			}()
			run(&Cleanup{PodsDir: "/pods", LogsDir: "/logs"}, effects)
		}()
	}
}

// A directory of logs that cannot be removed, or listed with the others, is known as failing until
// that succeeds, or the directory is gone.
func TestFailuresWithLogs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := Cleanup{PodsDir: "/pods", LogsDir: "/logs"}
	var table op.Table
	env := Env{IsKnownPod: func(string) bool { return true }, Cgroups: &cgroup.Layout{}}
	complete := func(call, subject string, failed bool, names ...string) {
		effects := &op.Effects{}
		effects.Reset(&table, now)
		ev := world.Event{Time: now}
		if failed {
			ev.Err = world.Errorf(world.KindInternal, call, "busy")
		} else {
			ev.Body = &world.Done{}
		}
		if call == "ListDir" && !failed {
			listed := &world.DirListed{}
			for _, name := range names {
				listed.Entries = append(listed.Entries, world.DirEntry{Name: name, Directory: true})
			}
			ev.Body = listed
		}
		s.HandleCompletion(op.Record{Call: call, Subject: subject}, ev, env, effects)
	}
	expect := func(when, want string) {
		t.Helper()
		var messages []string
		for _, f := range s.Failures() {
			messages = append(messages, f.Message)
		}
		if got := strings.Join(messages, "; "); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	complete("ListDir", "/logs", true)
	complete("RemoveTree", "/pods/u", true)
	expect("the list fails", `failed to read podLogsDirectory "/logs": busy`)
	complete("ListDir", "/logs", false, "ns_a_u")
	complete("RemoveTree", "/logs/ns_a_u", true)
	complete("RemoveTree", "/logs/ns_b_v", true)
	expect("removals fail", `failed to remove pod logs directory "/logs/ns_a_u": busy; `+
		`failed to remove pod logs directory "/logs/ns_b_v": busy`)
	complete("RemoveTree", "/logs/ns_a_u", false)
	expect("one succeeds", `failed to remove pod logs directory "/logs/ns_b_v": busy`)
	complete("ListDir", "/logs", false)
	expect("the other is gone", "")
}
