package devicemount

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// runPlan completes the operations of a plan until none is left, and returns them.
func runPlan(d *Devices, at time.Time, needed string,
	complete func(call string) world.Event) string {
	var table op.Table
	var calls []string
	for range 20 {
		effects := &op.Effects{}
		effects.Reset(&table, at)
		d.Plan(func(volume string) bool { return volume == needed }, effects)
		if d.Op == 0 {
			return strings.Join(calls, ", ")
		}
		record, _ := table.Complete(d.Op)
		calls = append(calls, strings.TrimSpace(record.Call+" "+record.Subject))
		ev := complete(record.Call)
		ev.Time = at
		d.HandleCompletion(record, ev, effects)
	}
	panic("more than 20 operations")
}

const mountsDir = "/k/plugins/local/mounts"

func newDevices() *Devices { return &Devices{RootDir: "/k", Dir: mountsDir} }

// mountTable completes ListMounts with two devices, of which a pod uses the first one, and what
// else is mounted.
func mountTable(call string) world.Event {
	if call != "ListMounts" {
		return world.Event{Body: &world.Done{}}
	}
	return world.Event{Body: &world.MountsListed{Mounts: []world.Mount{
		{Path: mountsDir + "/pv-a", Device: "7:1"},
		{Path: "/k/pods/u/volumes/x/pv-a", Device: "7:1"},
		{Path: mountsDir + "/pv-b", Device: "7:2"},
		{Path: "/k/pods/u/volumes/y/memory", Device: "0:9"},
		{Path: mountsDir + "/pv-b/below", Device: "0:8"},
	}}}
}

func TestUnusedDeviceIsUnmounted(t *testing.T) {
	d := newDevices()
	const want = "ListMounts, Unmount pv-b, RemoveTree pv-b"
	if got := runPlan(d, t0, "", mountTable); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := runPlan(d, t0, "", mountTable); got != "" {
		t.Errorf("%s without a reason", got)
	}
	if !d.NoteUnmount() || runPlan(d, t0, "", mountTable) != want {
		t.Error("not looked at after the end of a pod")
	}
}

func TestNeededDeviceStays(t *testing.T) {
	if got := runPlan(newDevices(), t0, "pv-b", mountTable); got != "ListMounts" {
		t.Errorf("%s, although a pod needs the device", got)
	}
}

// Without a device the mount table is not looked at again.
func TestNothingMounted(t *testing.T) {
	d := newDevices()
	none := func(string) world.Event { return world.Event{Body: &world.MountsListed{}} }
	if got := runPlan(d, t0, "", none); got != "ListMounts" || d.NoteUnmount() {
		t.Errorf("%s, and again %v", got, d.Again)
	}
	if d.NoteMount(); !d.NoteUnmount() {
		t.Error("not looked at after a device was mounted")
	}
}

func TestFailureIsRetried(t *testing.T) {
	d := newDevices()
	fails := func(call string) world.Event {
		if call == "Unmount" {
			return world.Event{Err: world.Errorf(world.KindExhausted, call, "busy")}
		}
		return mountTable(call)
	}
	if got := runPlan(d, t0, "", fails); got != "ListMounts, Unmount pv-b" || d.LastError == "" {
		t.Errorf("%s, %q", got, d.LastError)
	}
	const want = "ListMounts, Unmount pv-b, RemoveTree pv-b"
	if got := runPlan(d, t0.Add(time.Minute), "", mountTable); got != want || d.LastError != "" {
		t.Errorf("%s a minute later, %q", got, d.LastError)
	}
}

// A device that cannot be unmounted keeps no other one mounted.
func TestFailureOfOneDevice(t *testing.T) {
	d := newDevices()
	calls := 0
	table := func(call string) world.Event {
		if calls++; call == "ListMounts" {
			return world.Event{Body: &world.MountsListed{Mounts: []world.Mount{
				{Path: mountsDir + "/pv-a", Device: "7:1"}, {Path: mountsDir + "/pv-b", Device: "7:2"}}}}
		} else if calls == 2 {
			return world.Event{Err: world.Errorf(world.KindExhausted, call, "busy")}
		}
		return world.Event{Body: &world.Done{}}
	}
	const want = "ListMounts, Unmount pv-a, Unmount pv-b, RemoveTree pv-b"
	for after := range 2 {
		calls = 0
		got := runPlan(d, t0.Add(time.Duration(after)*time.Minute), "", table)
		if got != want || d.LastError == "" {
			t.Errorf("%s after %d minutes, %q, want %s", got, after, d.LastError, want)
		}
	}
}

// A mount that has timed out may still take effect when its pod has gone: it is looked for, for an
// hour.
func TestLateMountIsFound(t *testing.T) {
	d := newDevices()
	none := func(string) world.Event { return world.Event{Body: &world.MountsListed{}} }
	runPlan(d, t0, "", none)
	d.NoteLateMount(t0)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{time.Second, ""}, {time.Minute, "ListMounts"}, {time.Minute, ""}} {
		if got := runPlan(d, t0.Add(c.after), "", none); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
	const want = "ListMounts, Unmount pv-b, RemoveTree pv-b"
	if got := runPlan(d, t0.Add(2*time.Minute), "", mountTable); got != want {
		t.Errorf("%s after two minutes, want %s", got, want)
	}
	if got := runPlan(d, t0.Add(2*time.Hour), "", none); got != "" {
		t.Errorf("%s two hours later", got)
	}
}

// What an earlier agent had asked to be mounted may be mounted later: the table is looked at for
// five minutes.
func TestMountOfEarlierAgentIsFound(t *testing.T) {
	d := newDevices()
	none := func(string) world.Event { return world.Event{Body: &world.MountsListed{}} }
	looks := 0
	for after := range 600 {
		if runPlan(d, t0.Add(time.Duration(after)*time.Second), "", none) != "" {
			looks++
		}
	}
	if looks != 5 {
		t.Errorf("%d looks, want one a minute for five minutes", looks)
	}
}
