package lease

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 123_456_789, time.UTC)

// rig is a lease and a server that has it, or not.
type rig struct {
	lease   *Lease
	node    types.UID
	table   op.Table
	out     op.Out
	now     time.Time
	wake    time.Time
	asked   *world.Effect // and not answered yet
	there   *coordinationv1.Lease
	version int
}

func newRig() *rig {
	return &rig{lease: &Lease{Node: "n1", Duration: 40 * time.Second}, node: "uid-1", now: t0}
}

// plan plans the lease, and says what it asked for.
func (r *rig) plan(after time.Duration) string {
	r.now = r.now.Add(after)
	r.out.Begin(&r.table, r.now)
	r.wake = r.lease.Plan(r.node, &r.out)
	r.asked = nil
	for _, eff := range r.out.Take() {
		if eff.Op != 0 {
			r.asked = &eff
			return world.Call(eff.Body)
		}
	}
	return ""
}

// answer hands the answer to what was asked to the lease.
func (r *rig) answer(body any, err *world.Error) bool {
	record, ok := r.table.Settle(r.asked.Op)
	if !ok {
		panic("asked for nothing")
	}
	r.out.Begin(&r.table, r.now)
	return r.lease.Answered(7, record, world.Event{Time: r.now, Body: body, Err: err}, &r.out)
}

// serve does what was asked, as an API server does.
func (r *rig) serve() (any, *world.Error) {
	if r.there == nil {
		if m, is := r.asked.Body.(*world.CreateObject); is {
			return r.store(m.Object.Lease), nil
		}
		return nil, world.Errorf(world.KindNotFound, "", "no lease")
	}
	switch m := r.asked.Body.(type) {
	case *world.CreateObject:
		return nil, world.Errorf(world.KindExists, "", "there is one")
	case *world.UpdateObject:
		if m.Object.Lease.ResourceVersion != r.there.ResourceVersion {
			return nil, world.Errorf(world.KindConflict, "", "it is another one")
		}
		return r.store(m.Object.Lease), nil
	}
	return &world.ObjectRead{Object: world.Object{Lease: r.there}}, nil
}

func (r *rig) store(l *coordinationv1.Lease) any {
	r.version++
	r.there = l.DeepCopy()
	r.there.ResourceVersion = strconv.Itoa(r.version)
	return &world.ObjectRead{Object: world.Object{Lease: r.there}}
}

// due is how long it is until something is to be asked.
func (r *rig) due() time.Duration { return max(0, r.lease.NextAt.Sub(r.now)) }

// step plans after a while, expects a call and serves it.
func (r *rig) step(t *testing.T, after time.Duration, want string) {
	t.Helper()
	if got := r.plan(after); got != want {
		t.Fatalf("asks for %q, want %q", got, want)
	}
	if want != "" {
		r.answer(r.serve())
	}
}

func TestALeaseIsMadeAndRenewed(t *testing.T) {
	r := newRig()
	r.step(t, 0, "GetObject")
	r.step(t, 0, "CreateObject")
	name, seconds := "n1", int32(40)
	renewal := metav1.NewMicroTime(t0.Truncate(time.Microsecond))
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1",
				UID: "uid-1"}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds,
			RenewTime: &renewal},
	}
	if d := cmp.Diff(want, r.there); d != "" {
		t.Error(d)
	}
	r.step(t, 9*time.Second, "")
	if late := r.wake.Sub(t0); late < 10*time.Second || late > 10400*time.Millisecond {
		t.Errorf("renewed after %s", late)
	}
	r.step(t, r.wake.Sub(r.now), "UpdateObject")
	if got := r.there.Spec.RenewTime; !got.Time.Equal(r.now.Truncate(time.Microsecond)) {
		t.Errorf("renewed at %v, want %v", got, r.now)
	}
}

// What is in the state is what a snapshot brings back.
func TestTheTimeOfARenewalSurvivesJSON(t *testing.T) {
	r := newRig()
	r.step(t, 0, "GetObject")
	r.step(t, 0, "CreateObject")
	data, err := json.Marshal(r.lease)
	if err != nil {
		t.Fatal(err)
	}
	var again Lease
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if !again.Object.Spec.RenewTime.Equal(r.lease.Object.Spec.RenewTime) {
		t.Errorf("%v became %v", r.lease.Object.Spec.RenewTime, again.Object.Spec.RenewTime)
	}
}

func TestNoLeaseWithoutANode(t *testing.T) {
	r := newRig()
	r.node = ""
	r.step(t, 0, "GetObject")
	r.step(t, 0, "")
	r.node = "uid-1"
	r.step(t, 0, "CreateObject")
	r.node = "" // the Node was deleted: what there is is renewed all the same, as the kubelet does
	r.step(t, r.due(), "UpdateObject")
	r.node, r.version = "uid-2", 40 // and made anew
	r.step(t, r.due(), "UpdateObject")
	if owner := r.there.OwnerReferences; len(owner) != 1 || owner[0].UID != "uid-2" {
		t.Errorf("owned by %v", owner)
	}
	r.there = nil // collected with the first Node
	r.step(t, r.due(), "UpdateObject")
	r.step(t, r.due(), "CreateObject")
}

func TestAConflictIsReadAndTriedAgain(t *testing.T) {
	r := newRig()
	r.step(t, 0, "GetObject")
	r.step(t, 0, "CreateObject")
	r.there.ResourceVersion = "77" // somebody has changed it
	r.lease.Object = r.lease.Object.DeepCopy()
	r.lease.Object.ResourceVersion = "1"
	r.step(t, r.due(), "UpdateObject")
	r.step(t, 100*time.Millisecond, "")
	r.step(t, 100*time.Millisecond, "GetObject")
	r.step(t, 0, "UpdateObject")
	if r.lease.Failures != 0 || !r.lease.RenewedAt.Equal(r.now) {
		t.Errorf("not renewed: %+v", r.lease)
	}
}

func TestItNeverStopsTrying(t *testing.T) {
	r := newRig()
	refused := world.Errorf(world.KindRefused, "", "not yet")
	throttled := &world.Error{Kind: world.KindThrottled, RetryAfter: time.Hour}
	for i, err := range []*world.Error{refused, refused, throttled, refused, refused, refused,
		refused, refused, throttled, refused} {
		if got := r.plan(r.due()); i > 0 && got != "GetObject" || r.asked == nil {
			t.Fatalf("asks for %q after %d failures", got, i)
		}
		r.answer(nil, err)
		if wait := r.lease.NextAt.Sub(r.now); wait < retryFirst || wait > retryMost {
			t.Fatalf("waits %s after %d failures", wait, i+1)
		}
	}
}

// A server that answers in a second and fails now and then, in whatever way, sees the node alive:
// at most three failures in a row, of which one is a call that is never answered.
func TestTheGapBetweenRenewalsStaysBelowTheDuration(t *testing.T) {
	kinds := []world.ErrorKind{world.KindConflict, world.KindThrottled, world.KindUnavailable,
		world.KindInternal, world.KindRefused, world.KindTimeout, ""}
	rapid.Check(t, func(t *rapid.T) {
		r := newRig()
		r.now = t0
		failures, hung, last := 0, false, t0
		for range 60 {
			if r.plan(r.due()) == "" {
				t.Fatalf("asks for nothing at %v, next at %v", r.now, r.lease.NextAt)
			}
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			if failures == 3 || hung && kind == world.KindTimeout {
				kind = ""
			}
			body, err := any(nil), (*world.Error)(nil)
			if kind == "" || rapid.Bool().Draw(t, "done") {
				body, err = r.serve() // even if the answer is lost
			}
			latency := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "latency"))
			switch kind {
			case "":
			case world.KindTimeout:
				latency, hung = r.asked.Deadline.Sub(r.now), true
				fallthrough
			default:
				body, err = nil, world.Errorf(kind, "", "drawn")
				failures++
			}
			began := r.now
			r.now = r.now.Add(latency)
			if r.answer(body, err) {
				if gap := began.Sub(last); gap > 40*time.Second {
					t.Fatalf("%s between two renewals", gap)
				}
				last, failures, hung = began, 0, false
			}
		}
	})
}
