package object

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// reading is a store that reads one Secret, and answers by hand.
type reading struct {
	*testing.T
	s     Store
	table op.Table
	out   op.Out
	now   time.Duration // since t0
	asked []world.OpID
	wake  time.Time
}

func newReading(t *testing.T, s Strategy) *reading {
	return &reading{T: t, s: Store{Strategy: s}}
}

func (r *reading) begin(at time.Duration) {
	r.now = at
	r.out.Begin(&r.table, t0.Add(at))
}

func (r *reading) want(user string) {
	r.begin(r.now)
	r.s.Want(keys, user, &r.out)
	if effects := r.out.Take(); len(effects) > 0 {
		r.Fatalf("%v when it is wanted", effects)
	}
}

// plan plans at a time, and says whether the object is read.
func (r *reading) plan(at time.Duration) bool {
	r.Helper()
	r.begin(at)
	key, is := r.s.Reads(keys)
	if !is {
		r.Fatal("it is not read")
	}
	r.wake = r.s.Plan(key, &r.out)
	for _, eff := range r.out.Take() {
		if get := eff.Body.(*world.GetObject); get.Name != "keys" || get.Namespace != "a" {
			r.Fatalf("reads %+v", get)
		}
		r.asked = append(r.asked, eff.Op)
		return true
	}
	return false
}

// answer answers the newest read: version, or an error.
func (r *reading) answer(at time.Duration, version string, immutable bool, err *world.Error) bool {
	r.Helper()
	id := r.asked[len(r.asked)-1]
	record, ok := r.table.Settle(id)
	if !ok {
		r.Fatal("answered twice")
	}
	ev := world.Event{Time: t0.Add(at), Op: id, Err: err}
	if err == nil {
		ev.Body = &world.ObjectRead{Object: world.Object{Secret: &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "keys", ResourceVersion: version},
			Immutable:  &immutable}}}
	}
	_, news := r.s.Answered(id, record, ev)
	return news
}

func (r *reading) has(version string) {
	r.Helper()
	o, known := r.s.One(keys.Resource, "a", "keys")
	got := ""
	if o != nil {
		got = o.Secret.ResourceVersion
	}
	if !known || got != version {
		r.Fatalf("known %v, has version %q, want %q", known, got, version)
	}
}

// What is cached is read again when it is as old as it may be, and not before somebody sees to the
// pods; what is not is read whenever somebody does.
func TestReadAgain(t *testing.T) {
	for _, c := range []struct {
		strategy Strategy
		again    time.Duration
	}{
		{Strategy{Every: time.Minute}, time.Minute},
		{Strategy{Every: time.Minute, Cached: true, TTL: 0}, time.Minute},
		{Strategy{Every: time.Minute, Cached: true, TTL: 5 * time.Minute}, 5 * time.Minute},
	} {
		r := newReading(t, c.strategy)
		if r.want("x"); !r.plan(0) || r.plan(0) {
			t.Fatal("it is not read once")
		}
		if !r.answer(time.Second, "1", false, nil) {
			t.Error("who waits is not told")
		}
		if r.has("1"); r.plan(c.again-1) || !r.wake.Equal(t0.Add(c.again)) || !r.plan(c.again) {
			t.Errorf("%+v: not read again after %v", c.strategy, c.again)
		}
		if r.answer(c.again+1, "1", false, nil) {
			t.Error("nothing new is news")
		}
		r.plan(2 * c.again)
		if !r.answer(2*c.again+1, "2", false, nil) {
			t.Error("a new version is none")
		}
	}
}

// Another user has it read at once; one that goes with a read in flight is not surprised.
func TestReadForANewUser(t *testing.T) {
	r := newReading(t, Strategy{Every: time.Minute, Cached: true, TTL: time.Minute})
	r.want("x")
	r.plan(0)
	r.answer(0, "1", true, nil)
	if r.plan(time.Hour) || !r.wake.IsZero() {
		t.Error("what cannot change is read again")
	}
	r.want("y")
	if r.has("1"); !r.plan(time.Hour) {
		t.Error("not read for a new user")
	}
	r.s.Drop(keys, "x", &r.out)
	r.s.Drop(keys, "y", &r.out)
	if r.answer(time.Hour, "2", false, nil) || r.s.Stray != 1 {
		t.Error("news for nobody")
	}
	if r.plan(2*time.Hour) || len(r.out.Take()) > 0 {
		t.Error("read for nobody")
	}
}

// While it cannot be read, what is known stays; what is absent is looked for again soon.
func TestReadFails(t *testing.T) {
	away := world.Errorf(world.KindUnavailable, "", "away")
	none := world.Errorf(world.KindNotFound, "", "no keys")
	busy := &world.Error{Kind: world.KindThrottled, RetryAfter: 20 * time.Second}
	r := newReading(t, Strategy{Every: time.Minute})
	r.want("x")
	r.plan(0)
	if !r.answer(0, "", false, away) || r.s.Find(keys.Resource, "a", "keys").Err == nil {
		t.Error("who waits is not told that it cannot be read")
	}
	if r.plan(0) || !r.plan(time.Second) {
		t.Errorf("not read again a second after it failed, but at %v", r.wake)
	}
	r.answer(time.Second, "", false, busy)
	if r.plan(20*time.Second) || !r.plan(21*time.Second) {
		t.Errorf("not read again when the server says, but at %v", r.wake)
	}
	if !r.answer(21*time.Second, "", false, none) {
		t.Error("that there is none is no news")
	}
	if r.has(""); r.plan(23*time.Second) || !r.plan(25*time.Second) {
		t.Errorf("not looked for again soon, but at %v", r.wake)
	}
	r.answer(25*time.Second, "1", false, nil)
	r.plan(85 * time.Second)
	if r.answer(85*time.Second, "", false, away) {
		t.Error("who does not wait is told that it could not be read")
	}
	r.has("1")
	if !r.plan(86 * time.Second) {
		t.Error("not read again after a failure")
	}
	r.answer(86*time.Second, "", false, none)
	r.has("")
}

// What is to run is made of what is read after the need for it, unless it may be older.
func TestDemand(t *testing.T) {
	for _, cached := range []bool{false, true} {
		r := newReading(t, Strategy{Every: time.Minute, Cached: cached, TTL: time.Minute})
		r.want("x")
		r.plan(0)
		r.answer(0, "1", false, nil)
		at := 10 * time.Second
		if r.s.Demand(keys, t0.Add(at)) == cached || r.plan(at) == cached {
			t.Errorf("cached %v: demanded, but not read, or the other way", cached)
		}
		if cached {
			continue
		}
		if !r.answer(at, "", false, world.Errorf(world.KindTimeout, "", "")) ||
			r.s.Demand(keys, t0.Add(at)) {
			t.Error("what cannot be read is waited for")
		}
		if !r.plan(at+time.Second) || !r.answer(at+time.Second, "1", false, nil) {
			t.Error("it is not read again, or nobody hears of it")
		}
		if r.s.Demand(keys, t0.Add(at)) {
			t.Error("it is demanded twice")
		}
	}
}

func TestTTLOfTheNode(t *testing.T) {
	node := func(ttl string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1.ObjectTTLAnnotationKey: ttl}}}
	}
	s := Strategy{Every: time.Second, Cached: true, TTL: time.Minute}
	for _, step := range []struct {
		node *v1.Node
		news bool
		want time.Duration
	}{
		{nil, false, time.Minute}, {node("300"), true, 5 * time.Minute},
		{node("300"), false, 5 * time.Minute}, {node("0"), true, time.Second},
		{node("many"), true, time.Minute}, {node("-3"), false, time.Minute},
	} {
		if news := s.Heed(step.node); news != step.news || s.Within() != step.want {
			t.Errorf("%v: news %v, within %v, want %v", step.node, news, s.Within(), step.want)
		}
	}
	get := Strategy{Every: time.Minute}
	if get.Heed(node("300")) || get.Within() != time.Minute {
		t.Error("what is not cached becomes old")
	}
}
