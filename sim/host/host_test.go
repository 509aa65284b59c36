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

// simWorld is a host and somebody who calls it.
type simWorld struct {
	t      *testing.T
	agenda *agenda.Agenda
	host   *Host
	facts  []string
	killed []string
	ops    world.OpID
	answer *world.Event
}

func newWorld(t *testing.T) *simWorld {
	w := &simWorld{t: t, agenda: agenda.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1)}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		text := fmt.Sprintf("%s %s %d %s", f.Kind, f.Path, f.Limits.CPUShares, f.Cause)
		w.facts = append(w.facts, strings.TrimSpace(text))
	})
	w.host = New(Options{Agenda: w.agenda, Truth: log, Seed: 1,
		Answer: func(ev world.Event) { w.answer = &ev },
		Kill:   func(dir string) { w.killed = append(w.killed, dir) }})
	return w
}

func (w *simWorld) call(body any) (any, *world.Error) {
	w.ops++
	w.answer = nil
	w.host.Do(world.Effect{Op: w.ops, Body: body, Deadline: w.agenda.Now().Add(time.Minute)})
	for w.answer == nil && w.agenda.Run() {
	}
	if w.answer == nil {
		w.t.Fatalf("%s was never answered", world.Call(body))
	}
	return w.answer.Body, w.answer.Err
}

func (w *simWorld) list(path string, systemd bool) string {
	body, err := w.call(&world.ListCgroups{Path: path, Systemd: systemd})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(body.(*world.CgroupsListed).Names, " ")
}

func TestATree(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.call(&world.SetCgroup{Path: "kubepods/burstable/pod1-2", CPUShares: 7})
	}
	w.call(&world.SetCgroup{Path: "kubepods/pod3"})
	if got := w.list("kubepods", false); got != "burstable pod3" {
		t.Errorf("listed %q", got)
	}
	if got := w.list("elsewhere", false); got != "" {
		t.Errorf("listed %q of what is not there", got)
	}
	w.call(&world.RemoveCgroup{Path: "kubepods/burstable"})
	w.call(&world.RemoveCgroup{Path: "kubepods/burstable"})
	if got := strings.Join(w.host.Directories(), " "); got != "kubepods kubepods/pod3" {
		t.Errorf("left are %q", got)
	}
	want := "CgroupMade kubepods/burstable/pod1-2 7; CgroupMade kubepods/burstable/pod1-2 7; " +
		"CgroupMade kubepods/pod3 0; CgroupRemoved kubepods/burstable 0"
	if got := strings.Join(w.facts, "; "); got != want || fmt.Sprint(w.killed) !=
		"[kubepods/burstable]" {
		t.Errorf("told %q, killed %v", got, w.killed)
	}
}

func TestSlices(t *testing.T) {
	w := newWorld(t)
	w.call(&world.SetCgroup{Path: "kubepods/burstable/pod1-2", Systemd: true})
	want := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
	if got := w.host.Directories(); got[len(got)-1] != want {
		t.Errorf("made %v", got)
	}
	if got := w.list("kubepods/burstable", true); got != "pod1-2" {
		t.Errorf("listed %q", got)
	}
}

func TestTheRuntimeMakesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.host.Enter("/kubepods/podu")
	w.host.Enter("/kubepods/podu")
	w.host.Enter("")
	if got := strings.Join(w.facts, "; "); got != "CgroupMade kubepods/podu 0 runtime" {
		t.Errorf("told %q", got)
	}
	if w.host.Reboot(); len(w.host.Directories()) > 0 {
		t.Errorf("after a reboot there are %v", w.host.Directories())
	}
}

func TestWhatMakesNoSense(t *testing.T) {
	w := newWorld(t)
	for _, body := range []any{&world.SetCgroup{Path: "/a"}, &world.SetCgroup{Path: "a/../b"},
		&world.SetCgroup{Path: "a", CPUQuota: -1}, &world.RemoveCgroup{}, &world.ListCgroups{}} {
		if _, err := w.call(body); !err.Has(world.KindInvalid) {
			t.Errorf("%+v: %v", body, err)
		}
	}
}

// What the agent was doing when it was killed is not done later.
func TestKilledOverIt(t *testing.T) {
	w := newWorld(t)
	w.host.Do(world.Effect{Op: 1, Body: &world.SetCgroup{Path: "a"},
		Deadline: w.agenda.Now().Add(time.Minute)})
	w.host.Disconnect()
	for w.agenda.Run() {
	}
	if len(w.host.Directories()) > 0 {
		t.Error("a dead agent has made a cgroup")
	}
}
