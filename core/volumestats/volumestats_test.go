package volumestats

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bench plans the volumes of one pod.
type bench struct {
	Stats
	table   op.Table
	effects op.Effects
	wall    timer.WallClock
	targets []Target
}

func newBench() *bench {
	return &bench{Stats: Stats{Period: time.Minute, Health: true}, targets: []Target{
		{Name: "data", Claim: "c", Request: &world.GetVolumeStats{Handle: "h"}, HasCondition: true},
		{Name: "disk", Request: &world.MeasureFilesystem{Path: "/disk"}}}}
}

// plan plans at a time after the start, and returns what it issues and when it is to be next.
func (b *bench) plan(after time.Duration) (issued []world.Effect, wake time.Duration) {
	b.effects.Reset(&b.table, t0.Add(after))
	b.effects.SetWall(&b.wall)
	at := b.Plan("ns", "u", b.targets, &b.effects)
	if !at.IsZero() {
		wake = at.Sub(t0)
	}
	return slices.Clone(b.effects.List()), wake
}

// complete completes an operation, and returns the events about the pod.
func (b *bench) complete(after time.Duration, id world.OpID, body any,
	err *world.Error) (events []string) {
	b.effects.Reset(&b.table, t0.Add(after))
	b.effects.SetWall(&b.wall)
	r, _ := b.table.Complete(id)
	b.HandleCompletion(id, r, world.Event{Time: t0.Add(after), Op: id, Body: body, Err: err},
		v1.ObjectReference{Kind: "Pod", Name: "p"}, &b.effects)
	for _, e := range b.effects.List() {
		if event, is := e.Body.(*world.RecordEvent); is {
			events = append(events, event.Reason+" "+event.Message)
		}
	}
	return events
}

// Each volume is measured by itself, a period after its last measurement.
func TestVolumesAreMeasuredOnceInAPeriod(t *testing.T) {
	b := newBench()
	issued, _ := b.plan(0)
	if len(issued) != 2 || issued[0].Tenant != "u" || issued[1].Tenant != "u" {
		t.Fatalf("issued %+v, want both measurements, for the pod", issued)
	}
	b.complete(time.Second, issued[1].Op, &world.FilesystemMeasured{CapacityBytes: 10,
		AvailableBytes: 3, FreeBytes: 4, Inodes: 8, InodesFree: 2}, nil)
	again, wake := b.plan(2 * time.Second) // the driver hangs
	if len(again) != 0 || wake != 61*time.Second {
		t.Errorf("issued %+v, next at %v, want none and 61 s", again, wake)
	}
	if again, _ = b.plan(61 * time.Second); len(again) != 1 || again[0].Body != b.targets[1].Request {
		t.Errorf("issued %+v, want the disk", again)
	}
	want := []world.VolumeUsage{{UID: "u", Namespace: "ns", Volume: "disk",
		MeasuredAt: b.effects.DateOf(t0.Add(time.Second)), Stats: world.CSIVolumeStats{CapacityBytes: 10,
			AvailableBytes: 3, UsedBytes: 6, Inodes: 8, InodesFree: 2, InodesUsed: 6}}}
	if got := b.List(); !reflect.DeepEqual(got, want) {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

// A failure leaves no usage, and a volume that is unmounted has none.
func TestUsageGoes(t *testing.T) {
	b := newBench()
	issued, _ := b.plan(0)
	b.complete(0, issued[0].Op, &world.CSIVolumeStats{UsedBytes: 1, AvailableBytes: -1}, nil)
	b.complete(0, issued[1].Op, &world.FilesystemMeasured{}, nil)
	if got := b.List(); len(got) != 2 || got[0].Claim != "c" || got[0].Stats.AvailableBytes != 0 {
		t.Fatalf("usage %+v, want both, and nothing negative", got)
	}
	issued, _ = b.plan(time.Minute)
	b.complete(time.Minute, issued[0].Op, nil, world.Errorf(world.KindTimeout, "", "late"))
	if got := b.List(); len(got) != 1 || got[0].Volume != "disk" {
		t.Errorf("usage %+v after a failure, want that of the disk", got)
	}
	b.targets = nil
	b.plan(time.Minute)
	if got := b.List(); len(got) != 0 || len(b.Pods) != 1 {
		t.Errorf("usage %+v of unmounted volumes, %d pods, want the one that is waited for", got,
			len(b.Pods))
	}
	b.complete(time.Minute, issued[1].Op, &world.FilesystemMeasured{}, nil)
	if b.plan(2 * time.Minute); len(b.Pods) != 0 {
		t.Errorf("pods %+v, want none", b.Pods)
	}
}

// A new sandbox has the volumes of its pod set up again, which are measured no sooner for that.
func TestVolumeIsSetUpAgain(t *testing.T) {
	b := newBench()
	issued, _ := b.plan(0)
	for _, effect := range issued {
		b.complete(0, effect.Op, &world.CSIVolumeStats{UsedBytes: 1}, nil)
	}
	targets := b.targets
	b.targets = nil
	b.plan(10 * time.Second)
	if got := b.List(); len(got) != 0 {
		t.Errorf("usage %+v of volumes that are not set up, want none", got)
	}
	b.targets = targets
	if again, wake := b.plan(20 * time.Second); len(again) != 0 || wake != time.Minute {
		t.Errorf("%d measurements, and the next after %v, want none before a minute", len(again), wake)
	}
	if again, _ := b.plan(time.Minute); len(again) != 2 {
		t.Errorf("%d measurements after a minute, want 2", len(again))
	}
}

// A driver that says nothing has failed, unless it reports a condition.
func TestConditionIsReported(t *testing.T) {
	b := newBench()
	b.targets = b.targets[:1]
	for i, c := range []struct {
		health bool
		body   *world.CSIVolumeStats
		known  bool
		event  string
	}{
		{true, &world.CSIVolumeStats{}, false, ""},
		{true, &world.CSIVolumeStats{UsedBytes: 1}, true, ""},
		{true, &world.CSIVolumeStats{Condition: &world.CSIVolumeCondition{Abnormal: true,
			Message: "the disk is on fire"}}, true,
			"VolumeConditionAbnormal Volume data: the disk is on fire"},
		{false, &world.CSIVolumeStats{UsedBytes: 1, Condition: &world.CSIVolumeCondition{Abnormal: true,
			Message: "the disk is on fire"}}, true, ""},
	} {
		after := time.Duration(i) * time.Minute
		b.Health = c.health
		issued, _ := b.plan(after)
		events := strings.Join(b.complete(after, issued[0].Op, c.body, nil), "\n")
		if got := b.List(); events != c.event || (len(got) == 1) != c.known {
			t.Errorf("case %d: events %q, usage %+v", i, events, got)
		} else if c.known && (got[0].Stats.Condition != nil) != c.health {
			t.Errorf("case %d: condition %v", i, got[0].Stats.Condition)
		}
	}
}

func TestNothingIsMeasuredWithoutPeriod(t *testing.T) {
	b := newBench()
	b.Period = -1
	if issued, wake := b.plan(0); len(issued) != 0 || wake != 0 || len(b.Pods) != 0 {
		t.Errorf("issued %+v, next at %v", issued, wake)
	}
}

// newDisks returns a pod with so many volumes whose file systems are measured.
func newDisks(count int) *bench {
	b := &bench{Stats: Stats{Period: time.Minute}}
	for i := range count {
		name := fmt.Sprintf("v%02d", i)
		b.targets = append(b.targets, Target{Name: name,
			Request: &world.MeasureFilesystem{Path: "/" + name}})
	}
	return b
}

// A pod has two measurements at once, and all its volumes have their turn within a period.
func TestVolumesTakeTurns(t *testing.T) {
	b := newDisks(5)
	inFlight, _ := b.plan(0)
	for range 5 {
		if len(inFlight) > inFlightMax {
			t.Fatalf("%d measurements are in flight", len(inFlight))
		}
		b.complete(0, inFlight[0].Op, &world.FilesystemMeasured{CapacityBytes: 1}, nil)
		more, _ := b.plan(0)
		inFlight = append(inFlight[1:], more...)
	}
	if got := len(b.List()); got != 5 || len(inFlight) != 0 {
		t.Errorf("%d volumes are measured, %d measurements in flight", got, len(inFlight))
	}
}

// A pod whose volumes are all on a file server that does not respond has two measurements that
// hang, and no more, however long that takes. Once the server responds all volumes are measured.
func TestVolumesHang(t *testing.T) {
	b := newDisks(28)
	late, blocked := world.Errorf(world.KindTimeout, "", "late"), world.Errorf(world.KindUnavailable,
		"", "an earlier operation has not been answered")
	hung := map[any]bool{} // requests without an answer
	var now time.Duration
	for now = 0; now < 20*time.Minute; now += time.Minute {
		for issued, _ := b.plan(now); len(issued) > 0; issued, _ = b.plan(now) {
			for _, eff := range issued {
				if hung[eff.Body] {
					b.complete(now, eff.Op, nil, blocked)
				} else {
					b.complete(now, eff.Op, nil, late)
				}
				hung[eff.Body] = true
			}
		}
	}
	if len(hung) != inFlightMax {
		t.Errorf("%d measurements hang, want %d", len(hung), inFlightMax)
	}
	for issued, _ := b.plan(now); len(issued) > 0; issued, _ = b.plan(now) {
		for _, eff := range issued {
			b.complete(now, eff.Op, &world.FilesystemMeasured{CapacityBytes: 1}, nil)
		}
	}
	if got := len(b.List()); got != 28 {
		t.Errorf("%d volumes are measured once the server responds", got)
	}
}

// A volume that is measured no more, because others of its pod hang, has no usage: an old one would
// look like a new one.
func TestUsageGoesWhileOthersHang(t *testing.T) {
	b := newDisks(3)
	for _, i := range []int{0, 1} {
		issued, _ := b.plan(0)
		for _, eff := range issued {
			b.complete(0, eff.Op, &world.FilesystemMeasured{CapacityBytes: 1}, nil)
		}
		if i == 1 && len(b.List()) != 3 {
			t.Fatalf("usage %+v", b.List())
		}
	}
	issued, _ := b.plan(time.Minute)
	for _, eff := range issued {
		b.complete(3*time.Minute, eff.Op, nil, world.Errorf(world.KindTimeout, "", "late"))
	}
	if b.plan(3 * time.Minute); len(b.List()) != 0 {
		t.Errorf("usage %+v, want none", b.List())
	}
}

// A driver that answers too late has ended its call: the other volumes have their turn.
func TestDriverIsLate(t *testing.T) {
	b := newDisks(3)
	for i := range b.targets {
		b.targets[i].Request = &world.GetVolumeStats{Handle: b.targets[i].Name}
	}
	issued, _ := b.plan(0)
	for _, eff := range issued {
		b.complete(2*time.Minute, eff.Op, nil, world.Errorf(world.KindTimeout, "", "late"))
	}
	if issued, _ = b.plan(2 * time.Minute); len(issued) != 1 {
		t.Errorf("issued %+v, want the third volume", issued)
	}
}

// A volume whose driver goes keeps its usage until the next measurement is due, and is not measured
// earlier when the driver is back.
func TestDriverIsAway(t *testing.T) {
	b := newBench()
	request := b.targets[0].Request
	b.targets = b.targets[:1]
	issued, _ := b.plan(0)
	b.complete(0, issued[0].Op, &world.CSIVolumeStats{UsedBytes: 1}, nil)
	b.targets[0].Request = nil
	if issued, _ = b.plan(time.Second); len(issued) != 0 || len(b.List()) != 1 {
		t.Errorf("issued %+v, usage %+v, want the known one", issued, b.List())
	}
	b.targets[0].Request = request
	if issued, _ = b.plan(2 * time.Second); len(issued) != 0 {
		t.Errorf("issued %+v before the period has passed", issued)
	}
	b.targets[0].Request = nil
	if b.plan(time.Minute); len(b.List()) != 0 {
		t.Errorf("usage %+v of a volume that cannot be measured", b.List())
	}
}

// Of a device, the size is known and nothing else. One that has gone has none.
func TestDeviceIsMeasured(t *testing.T) {
	b := newBench()
	b.targets = []Target{{Name: "raw", Request: &world.MeasureDevice{Path: "/d"}}}
	issued, _ := b.plan(0)
	b.complete(0, issued[0].Op, &world.DeviceMeasured{CapacityBytes: 7}, nil)
	if got := b.List(); len(got) != 1 || got[0].Stats != (world.CSIVolumeStats{CapacityBytes: 7}) {
		t.Errorf("usage %+v", got)
	}
	issued, _ = b.plan(time.Minute)
	b.complete(time.Minute, issued[0].Op, nil, world.Errorf(world.KindNotFound, "", "gone"))
	if got := b.List(); len(got) != 0 {
		t.Errorf("usage %+v of a device that has gone", got)
	}
}
