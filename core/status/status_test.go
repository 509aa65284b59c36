package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// desk is a writer, and what it hands out.
type desk struct {
	Writer
	table op.Table
	out   op.Out
	now   time.Time
}

func newDesk(object *v1.Pod) *desk {
	d := &desk{now: t0}
	d.Observe("u1", object)
	return d
}

// plan returns the one effect that a plan hands out, nil for none, and when it is called again.
func (d *desk) plan(want Want) (*world.Effect, time.Time) {
	d.out.Begin(&d.table, d.now)
	wake := d.Plan("u1", want, &d.out)
	if effects := d.out.Take(); len(effects) > 0 {
		return &effects[0], wake
	}
	return nil, wake
}

func (d *desk) answer(eff *world.Effect, body any, err *world.Error) {
	r, _ := d.table.Settle(eff.Op)
	d.Answered(eff.Op, r, world.Event{Time: d.now, Op: eff.Op, Body: body, Err: err}, &d.out)
}

func aPod(version string, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", Name: "p", ResourceVersion: version},
		Status: v1.PodStatus{Phase: phase}}
}

func is(phase v1.PodPhase) Want { return Want{Status: &v1.PodStatus{Phase: phase}} }

func read(p *v1.Pod) *world.ObjectRead { return &world.ObjectRead{Object: world.Object{Pod: p}} }

func TestWritesTheDifferenceOnce(t *testing.T) {
	d := newDesk(aPod("1", v1.PodPending))
	if eff, _ := d.plan(is(v1.PodPending)); eff != nil {
		t.Fatalf("nothing is different, yet %+v", eff.Body)
	}
	eff, _ := d.plan(is(v1.PodRunning))
	if again, _ := d.plan(is(v1.PodRunning)); eff == nil || again != nil {
		t.Fatalf("asked for %v, and then for %v", eff, again)
	}
	d.answer(eff, read(aPod("2", v1.PodRunning)), nil)
	d.Observe("u1", aPod("1", v1.PodPending)) // the watch is late
	if eff, _ := d.plan(is(v1.PodRunning)); eff != nil {
		t.Errorf("written again: %+v", eff.Body)
	}
}

// What the server leaves out of a status is not written for ever, but is when the object changes.
func TestServerThatLeavesSomethingOut(t *testing.T) {
	d := newDesk(aPod("1", v1.PodPending))
	eff, _ := d.plan(is(v1.PodRunning))
	d.answer(eff, read(aPod("1", v1.PodPending)), nil)
	if eff, _ := d.plan(is(v1.PodRunning)); eff != nil {
		t.Errorf("written again: %+v", eff.Body)
	}
	d.Observe("u1", aPod("7", v1.PodPending))
	if eff, _ := d.plan(is(v1.PodRunning)); eff == nil {
		t.Error("the status was overwritten, and is left so")
	}
}

func TestWaitsAfterAFailure(t *testing.T) {
	d := newDesk(aPod("1", v1.PodPending))
	eff, _ := d.plan(is(v1.PodRunning))
	throttled := world.Errorf(world.KindThrottled, "PatchObject", "slow down")
	throttled.RetryAfter = 7 * time.Second
	d.answer(eff, nil, throttled)
	if eff, wake := d.plan(is(v1.PodRunning)); eff != nil || !wake.Equal(t0.Add(7*time.Second)) {
		t.Errorf("asked for %v, wants to be called at %v", eff, wake)
	}
	d.now = t0.Add(7 * time.Second)
	if eff, _ := d.plan(is(v1.PodRunning)); eff == nil {
		t.Error("not tried again")
	}
}

// Another object of the same name gets nothing of what was meant for the one before it.
func TestAnotherObject(t *testing.T) {
	d := newDesk(aPod("1", v1.PodPending))
	eff, _ := d.plan(is(v1.PodRunning))
	other := aPod("2", v1.PodPending)
	other.UID = "m2"
	d.Observe("u1", other)
	d.answer(eff, read(aPod("3", v1.PodRunning)), nil)
	if got := d.Entries["u1"].Stored.UID; got != "m2" {
		t.Errorf("an answer about the object before it was taken: %s", got)
	}
}

func TestRemovesWhatIsOver(t *testing.T) {
	doomed := aPod("1", v1.PodRunning)
	doomed.DeletionTimestamp = &metav1.Time{Time: t0}
	d := newDesk(doomed)
	if eff, _ := d.plan(Want{Gone: true}); eff != nil {
		t.Fatalf("removed before it was over: %+v", eff.Body)
	}
	over := doomed.DeepCopy()
	over.Status.Phase, over.ResourceVersion = v1.PodFailed, "2"
	d.Observe("u1", over)
	eff, _ := d.plan(Want{Gone: true})
	if eff == nil || eff.Body.(*world.DeleteObject).UID != "u1" {
		t.Fatalf("asked for %+v", eff)
	}
	d.answer(eff, nil, world.Errorf(world.KindNotFound, "DeleteObject", "no such pod"))
	if eff, _ := d.plan(Want{Gone: true}); eff != nil {
		t.Errorf("removed twice: %+v", eff.Body)
	}
}

// Who lost a race writes again as soon as it is seen who won.
func TestConflict(t *testing.T) {
	d := newDesk(aPod("1", v1.PodPending))
	eff, _ := d.plan(is(v1.PodRunning))
	d.answer(eff, nil, world.Errorf(world.KindConflict, "PatchObject", "it has changed"))
	if eff, wake := d.plan(is(v1.PodRunning)); eff != nil || wake.IsZero() {
		t.Errorf("written at once with what is outdated: %v", eff)
	}
	d.Observe("u1", aPod("2", v1.PodPending))
	if eff, _ := d.plan(is(v1.PodRunning)); eff == nil {
		t.Error("not written although the newest state is known")
	}
}

// What a pending pod has reached is told with what comes next, if that is soon. That it was taken
// does not wait, and neither does that it runs.
func TestWaitsForWhatComesSoon(t *testing.T) {
	reached := func(ip string) Want {
		want := is(v1.PodPending)
		want.Status.PodIP, want.Soon = ip, true
		return want
	}
	d := newDesk(aPod("1", v1.PodPending))
	if eff, _ := d.plan(reached("10.0.0.1")); eff == nil {
		t.Fatal("it waits to tell that the pod was taken")
	}
	taken := aPod("1", v1.PodPending)
	taken.Status.StartTime = &metav1.Time{Time: t0}
	d = newDesk(taken)
	if eff, wake := d.plan(reached("10.0.0.1")); eff != nil || !wake.Equal(t0.Add(patience)) {
		t.Fatalf("asked for %v, wants to be called at %v", eff, wake)
	}
	d.now = t0.Add(patience - 1)
	if eff, wake := d.plan(reached("10.0.0.2")); eff != nil || !wake.Equal(t0.Add(patience)) {
		t.Errorf("asked for %v, wants to be called at %v", eff, wake)
	}
	snapshot := *d.Entries["u1"]
	if eff, _ := d.plan(is(v1.PodRunning)); eff == nil {
		t.Error("it waits to tell that the pod runs")
	}
	d.Entries["u1"] = &snapshot
	d.now = t0.Add(patience)
	if eff, _ := d.plan(reached("10.0.0.2")); eff == nil {
		t.Error("it waits for longer than its patience")
	}
}
