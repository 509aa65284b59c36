package statuswriter

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// harness is a writer and its effects.
type harness struct {
	Writer
	table op.Table
	out   op.Effects
	now   time.Time
}

func newHarness(object *v1.Pod) *harness {
	d := &harness{now: t0}
	d.Observe("u1", object)
	return d
}

// plan returns the issued effect, nil for none, and when to plan again.
func (d *harness) plan(want Desired) (*world.Effect, time.Time) {
	d.out.Reset(&d.table, d.now)
	wake := d.Plan("u1", want, &d.out)
	if issued := d.out.List(); len(issued) > 0 && issued[0].Op != 0 {
		eff := issued[0] // the next plan uses the list again
		return &eff, wake
	}
	return nil, wake
}

func (d *harness) complete(eff *world.Effect, body any, err *world.Error) {
	r, _ := d.table.Complete(eff.Op)
	d.HandleCompletion(eff.Op, r, world.Event{Time: d.now, Op: eff.Op, Body: body, Err: err}, &d.out)
}

func podObject(version string, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", Name: "p", ResourceVersion: version},
		Status: v1.PodStatus{Phase: phase}}
}

func withPhase(phase v1.PodPhase) Desired { return Desired{Status: &v1.PodStatus{Phase: phase}} }

func read(p *v1.Pod) *world.ObjectRead { return &world.ObjectRead{Object: world.Object{Pod: p}} }

func TestWritesTheDifferenceOnce(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	if eff, _ := d.plan(withPhase(v1.PodPending)); eff != nil {
		t.Fatalf("issued %+v without a difference", eff.Body)
	}
	eff, _ := d.plan(withPhase(v1.PodRunning))
	if again, _ := d.plan(withPhase(v1.PodRunning)); eff == nil || again != nil {
		t.Fatalf("issued %v, and then %v, want one write", eff, again)
	}
	d.complete(eff, read(podObject("2", v1.PodRunning)), nil)
	d.Observe("u1", podObject("1", v1.PodPending)) // the watch lags behind
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff != nil {
		t.Errorf("written again: %+v", eff.Body)
	}
}

// A field that the server drops from a status is not written again, until the object changes.
func TestServerDropsField(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	eff, _ := d.plan(withPhase(v1.PodRunning))
	d.complete(eff, read(podObject("1", v1.PodPending)), nil)
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff != nil {
		t.Errorf("written again: %+v", eff.Body)
	}
	d.Observe("u1", podObject("7", v1.PodPending))
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff == nil {
		t.Error("not written after the object changed")
	}
}

func TestBackoffAfterFailure(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	eff, _ := d.plan(withPhase(v1.PodRunning))
	throttled := world.Errorf(world.KindThrottled, "PatchObject", "slow down")
	throttled.RetryAfter = 7 * time.Second
	d.complete(eff, nil, throttled)
	eff, wake := d.plan(withPhase(v1.PodRunning))
	if eff != nil || !wake.Equal(t0.Add(7*time.Second)) {
		t.Errorf("issued %v, planned again at %v", eff, wake)
	}
	d.now = t0.Add(7 * time.Second)
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff == nil {
		t.Error("not retried")
	}
}

// A completion of a write to the previous object with the name does not apply to the new object.
func TestObjectIsReplaced(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	eff, _ := d.plan(withPhase(v1.PodRunning))
	other := podObject("2", v1.PodPending)
	other.UID = "m2"
	d.Observe("u1", other)
	d.complete(eff, read(podObject("3", v1.PodRunning)), nil)
	if got := d.Entries["u1"].Stored.UID; got != "m2" {
		t.Errorf("the completion for the previous object was applied: %s", got)
	}
}

func TestDeletesTerminalPod(t *testing.T) {
	deleted := podObject("1", v1.PodRunning)
	deleted.DeletionTimestamp = &metav1.Time{Time: t0}
	d := newHarness(deleted)
	if eff, _ := d.plan(Desired{NothingLeft: true}); eff != nil {
		t.Fatalf("deleted before the phase is terminal: %+v", eff.Body)
	}
	terminal := deleted.DeepCopy()
	terminal.Status.Phase, terminal.ResourceVersion = v1.PodFailed, "2"
	d.Observe("u1", terminal)
	eff, _ := d.plan(Desired{NothingLeft: true})
	if eff == nil || eff.Body.(*world.DeleteObject).UID != "u1" {
		t.Fatalf("issued %+v", eff)
	}
	d.complete(eff, nil, world.Errorf(world.KindNotFound, "DeleteObject", "no such pod"))
	if eff, _ := d.plan(Desired{NothingLeft: true}); eff != nil {
		t.Errorf("deleted twice: %+v", eff.Body)
	}
}

// After a conflict the status is written as soon as the newest version is observed.
func TestConflict(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	eff, _ := d.plan(withPhase(v1.PodRunning))
	d.complete(eff, nil, world.Errorf(world.KindConflict, "PatchObject", "it has changed"))
	if eff, wake := d.plan(withPhase(v1.PodRunning)); eff != nil || wake.IsZero() {
		t.Errorf("written at once with an outdated version: %v", eff)
	}
	d.Observe("u1", podObject("2", v1.PodPending))
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff == nil {
		t.Error("not written although the newest version is known")
	}
}

// An API server that was restored from a backup has older versions, and statuses that were written
// later are lost. A watch that is late has older versions too, for a moment.
func TestRestoredServer(t *testing.T) {
	d := newHarness(podObject("10", v1.PodRunning))
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff != nil {
		t.Fatalf("written without a difference: %+v", eff.Body)
	}
	d.Observe("u1", podObject("5", v1.PodPending))
	eff, wake := d.plan(withPhase(v1.PodRunning))
	if eff != nil || !wake.Equal(d.now.Add(restoredAfter)) {
		t.Fatalf("issued %v, planned again at %v", eff, wake)
	}
	d.now = d.now.Add(restoredAfter / 2)
	d.Observe("u1", podObject("6", v1.PodPending))
	if d.plan(withPhase(v1.PodRunning)); d.Entries["u1"].Stored.ResourceVersion != "10" {
		t.Error("an older version counts at once")
	}
	late := &harness{now: d.now}
	late.Observe("u1", podObject("10", v1.PodRunning))
	late.Observe("u1", podObject("6", v1.PodPending))
	late.plan(withPhase(v1.PodRunning))
	late.Observe("u1", podObject("10", v1.PodRunning))
	late.now = late.now.Add(time.Hour)
	if eff, _ := late.plan(withPhase(v1.PodRunning)); eff != nil {
		t.Errorf("the watch was late, and %+v is written", eff.Body)
	}
	d.now = wake
	eff, _ = d.plan(withPhase(v1.PodRunning))
	if eff == nil || !strings.Contains(string(eff.Body.(*world.PatchObject).Patch),
		`"resourceVersion":"6"`) {
		t.Fatalf("the lost status is not written: %+v", eff)
	}
	d.complete(eff, read(podObject("7", v1.PodRunning)), nil)
	if eff, wake := d.plan(withPhase(v1.PodRunning)); eff != nil || !wake.IsZero() {
		t.Errorf("issued %v, planned again at %v", eff, wake)
	}
}

// A change of a pending pod is delayed if another change comes soon. The first status and the
// change to Running are not.
func TestDelaysPendingChanges(t *testing.T) {
	pendingWithIP := func(ip string) Desired {
		want := withPhase(v1.PodPending)
		want.Status.PodIP, want.ChangeSoon = ip, true
		return want
	}
	d := newHarness(podObject("1", v1.PodPending))
	if eff, _ := d.plan(pendingWithIP("10.0.0.1")); eff == nil {
		t.Fatal("the first status is delayed")
	}
	accepted := podObject("1", v1.PodPending)
	accepted.Status.StartTime = &metav1.Time{Time: t0}
	d = newHarness(accepted)
	if eff, wake := d.plan(pendingWithIP("10.0.0.1")); eff != nil || !wake.Equal(t0.Add(delayMax)) {
		t.Fatalf("issued %v, planned again at %v", eff, wake)
	}
	d.now = t0.Add(delayMax - 1)
	if eff, wake := d.plan(pendingWithIP("10.0.0.2")); eff != nil || !wake.Equal(t0.Add(delayMax)) {
		t.Errorf("issued %v, planned again at %v", eff, wake)
	}
	snapshot := *d.Entries["u1"]
	if eff, _ := d.plan(withPhase(v1.PodRunning)); eff == nil {
		t.Error("the change to Running is delayed")
	}
	d.Entries["u1"] = &snapshot
	d.now = t0.Add(delayMax)
	if eff, _ := d.plan(pendingWithIP("10.0.0.2")); eff == nil {
		t.Error("delayed for longer than delayMax")
	}
}

// A change of a running pod that others follow soon is delayed for a second at most, and its end is
// not.
func TestDelaysChangesOfAnEnd(t *testing.T) {
	running := podObject("1", v1.PodRunning)
	running.Status.StartTime = &metav1.Time{Time: t0}
	d := newHarness(running)
	want := withPhase(v1.PodRunning)
	want.Status.PodIP, want.ChangeSoon = "10.0.0.1", true
	if eff, wake := d.plan(want); eff != nil || !wake.Equal(t0.Add(endDelayMax)) {
		t.Fatalf("issued %v, planned again at %v", eff, wake)
	}
	snapshot := *d.Entries["u1"]
	if eff, _ := d.plan(withPhase(v1.PodFailed)); eff == nil {
		t.Error("the end is delayed")
	}
	d.Entries["u1"] = &snapshot
	d.now = t0.Add(endDelayMax)
	if eff, _ := d.plan(want); eff == nil {
		t.Error("delayed for longer than endDelayMax")
	}
}

// A pod that was rejected for good has a start time, like every other. One that waits for admission
// has none: it would mean that the pod was admitted.
func TestRejectedPodHasStartTime(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	for phase, want := range map[v1.PodPhase]bool{v1.PodFailed: true, v1.PodRunning: false} {
		eff, _ := newHarness(podObject("1", v1.PodPending)).plan(withPhase(phase))
		var patch v1.Pod
		if err := json.Unmarshal(eff.Body.(*world.PatchObject).Patch, &patch); err != nil {
			t.Fatal(err)
		}
		if got := patch.Status.StartTime; (got != nil) != want {
			t.Errorf("%s: start time %v", phase, got)
		}
	}
	stored := podObject("2", v1.PodFailed)
	at := metav1.NewTime(t0.Truncate(time.Second))
	stored.Status.StartTime = &at
	d.Observe("u1", stored)
	d.now = t0.Add(time.Minute)
	if eff, _ := d.plan(withPhase(v1.PodFailed)); eff != nil {
		t.Errorf("the start time is written again: %+v", eff.Body)
	}
}

// A status differs since its first change that the server does not have. Failed writes, and changes
// while a write is in flight, do not move that time, and a change that is taken back ends it.
func TestChangedAt(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	expect := func(when string, want time.Duration) {
		t.Helper()
		got := d.ChangedAt("u1")
		if want < 0 && got.IsZero() || want >= 0 && got.Equal(t0.Add(want*time.Second)) {
			return
		}
		t.Errorf("%s: %v, want %d s after %v", when, got, want, t0)
	}
	at := func(seconds int) *harness {
		d.now = t0.Add(time.Duration(seconds) * time.Second)
		return d
	}
	withIP := Desired{Status: &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"}}
	withOtherIP := Desired{Status: &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.2"}}
	unavailable := world.Errorf(world.KindUnavailable, "PatchObject", "away")
	d.plan(withPhase(v1.PodPending))
	expect("no change", -1)
	eff, _ := at(1).plan(withPhase(v1.PodRunning))
	at(2).plan(withPhase(v1.PodRunning))
	expect("in flight", 1)
	at(3).plan(withIP)
	at(4).complete(eff, nil, unavailable)
	d.plan(withIP)
	expect("failed", 1)
	eff, _ = at(100).plan(withPhase(v1.PodRunning))
	at(101).plan(withPhase(v1.PodRunning))
	at(102).plan(withIP)
	at(103).plan(withOtherIP)
	expect("changed in flight", 1)
	at(104).complete(eff, read(podObject("2", v1.PodRunning)), nil)
	expect("written, and changed since", 102)
	eff, _ = d.plan(withIP)
	stored := podObject("3", v1.PodRunning)
	stored.Status.PodIP = "10.0.0.1"
	at(105).complete(eff, read(stored), nil)
	d.plan(withIP)
	expect("written", -1)
}

// A change counts from its first moment also if a failure before it delays the write.
func TestChangedAtDuringBackOff(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	eff, _ := d.plan(withPhase(v1.PodRunning))
	d.complete(eff, nil, world.Errorf(world.KindUnavailable, "PatchObject", "away"))
	d.Observe("u1", podObject("2", v1.PodRunning)) // another client wrote the same
	d.RetryNow("u1")
	d.plan(withPhase(v1.PodRunning))
	if got := d.ChangedAt("u1"); !got.IsZero() {
		t.Fatalf("a change that the server has: %v", got)
	}
	d.Entries["u1"].NotBefore = t0.Add(time.Minute)
	d.now = t0.Add(time.Second)
	d.plan(withPhase(v1.PodRunning))
	if got := d.ChangedAt("u1"); !got.IsZero() {
		t.Errorf("no change during the back-off: %v", got)
	}
	d.plan(withPhase(v1.PodFailed))
	if eff, _ := d.plan(withPhase(v1.PodFailed)); eff != nil || !d.ChangedAt("u1").Equal(d.now) {
		t.Errorf("changed during the back-off: %v", d.ChangedAt("u1"))
	}
}

// A status that is refused as too large is written without its lists, and the end and the deletion
// of the pod go on. A smaller status is complete again.
func TestTooLargeStatus(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	status := func(phase v1.PodPhase, containers int) Desired {
		s := &v1.PodStatus{Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReady,
			Message: strings.Repeat("m", 12<<10)}},
			AllocatedResources: v1.ResourceList{"a": {}}, Resources: &v1.ResourceRequirements{}}
		for range containers {
			s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: "c"})
		}
		return Desired{Status: s, NothingLeft: true}
	}
	version := 1
	write := func(want Desired, err *world.Error) *v1.PodStatus {
		t.Helper()
		d.now = d.now.Add(time.Minute)
		eff, _ := d.plan(want)
		if eff == nil {
			t.Fatal("nothing is written")
		}
		var patch v1.Pod
		text := string(eff.Body.(*world.PatchObject).Patch)
		for _, list := range []string{"podIPs", "hostIPs"} {
			text = strings.Replace(text, `"`+list+`":[{"$patch":"replace"}]`, `"`+list+`":null`, 1)
		}
		if err := json.Unmarshal([]byte(text), &patch); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			d.complete(eff, nil, err)
			return &patch.Status
		}
		version++
		object := podObject(strconv.Itoa(version), "")
		object.Status = patch.Status
		object.DeletionTimestamp = &metav1.Time{Time: d.now}
		d.complete(eff, read(object), nil)
		return &patch.Status
	}
	tooLarge := world.Errorf(world.KindTooLarge, "PatchObject", "etcdserver: request is too large")
	if got := write(status(v1.PodRunning, 100), tooLarge); len(got.ContainerStatuses) != 100 {
		t.Errorf("%d containers", len(got.ContainerStatuses))
	}
	for _, containers := range []int{100, 101} {
		got := write(status(v1.PodRunning, containers), nil)
		if len(got.ContainerStatuses) > 0 || got.AllocatedResources != nil || got.Resources != nil ||
			got.Reason != "StatusTooLarge" || got.Phase != v1.PodRunning ||
			len(got.Conditions) != 1 || len(got.Conditions[0].Message) != 1<<10 {
			t.Errorf("the least status is %+v", got)
		}
		if eff, _ := d.plan(status(v1.PodRunning, containers)); eff != nil {
			t.Errorf("then %+v", eff.Body)
		}
		if got := write(status(v1.PodRunning, 3), nil); len(got.ContainerStatuses) != 3 {
			t.Errorf("a smaller status has %d containers", len(got.ContainerStatuses))
		}
	}
	if got := write(status(v1.PodFailed, 100), nil); got.Phase != v1.PodFailed {
		t.Errorf("the end is %+v", got)
	}
	eff, _ := d.plan(status(v1.PodFailed, 100))
	if !d.IsTerminalWritten("u1") || eff == nil || world.CallName(eff.Body) != "DeleteObject" {
		t.Fatalf("the deletion does not go on: %+v", eff)
	}
	// An answer to the deletion says nothing about a status.
	d.complete(eff, nil, tooLarge)
	if got := d.Entries["u1"].TooLarge; got == 0 {
		t.Error("what is too large is forgotten")
	}
}

// If the least status is refused too, that says nothing about larger ones.
func TestRefusedLeastStatus(t *testing.T) {
	d := newHarness(podObject("1", v1.PodPending))
	status := func(containers int) Desired {
		s := &v1.PodStatus{Phase: v1.PodRunning}
		for range containers {
			s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: "c"})
		}
		return Desired{Status: s}
	}
	isWhole := func(eff *world.Effect) bool {
		return eff != nil && strings.Contains(string(eff.Body.(*world.PatchObject).Patch), `"name":"c"`)
	}
	for _, whole := range []bool{true, false, false} {
		d.now = d.now.Add(time.Minute)
		eff, _ := d.plan(status(100))
		if eff == nil || isWhole(eff) != whole {
			t.Fatalf("written as a whole: %t, want %t", !whole, whole)
		}
		d.complete(eff, nil, world.Errorf(world.KindTooLarge, "PatchObject", "too large"))
	}
	d.now = d.now.Add(time.Minute)
	if eff, _ := d.plan(status(50)); !isWhole(eff) {
		t.Errorf("a smaller status is not complete: %+v", eff)
	}
}
