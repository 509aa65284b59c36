package objectcache

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// harness is a store that reads one Secret.
type harness struct {
	*testing.T
	store  Store
	table  op.Table
	out    op.Effects
	now    time.Duration // since t0
	issued []world.OpID
	wake   time.Time
}

func newHarness(t *testing.T, s Strategy) *harness {
	return &harness{T: t, store: Store{Strategy: s}}
}

func (r *harness) begin(at time.Duration) {
	r.now = at
	r.out.Reset(&r.table, t0.Add(at))
}

func (r *harness) addReference(user string) {
	r.begin(r.now)
	r.store.AddReference(secretTarget, user, &r.out)
	if issued := r.out.List(); len(issued) > 0 {
		r.Fatalf("%v issued for a reference", issued)
	}
}

// plan plans at a time, and reports whether a read was issued.
func (r *harness) plan(at time.Duration) bool {
	r.Helper()
	r.begin(at)
	key, isRead := r.store.ReadKey(secretTarget)
	if !isRead {
		r.Fatal("the target is not read")
	}
	r.wake = r.store.Plan(key, &r.out)
	for _, eff := range r.out.List() {
		if get := eff.Body.(*world.GetObject); get.Name != "keys" || get.Namespace != "a" {
			r.Fatalf("the wrong object is read: %+v", get)
		}
		r.issued = append(r.issued, eff.Op)
		return true
	}
	return false
}

// complete completes the newest read with a version or an error.
func (r *harness) complete(at time.Duration, version string, immutable bool,
	err *world.Error) bool {
	r.Helper()
	id := r.issued[len(r.issued)-1]
	record, ok := r.table.Complete(id)
	if !ok {
		r.Fatal("completed twice")
	}
	ev := world.Event{Time: t0.Add(at), Op: id, Err: err}
	if err == nil {
		ev.Body = &world.ObjectRead{Object: world.Object{Secret: &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "keys", ResourceVersion: version},
			Immutable:  &immutable}}}
	}
	_, enqueued := r.store.HandleCompletion(id, record, ev)
	return enqueued
}

func (r *harness) expectVersion(version string) {
	r.Helper()
	o, known := r.store.Get(secretTarget.Resource, "a", "keys")
	got := ""
	if o != nil {
		got = o.Secret.ResourceVersion
	}
	if !known || got != version {
		r.Fatalf("known %v, has version %q, want %q", known, got, version)
	}
}

// With the strategy Cache an object is read again after its TTL, at a sync of the pods; with Get at
// each sync.
func TestPeriodicRead(t *testing.T) {
	for _, c := range []struct {
		strategy Strategy
		period   time.Duration
	}{
		{Strategy{SyncPeriod: time.Minute}, time.Minute},
		{Strategy{SyncPeriod: time.Minute, Cached: true, TTL: 0}, time.Minute},
		{Strategy{SyncPeriod: time.Minute, Cached: true, TTL: 5 * time.Minute}, 5 * time.Minute},
	} {
		r := newHarness(t, c.strategy)
		if r.addReference("x"); !r.plan(0) || r.plan(0) {
			t.Fatal("not read exactly once")
		}
		if !r.complete(time.Second, "1", false, nil) {
			t.Error("a waiting user is not planned")
		}
		r.expectVersion("1")
		if r.plan(c.period-1) || !r.wake.Equal(t0.Add(c.period)) || !r.plan(c.period) {
			t.Errorf("%+v: not read again after %v", c.strategy, c.period)
		}
		if r.complete(c.period+1, "1", false, nil) {
			t.Error("users are planned without a change")
		}
		r.plan(2 * c.period)
		if !r.complete(2*c.period+1, "2", false, nil) {
			t.Error("users are not planned for a new version")
		}
	}
}

// An object is read at once for a new user. A read in flight whose users have gone is dropped.
func TestReadForNewUser(t *testing.T) {
	r := newHarness(t, Strategy{SyncPeriod: time.Minute, Cached: true, TTL: time.Minute})
	r.addReference("x")
	r.plan(0)
	r.complete(0, "1", true, nil)
	if r.plan(time.Hour) || !r.wake.IsZero() {
		t.Error("an immutable object is read again")
	}
	r.addReference("y")
	if r.expectVersion("1"); !r.plan(time.Hour) {
		t.Error("not read for a new user")
	}
	r.store.DeleteReference(secretTarget, "x", &r.out)
	r.store.DeleteReference(secretTarget, "y", &r.out)
	if r.complete(time.Hour, "2", false, nil) || r.store.Dropped != 1 {
		t.Error("the completion of a target without users was not dropped")
	}
	if r.plan(2*time.Hour) || len(r.out.List()) > 0 {
		t.Error("read without a user")
	}
}

// While reads fail, the known version stays; an absent object is read again soon.
func TestReadFails(t *testing.T) {
	away := world.Errorf(world.KindUnavailable, "", "away")
	none := world.Errorf(world.KindNotFound, "", "no keys")
	busy := &world.Error{Kind: world.KindThrottled, RetryAfter: 20 * time.Second}
	r := newHarness(t, Strategy{SyncPeriod: time.Minute})
	r.addReference("x")
	r.plan(0)
	if !r.complete(0, "", false, away) ||
		r.store.Lookup(secretTarget.Resource, "a", "keys").Err == nil {
		t.Error("a waiting user is not planned after a failure")
	}
	if r.plan(0) || !r.plan(time.Second) {
		t.Errorf("not read again a second after it failed, but at %v", r.wake)
	}
	r.complete(time.Second, "", false, busy)
	if r.plan(20*time.Second) || !r.plan(21*time.Second) {
		t.Errorf("not read again after the server's retry time, but at %v", r.wake)
	}
	if !r.complete(21*time.Second, "", false, none) {
		t.Error("users are not planned for an absence")
	}
	if r.expectVersion(""); r.plan(23*time.Second) || !r.plan(25*time.Second) {
		t.Errorf("an absent object is not read again soon, but at %v", r.wake)
	}
	r.complete(25*time.Second, "1", false, nil)
	r.plan(85 * time.Second)
	if r.complete(85*time.Second, "", false, away) {
		t.Error("users with a known version are planned after a failure")
	}
	r.expectVersion("1")
	if !r.plan(86 * time.Second) {
		t.Error("not read again after a failure")
	}
	r.complete(86*time.Second, "", false, none)
	r.expectVersion("")
}

// A container is created from a version read after the need for it, unless the strategy is Cache.
func TestRequireSince(t *testing.T) {
	for _, cached := range []bool{false, true} {
		r := newHarness(t, Strategy{SyncPeriod: time.Minute, Cached: cached, TTL: time.Minute})
		r.addReference("x")
		r.plan(0)
		r.complete(0, "1", false, nil)
		at := 10 * time.Second
		if r.store.RequireSince(secretTarget, t0.Add(at)) == cached || r.plan(at) == cached {
			t.Errorf("cached %v: want a read without the cache, no read with it", cached)
		}
		if cached {
			continue
		}
		if !r.complete(at, "", false, world.Errorf(world.KindTimeout, "", "")) ||
			r.store.RequireSince(secretTarget, t0.Add(at)) {
			t.Error("the caller waits for an object that cannot be read")
		}
		if !r.plan(at+time.Second) || !r.complete(at+time.Second, "1", false, nil) {
			t.Error("not read again, or users are not planned")
		}
		if r.store.RequireSince(secretTarget, t0.Add(at)) {
			t.Error("a second read is required")
		}
	}
}

func TestTTLFromNode(t *testing.T) {
	node := func(ttl string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1.ObjectTTLAnnotationKey: ttl}}}
	}
	s := Strategy{SyncPeriod: time.Second, Cached: true, TTL: time.Minute}
	for _, step := range []struct {
		node    *v1.Node
		changed bool
		want    time.Duration
	}{
		{nil, false, time.Minute}, {node("300"), true, 5 * time.Minute},
		{node("300"), false, 5 * time.Minute}, {node("0"), true, time.Second},
		{node("many"), true, time.Minute}, {node("-3"), false, time.Minute},
	} {
		if changed := s.ObserveNode(step.node); changed != step.changed || s.AgeMax() != step.want {
			t.Errorf("%v: changed %v, age max %v, want %v", step.node, changed, s.AgeMax(), step.want)
		}
	}
	get := Strategy{SyncPeriod: time.Minute}
	if get.ObserveNode(node("300")) || get.AgeMax() != time.Minute {
		t.Error("the TTL applies without the cache")
	}
}

// Claims are read whatever the strategy is: again after a back-off while a claim is not bound, and
// each minute afterwards.
func TestReadClaim(t *testing.T) {
	r := newHarness(t, Strategy{})
	target := world.WatchTarget{Resource: world.ResourceClaims, Namespace: "a", Name: "c"}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}}
	r.begin(0)
	r.store.AddReference(target, "x", &r.out)
	key, isRead := r.store.ReadKey(target)
	if !isRead || len(r.out.List()) > 0 {
		t.Fatal("a claim is watched")
	}
	var failure *world.Error
	readAt := func(at time.Duration) {
		t.Helper()
		if r.begin(at - 1); at > 0 && !r.store.Plan(key, &r.out).Equal(t0.Add(at)) {
			t.Errorf("no read is planned at %v", at)
		}
		r.begin(at)
		r.store.Plan(key, &r.out)
		if len(r.out.List()) != 1 {
			t.Fatalf("not read at %v", at)
		}
		eff := r.out.List()[0]
		record, _ := r.table.Complete(eff.Op)
		ev := world.Event{Time: t0.Add(at), Op: eff.Op, Err: failure}
		if failure == nil {
			ev.Body = &world.ObjectRead{Object: world.Object{Claim: claim.DeepCopy()}}
		}
		r.store.HandleCompletion(eff.Op, record, ev)
	}
	readAt(0)
	readAt(time.Second)
	claim.Status.Phase, claim.Spec.VolumeName = v1.ClaimBound, "pv"
	readAt(3 * time.Second)
	readAt(63 * time.Second)
	failure = world.Errorf(world.KindRefused, "GetObject", "no relationship found") // nothing waits
	readAt(123 * time.Second)
	readAt(183 * time.Second)
}

// An object that a waiting user cannot use is read again after a quarter of a second, then with a
// back-off, until the user can use it or has gone.
func TestUnusable(t *testing.T) {
	r := newHarness(t, Strategy{SyncPeriod: time.Minute})
	r.addReference("x")
	r.plan(0)
	r.complete(0, "1", false, nil)
	set := func(at time.Duration, user string, usable, want bool) {
		t.Helper()
		if r.store.SetUsable(secretTarget, user, usable, t0.Add(at)) != want {
			t.Errorf("at %v, usable to %s: %v: not %v", at, user, usable, want)
		}
	}
	set(0, "x", true, false)
	set(0, "x", false, true)
	set(0, "x", false, false)
	at := 250 * time.Millisecond
	for i, next := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		if r.plan(at-1) || !r.plan(at) {
			t.Fatalf("not read at %v, but at %v", at, r.wake)
		}
		// Another version each time, of which the user knows nothing yet or cannot use it either.
		r.complete(at, fmt.Sprint(2+i), false, nil)
		set(at, "x", false, false)
		at += next
	}
	r.plan(at)
	r.complete(at, "7", false, nil)
	if set(at, "x", true, false); r.plan(at+time.Minute-1) || !r.plan(at+time.Minute) {
		t.Errorf("one that is usable is not read again after a minute, but at %v", r.wake)
	}
	r.complete(at+time.Minute, "7", false, nil)
	r.addReference("y")
	set(at+time.Minute, "x", false, true)
	set(at+time.Minute, "y", false, false)
	r.store.DeleteReference(secretTarget, "x", &r.out)
	if !r.plan(at + time.Minute + 250*time.Millisecond) {
		t.Errorf("one of two users has gone, and it is read at %v", r.wake)
	}
	at += time.Minute + 250*time.Millisecond
	r.complete(at, "7", false, nil)
	if set(at, "y", true, false); r.plan(at+time.Minute-1) || !r.plan(at+time.Minute) {
		t.Errorf("all can use it, and it is read at %v", r.wake)
	}
	if r.store.SetUsable(world.WatchTarget{Resource: world.ResourceSecrets}, "x", false, t0) {
		t.Error("an object without users is unusable")
	}
}

// newUnusable returns a harness whose object was read, and which its user cannot use.
func newUnusable(t *testing.T) *harness {
	r := newHarness(t, Strategy{SyncPeriod: time.Minute})
	r.addReference("x")
	r.plan(0)
	r.complete(0, "1", false, nil)
	r.store.SetUsable(secretTarget, "x", false, t0)
	return r
}

// A tenant who changes what a pod waits for has it read no more often.
func TestUnusableThatChanges(t *testing.T) {
	r := newUnusable(t)
	reads := 0
	for at := time.Duration(0); at < 5*time.Minute; at += 50 * time.Millisecond {
		if r.plan(at) {
			reads++
			r.complete(at, fmt.Sprint(at), false, nil)
			r.store.SetUsable(secretTarget, "x", false, t0.Add(at))
		}
	}
	if reads < 14 || reads > 18 { // seven until the back-off is at its limit
		t.Errorf("%d reads in five minutes", reads)
	}
}

// One that could not be used and is removed is read again soon, since it may be created again.
func TestUnusableThatIsRemoved(t *testing.T) {
	r := newUnusable(t)
	at := 250 * time.Millisecond
	r.plan(at)
	r.complete(at, "", false, world.Errorf(world.KindNotFound, "GetObject", "not found"))
	r.store.SetUsable(secretTarget, "x", true, t0.Add(at)) // there is none that it could not use
	if at += 500 * time.Millisecond; r.plan(at-1) || !r.plan(at) {
		t.Errorf("one that is gone is not read again at %v, but at %v", at, r.wake)
	}
}

// What a kubelet does in each sync of a pod follows the setting, within a bound.
func TestStoragePeriod(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{0: time.Minute,
		10 * time.Second: 10 * time.Second, time.Millisecond: time.Second} {
		s := Store{SyncPeriod: period}
		w := &Watch{Target: world.WatchTarget{Resource: world.ResourceClaims}}
		if got := s.ageMax(w); got != want || s.StoragePeriod() != want {
			t.Errorf("%v: %v", period, got)
		}
	}
}
