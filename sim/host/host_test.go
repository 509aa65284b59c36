package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// simWorld is a host with a client.
type simWorld struct {
	t          *testing.T
	agenda     *agenda.Agenda
	host       *Host
	facts      []string
	killed     []string
	ops        world.OpID
	completion *world.Event
}

// The memory limit of processes is not lowered to what they use, or below.
func TestLimitNotBelowUsage(t *testing.T) {
	w := newWorld(t)
	usage := int64(50)
	w.host.opts.CgroupMemory = func(string) int64 { return usage }
	for _, test := range []struct{ usage, limit, want int64 }{
		{50, 100, 100}, {50, 50, 100}, {50, 51, 51}, {60, 51, 51}, {60, 0, 0}, {60, 60, 0},
	} {
		usage = test.usage
		body, err := w.call(&world.SetCgroup{Path: "kubepods/pod1", MemoryBytes: test.limit,
			PidsMax: test.limit, NotBelowUsage: true})
		above, isAbove := body.(*world.CgroupAboveLimit)
		has := w.host.cgroups["kubepods/pod1"]
		if err != nil || has.MemoryBytes != test.want || has.PidsMax != test.limit ||
			isAbove != (test.want != test.limit) || isAbove && above.LimitBytes != test.want {
			t.Errorf("%+v: %+v with %+v, %v", test, has, body, err)
		}
	}
}

func newWorld(t *testing.T, systemCgroups ...string) *simWorld {
	w := &simWorld{t: t, agenda: agenda.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1)}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		text := fmt.Sprintf("%s %s %d %s", f.Kind, f.Path, f.Limits.CPUShares, f.Cause)
		w.facts = append(w.facts, strings.TrimSpace(text))
	})
	w.host = New(Options{Agenda: w.agenda, Truth: log, Seed: 1, SystemCgroups: systemCgroups,
		Deliver:    func(ev world.Event) { w.completion = &ev },
		KillCgroup: func(dir string) { w.killed = append(w.killed, dir) }})
	return w
}

func (w *simWorld) call(body any) (any, *world.Error) {
	w.ops++
	w.completion = nil
	w.host.Do(world.Effect{Op: w.ops, Body: body, Deadline: w.agenda.Now().Add(time.Minute)})
	for w.completion == nil && w.agenda.Run() {
	}
	if w.completion == nil {
		w.t.Fatalf("%s never completed", world.CallName(body))
	}
	return w.completion.Body, w.completion.Err
}

func (w *simWorld) list(path string, systemd bool) string {
	body, err := w.call(&world.ListCgroups{Path: path, Systemd: systemd})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(body.(*world.CgroupsListed).Names, " ")
}

func TestCgroupTree(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.call(&world.SetCgroup{Path: "kubepods/burstable/pod1-2", CPUShares: 7})
	}
	w.call(&world.SetCgroup{Path: "kubepods/pod3"})
	if got := w.list("kubepods", false); got != "burstable pod3" {
		t.Errorf("listed %q", got)
	}
	if got := w.list("elsewhere", false); got != "" {
		t.Errorf("listed %q for a missing cgroup", got)
	}
	w.call(&world.RemoveCgroup{Path: "kubepods/burstable"})
	w.call(&world.RemoveCgroup{Path: "kubepods/burstable"})
	if got := strings.Join(w.host.CgroupDirs(), " "); got != "kubepods kubepods/pod3" {
		t.Errorf("cgroups left: %q", got)
	}
	want := "CgroupMade kubepods/burstable/pod1-2 7; " +
		"WroteNothing kubepods/burstable/pod1-2 7; CgroupMade kubepods/burstable/pod1-2 7; " +
		"CgroupMade kubepods/pod3 0; CgroupRemoved kubepods/burstable 0"
	if got := strings.Join(w.facts, "; "); got != want || fmt.Sprint(w.killed) !=
		"[kubepods/burstable]" {
		t.Errorf("facts %q, killed %v", got, w.killed)
	}
}

func TestSystemdSlices(t *testing.T) {
	w := newWorld(t)
	w.call(&world.SetCgroup{Path: "kubepods/burstable/pod1-2", Systemd: true})
	want := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
	if got := w.host.CgroupDirs(); got[len(got)-1] != want {
		t.Errorf("cgroups %v", got)
	}
	if got := w.list("kubepods/burstable", true); got != "pod1-2" {
		t.Errorf("listed %q", got)
	}
}

func TestRuntimeCreatesMissingCgroups(t *testing.T) {
	w := newWorld(t)
	w.host.EnterCgroup("/kubepods/podu")
	w.host.EnterCgroup("/kubepods/podu")
	w.host.EnterCgroup("")
	if got := strings.Join(w.facts, "; "); got != "CgroupMade kubepods/podu 0 runtime" {
		t.Errorf("facts %q", got)
	}
	if w.host.Reboot(); len(w.host.CgroupDirs()) > 0 {
		t.Errorf("cgroups after a reboot: %v", w.host.CgroupDirs())
	}
}

// The limits of a cgroup of another program can be set if it exists, and the others stay.
func TestSystemCgroups(t *testing.T) {
	w := newWorld(t, "system.slice")
	missing := &world.SetCgroup{Path: "other.slice", Existing: true, CPUShares: 7}
	if _, err := w.call(missing); !err.Has(world.KindNotFound) {
		t.Errorf("of a missing cgroup: %v", err)
	}
	w.call(&world.SetCgroup{Path: "system", Systemd: true, Existing: true, CPUShares: 7})
	w.call(&world.SetCgroup{Path: "system", Systemd: true, Existing: true, PidsMax: 5})
	if got := w.host.cgroups["system.slice"]; got != (truth.Limits{CPUShares: 7, PidsMax: 5}) {
		t.Errorf("the cgroup has %+v", got)
	}
	w.host.Reboot()
	if got, exists := w.host.cgroups["system.slice"]; !exists || got != (truth.Limits{}) {
		t.Errorf("after a reboot: %+v, exists: %v", got, exists)
	}
}

func TestInvalidRequests(t *testing.T) {
	w := newWorld(t)
	for _, body := range []any{&world.SetCgroup{Path: "/a"}, &world.SetCgroup{Path: "a/../b"},
		&world.SetCgroup{Path: "a", CPUQuota: -1}, &world.RemoveCgroup{}, &world.ListCgroups{}} {
		if _, err := w.call(body); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v", body, err)
		}
	}
}

// An operation in flight has no effect after the agent has been killed.
func TestRequestDiesWithTheAgent(t *testing.T) {
	w := newWorld(t)
	w.host.Do(world.Effect{Op: 1, Body: &world.SetCgroup{Path: "a"},
		Deadline: w.agenda.Now().Add(time.Minute)})
	w.host.Disconnect()
	for w.agenda.Run() {
	}
	if len(w.host.CgroupDirs()) > 0 {
		t.Error("a dead agent created a cgroup")
	}
}
