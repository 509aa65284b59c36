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
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 123_456_789, time.UTC)

// harness is a lease and an API server.
type harness struct {
	lease   *Lease
	node    types.UID
	awaited world.OpID // as the lease has requested
	read    world.OpID // the newest operation that was answered with the Node
	late    bool       // nothing is answered with the Node
	table   op.Table
	effects op.Effects
	now     time.Time
	wake    time.Time
	issued  *world.Effect // and not completed yet
	stored  *coordinationv1.Lease
	version int
}

func newHarness() *harness {
	return &harness{lease: &Lease{Node: "n1", Duration: 40 * time.Second}, node: "uid-1", now: t0}
}

// plan plans the lease, and returns the issued call.
func (r *harness) plan(after time.Duration) string {
	r.now = r.now.Add(after)
	r.effects.Reset(&r.table, r.now)
	r.wake = r.lease.Plan(r, &r.effects)
	if r.lease.AwaitsNode() && !r.late {
		r.read = r.awaited
		r.wake = r.lease.Plan(r, &r.effects)
	}
	r.issued = nil
	for _, eff := range r.effects.List() {
		if eff.Op != 0 {
			r.issued = &eff
			return world.CallName(eff.Body)
		}
	}
	return ""
}

// UID, Await and HasAnswered are those of the Node.
func (r *harness) UID() types.UID                 { return r.node }
func (r *harness) Await(id world.OpID)            { r.awaited = id }
func (r *harness) HasAnswered(id world.OpID) bool { return r.read >= id }

// complete completes the issued operation.
func (r *harness) complete(body any, err *world.Error) bool {
	record, ok := r.table.Complete(r.issued.Op)
	if !ok {
		panic("no operation was issued")
	}
	r.effects.Reset(&r.table, r.now)
	return r.lease.HandleCompletion(7, record, world.Event{Time: r.now, Body: body, Err: err},
		&r.effects)
}

// serve executes the issued request as an API server does.
func (r *harness) serve() (any, *world.Error) {
	if r.stored == nil {
		if m, is := r.issued.Body.(*world.CreateObject); is {
			return r.write(m.Object.Lease), nil
		}
		return nil, world.Errorf(world.KindNotFound, "", "no lease")
	}
	switch m := r.issued.Body.(type) {
	case *world.CreateObject:
		return nil, world.Errorf(world.KindExists, "", "the lease exists")
	case *world.UpdateObject:
		if m.Object.Lease.ResourceVersion != r.stored.ResourceVersion {
			return nil, world.Errorf(world.KindConflict, "", "another version")
		}
		return r.write(m.Object.Lease), nil
	}
	return &world.ObjectRead{Object: world.Object{Lease: r.stored}}, nil
}

func (r *harness) write(l *coordinationv1.Lease) any {
	r.version++
	r.stored = l.DeepCopy()
	r.stored.ResourceVersion = strconv.Itoa(r.version)
	return &world.ObjectRead{Object: world.Object{Lease: r.stored}}
}

// untilDue returns the time until the next request is due.
func (r *harness) untilDue() time.Duration { return max(0, r.lease.NextAt.Sub(r.now)) }

// step plans after a while, expects a call and completes it.
func (r *harness) step(t *testing.T, after time.Duration, want string) {
	t.Helper()
	if got := r.plan(after); got != want {
		t.Fatalf("issued %q, want %q", got, want)
	}
	if want != "" {
		r.complete(r.serve())
	}
}

// The lease has the date of its renewal, also if it is created after the date was changed.
func TestLeaseHasTheDate(t *testing.T) {
	r := newHarness()
	wall := &timer.WallClock{}
	wall.Record(t0, -3*time.Hour)
	r.effects.SetWall(wall)
	r.step(t, 0, "GetObject")
	for _, call := range []string{"CreateObject", "UpdateObject"} {
		r.step(t, r.untilDue(), call)
		want := r.now.Add(-3 * time.Hour).Truncate(time.Microsecond)
		if got := r.stored.Spec.RenewTime.Time; !got.Equal(want) {
			t.Errorf("%s: the lease was renewed at %v, want %v", call, got, want)
		}
	}
}

func TestLeaseIsCreatedAndRenewed(t *testing.T) {
	r := newHarness()
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
	if d := cmp.Diff(want, r.stored); d != "" {
		t.Error(d)
	}
	r.step(t, 9*time.Second, "")
	if late := r.wake.Sub(t0); late < 10*time.Second || late > 10400*time.Millisecond {
		t.Errorf("renewed after %s", late)
	}
	r.step(t, r.wake.Sub(r.now), "UpdateObject")
	if got := r.stored.Spec.RenewTime; !got.Time.Equal(r.now.Truncate(time.Microsecond)) {
		t.Errorf("renewed at %v, want %v", got, r.now)
	}
}

// A snapshot keeps the time of a renewal exactly.
func TestRenewTimeSurvivesJSON(t *testing.T) {
	r := newHarness()
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

func TestNoLeaseWithoutNode(t *testing.T) {
	r := newHarness()
	r.node = ""
	r.step(t, 0, "GetObject")
	r.step(t, 0, "")
	r.step(t, time.Second, "") // the Node is read again after seven seconds, or
	r.node = "uid-1"
	r.lease.NodeObserved()
	r.step(t, 0, "CreateObject")
	r.node = "" // the Node was deleted: its lease is renewed nevertheless, as the kubelet does
	r.step(t, r.untilDue(), "UpdateObject")
	r.node, r.version = "uid-2", 40 // the Node was created again
	r.step(t, r.untilDue(), "UpdateObject")
	if owner := r.stored.OwnerReferences; len(owner) != 1 || owner[0].UID != "uid-2" {
		t.Errorf("owned by %v", owner)
	}
	r.stored = nil // garbage-collected with the first Node
	r.step(t, r.untilDue(), "UpdateObject")
	r.step(t, r.untilDue(), "CreateObject")
}

// The Node is read before the lease is created: what was known when it was missing may be the Node
// with which it was garbage-collected.
func TestNodeIsReadBeforeCreation(t *testing.T) {
	r := newHarness()
	r.late = true
	r.step(t, 0, "GetObject")
	r.step(t, 0, "")
	if r.awaited != 2 || !r.wake.IsZero() {
		t.Fatalf("awaits operation %d, plans again at %v", r.awaited, r.wake)
	}
	r.step(t, time.Minute, "")
	r.read, r.node = 1, "uid-0"
	r.step(t, 0, "")
	r.read, r.node, r.table.LastID = 2, "", 2 // there is none
	r.step(t, 0, "")
	if !r.wake.Equal(r.now.Add(retryMax)) {
		t.Fatalf("plans again after %v", r.wake.Sub(r.now))
	}
	r.step(t, retryMax, "")
	r.read, r.node = r.awaited, "uid-1"
	r.step(t, 0, "CreateObject")
	if owner := r.stored.OwnerReferences; len(owner) != 1 || owner[0].UID != "uid-1" {
		t.Errorf("owned by %v", owner)
	}
	r.stored = nil
	r.step(t, r.untilDue(), "UpdateObject")
	r.step(t, r.untilDue(), "")
	if r.awaited < 4 {
		t.Errorf("awaits operation %d", r.awaited)
	}
}

func TestConflictIsReadAndRetried(t *testing.T) {
	r := newHarness()
	r.step(t, 0, "GetObject")
	r.step(t, 0, "CreateObject")
	r.stored.ResourceVersion = "77" // another client has changed the lease
	r.lease.Object = r.lease.Object.DeepCopy()
	r.lease.Object.ResourceVersion = "1"
	r.step(t, r.untilDue(), "UpdateObject")
	r.step(t, 100*time.Millisecond, "")
	r.step(t, 100*time.Millisecond, "GetObject")
	r.step(t, 0, "UpdateObject")
	if r.lease.Failures != 0 || !r.lease.RenewedAt.Equal(r.now) {
		t.Errorf("not renewed: %+v", r.lease)
	}
}

func TestRetriesNeverEnd(t *testing.T) {
	r := newHarness()
	refused := world.Errorf(world.KindRefused, "", "not yet")
	throttled := &world.Error{Kind: world.KindThrottled, RetryAfter: time.Hour}
	for i, err := range []*world.Error{refused, refused, throttled, refused, refused, refused,
		refused, refused, throttled, refused} {
		if got := r.plan(r.untilDue()); i > 0 && got != "GetObject" || r.issued == nil {
			t.Fatalf("issued %q after %d failures", got, i)
		}
		r.complete(nil, err)
		if wait := r.lease.NextAt.Sub(r.now); wait < retryFirst || wait > retryMax {
			t.Fatalf("waits %s after %d failures", wait, i+1)
		}
	}
}

// With an API server that responds within a second and fails at times, in any way, the gaps between
// renewals stay below the duration: with at most three consecutive failures, one of them a request
// that never completes.
func TestRenewalGapsStayBelowDuration(t *testing.T) {
	kinds := []world.ErrorKind{world.KindConflict, world.KindThrottled, world.KindUnavailable,
		world.KindInternal, world.KindRefused, world.KindTimeout, ""}
	rapid.Check(t, func(t *rapid.T) {
		r := newHarness()
		r.now = t0
		failures, hung, last := 0, false, t0
		for range 60 {
			if r.plan(r.untilDue()) == "" {
				t.Fatalf("nothing issued at %v, next at %v", r.now, r.lease.NextAt)
			}
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			if failures == 3 || hung && kind == world.KindTimeout {
				kind = ""
			}
			body, err := any(nil), (*world.Error)(nil)
			if kind == "" || rapid.Bool().Draw(t, "done") {
				body, err = r.serve() // even if the response is lost
			}
			latency := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "latency"))
			switch kind {
			case "":
			case world.KindTimeout:
				latency, hung = r.issued.Deadline.Sub(r.now), true
				fallthrough
			default:
				body, err = nil, world.Errorf(kind, "", "injected")
				failures++
			}
			began := r.now
			r.now = r.now.Add(latency)
			if r.complete(body, err) {
				if gap := began.Sub(last); gap > 40*time.Second {
					t.Fatalf("%s between two renewals", gap)
				}
				last, failures, hung = began, 0, false
			}
		}
	})
}
