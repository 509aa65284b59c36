package image

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rig plans one image, and answers what it asks for.
type rig struct {
	store Store
	table op.Table
	out   op.Out
	asked map[string]int // by call
	ops   []world.OpID
}

func (r *rig) plan(at time.Duration) {
	r.out.Begin(&r.table, t0.Add(at))
	r.store.Plan("i", false, &r.out, func(timer.Key) {})
	if r.asked == nil {
		r.asked = map[string]int{}
	}
	for _, eff := range r.out.Take() {
		if eff.Op != 0 {
			r.asked[world.Call(eff.Body)]++
			r.ops = append(r.ops, eff.Op)
		}
	}
}

// answer answers the nth operation, and returns who is told.
func (r *rig) answer(n int, at time.Duration, body any, err *world.Error) []string {
	record, ok := r.table.Settle(r.ops[n])
	if !ok {
		panic("answered twice")
	}
	r.out.Begin(&r.table, t0.Add(at))
	ev := world.Event{Time: t0.Add(at), Op: r.ops[n], Body: body, Err: err}
	return r.store.Answered("i", record, ev, &r.out)
}

var refused = world.Errorf(world.KindInternal, "PullImage", "no registry")

// A pod whose image is there does not wait for another one's pull (upstream #83471).
func TestWhoNeedsNoPullDoesNotWait(t *testing.T) {
	r := &rig{}
	r.store.Need("a", Wanted{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.answer(0, time.Second, nil, refused)
	since := t0.Add(2 * time.Second)
	r.store.Need("b", Wanted{Ref: "i"}, v1.PullIfNotPresent, since)
	r.plan(2 * time.Second)
	if r.asked["ImageStatus"] != 1 {
		t.Fatalf("asked %v, want one look", r.asked)
	}
	r.answer(1, 3*time.Second,
		&runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "x"}}, nil)
	if got := r.store.Need("b", Wanted{Ref: "i"}, v1.PullIfNotPresent, since); got.ID != "x" {
		t.Errorf("b gets %+v", got)
	}
	if got := r.store.Need("a", Wanted{Ref: "i"}, v1.PullAlways, t0); got.ID != "" {
		t.Errorf("a, which wants it pulled, gets %+v", got)
	}
}

// A look that finds what was known before is news only for those that could not go by that: of a
// hundred pods that wait for one image, not all are planned anew whenever another one comes.
func TestALookTellsThoseWhomItConcerns(t *testing.T) {
	none := &runtimeapi.ImageStatusResponse{}
	there := &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "x"}}
	all := []string{"a", "b"}
	for _, test := range []struct {
		name   string
		policy v1.PullPolicy // of a
		found  *runtimeapi.ImageStatusResponse
		err    *world.Error
		want   []string
	}{
		{"nothing new", v1.PullIfNotPresent, none, nil, []string{"b"}},
		{"it is there now", v1.PullIfNotPresent, there, nil, all},
		{"nobody can tell", v1.PullIfNotPresent, nil, refused, all},
		{"one never pulls, and asks for the next look", v1.PullNever, none, nil, all},
	} {
		r := &rig{}
		r.store.Need("a", Wanted{Ref: "i"}, test.policy, t0)
		r.plan(0)
		r.answer(0, time.Second, none, nil)
		r.store.Need("a", Wanted{Ref: "i"}, test.policy, t0)
		r.store.Need("b", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0.Add(2*time.Second))
		r.plan(2 * time.Second)
		told := r.answer(1, 3*time.Second, test.found, test.err)
		if !slices.Equal(told, test.want) {
			t.Errorf("%s: %q are told, want %q", test.name, told, test.want)
		}
	}
}

// A pod that never pulls leaves the others their back-off.
func TestWhoNeverPullsHurriesNobody(t *testing.T) {
	r := &rig{}
	r.store.Need("never", Wanted{Ref: "i"}, v1.PullNever, t0)
	r.store.Need("other", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0)
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		known := len(r.ops)
		r.plan(at)
		for n := known; n < len(r.ops); n++ {
			if r.table.Records[r.ops[n]].Call == "PullImage" {
				r.answer(n, at, nil, refused)
			} else {
				r.answer(n, at, &runtimeapi.ImageStatusResponse{}, nil)
			}
		}
		r.store.Need("never", Wanted{Ref: "i"}, v1.PullNever, t0)
		r.store.Need("other", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0)
	}
	if pulls := r.asked["PullImage"]; pulls < 2 || pulls > 4 { // at once, after 10 s, 30 s
		t.Errorf("%d pulls in a minute", pulls)
	}
}

// A look that was asked for before a pull ended does not hide what was pulled.
func TestALookOlderThanThePull(t *testing.T) {
	r := &rig{}
	r.store.Need("a", Wanted{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.plan(lookPeriod)
	r.answer(0, lookPeriod+time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.answer(1, lookPeriod+2*time.Second, &runtimeapi.ImageStatusResponse{}, nil)
	if got := r.store.Need("a", Wanted{Ref: "i"}, v1.PullAlways, t0); got.ID != "x" {
		t.Errorf("a gets %+v", got)
	}
}

// A lost answer to a pull is made up for by looking.
func TestALostPullIsNoticed(t *testing.T) {
	r := &rig{}
	r.store.Need("a", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0)
	r.plan(0)
	r.answer(0, 0, &runtimeapi.ImageStatusResponse{}, nil)
	r.store.Need("a", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0)
	r.plan(0)          // the pull, which is never answered
	r.plan(lookPeriod) // and a look
	r.answer(2, lookPeriod, &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: "x"}}, nil)
	if got := r.store.Need("a", Wanted{Ref: "i"}, v1.PullIfNotPresent, t0); got.ID != "x" {
		t.Errorf("a gets %+v, after %v", got, r.asked)
	}
}

// A name that no image can have is told at once, and no runtime is asked about it.
func TestNameThatIsNone(t *testing.T) {
	r := &rig{}
	answer := r.store.Need("a", Wanted{Ref: "No Such:Name:"}, v1.PullAlways, t0)
	if answer.Problem == nil || answer.Problem.Reason != "InvalidImageName" {
		t.Errorf("Need says %+v, want InvalidImageName", answer.Problem)
	}
	if len(r.store.Images) > 0 {
		t.Errorf("the store keeps %v", r.store.Images)
	}
	r.store.Release("a", "No Such:Name:")
}

func lookedAt(id string, uid int64) *runtimeapi.ImageStatusResponse {
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: id, Uid: &runtimeapi.Int64Value{Value: uid}}}
}

// Whom a pulled image runs as costs a look only if somebody asks, and nobody else waits for it.
func TestTheUserOfAPulledImage(t *testing.T) {
	r := &rig{}
	r.store.Need("plain", Wanted{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.answer(0, time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.plan(time.Second)
	if r.asked["ImageStatus"] != 0 {
		t.Fatalf("%v, but nobody asks for the user", r.asked)
	}
	if got := r.store.NeedUser("asks", Wanted{Ref: "i"}, v1.PullAlways, t0); got.ID != "" {
		t.Fatalf("%+v before the look", got)
	}
	if got := r.store.Need("plain", Wanted{Ref: "i"}, v1.PullAlways, t0); got.ID != "x" {
		t.Fatalf("%+v: it waits for a user that it does not need", got)
	}
	r.plan(time.Second)
	r.answer(1, 2*time.Second, nil, refused)
	r.plan(2 * time.Second)
	if r.asked["ImageStatus"] != 1 {
		t.Fatalf("%v: a look that failed is repeated at once", r.asked)
	}
	r.plan(2*time.Second + statusRetry)
	r.answer(2, 4*time.Second, lookedAt("x", 7), nil)
	got := r.store.NeedUser("asks", Wanted{Ref: "i"}, v1.PullAlways, t0)
	if got.ID != "x" || got.User.UID == nil || *got.User.UID != 7 || got.Problem != nil {
		t.Fatalf("%+v", got)
	}
	since := t0.Add(5 * time.Second) // the same image, pulled once more
	r.store.NeedUser("asks", Wanted{Ref: "i"}, v1.PullAlways, since)
	r.plan(5 * time.Second)
	r.answer(3, 6*time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	if got := r.store.NeedUser("asks", Wanted{Ref: "i"}, v1.PullAlways, since); got.ID != "x" {
		t.Errorf("%+v: what runs as whom is known by its id", got)
	}
}

// What was pulled and has gone is pulled once more, after a while.
func TestAPulledImageThatHasGone(t *testing.T) {
	r := &rig{}
	r.store.NeedUser("a", Wanted{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.answer(0, 0, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.store.NeedUser("a", Wanted{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.answer(1, time.Second, &runtimeapi.ImageStatusResponse{}, nil)
	got := r.store.NeedUser("a", Wanted{Ref: "i"}, v1.PullAlways, t0)
	if got.ID != "" || got.Problem == nil || got.Problem.Reason != ErrInspect {
		t.Fatalf("%+v", got)
	}
	r.plan(time.Second)
	if r.asked["PullImage"] != 1 {
		t.Fatalf("%v: it is pulled again at once", r.asked)
	}
	r.plan(time.Second + backoffFirst)
	if r.asked["PullImage"] != 2 {
		t.Errorf("%v: it is not pulled again", r.asked)
	}
}

// Credentials are tried one after the other, at once; only when none is left is it a failure, and
// then it is told what each was told.
func TestCredentials(t *testing.T) {
	r := &rig{}
	with := Credentials{Name: "s@1", Tries: []keyring.Credential{{Username: "a", Password: "1"},
		{Username: "b"}}}
	wanted := Wanted{Ref: "i", With: with}
	var used []string
	ask := func(at time.Duration) {
		r.store.Need("pod", wanted, v1.PullAlways, t0)
		r.out.Begin(&r.table, t0.Add(at))
		r.store.Plan(wanted.Name(), false, &r.out, func(timer.Key) {})
		for _, eff := range r.out.Take() {
			if pull, is := eff.Body.(*runtimeapi.PullImageRequest); is {
				used = append(used, pull.Image.Image+" "+pull.Auth.GetUsername()+" "+
					pull.Auth.GetPassword())
				r.ops = append(r.ops, eff.Op)
			}
		}
	}
	answer := func(at time.Duration, body any, err *world.Error) {
		op := r.ops[len(r.ops)-1]
		record, _ := r.table.Settle(op)
		r.out.Begin(&r.table, t0.Add(at))
		r.store.Answered(wanted.Name(), record, world.Event{Time: t0.Add(at), Op: op, Body: body,
			Err: err}, &r.out)
	}
	problem := func() string {
		if p := r.store.Images[wanted.Name()].Problem; p != nil {
			return p.Reason + " " + p.Message
		}
		return ""
	}
	ask(0)
	answer(0, nil, world.Errorf(world.KindRefused, "", "not a"))
	if problem() != "" {
		t.Errorf("%s before all were tried", problem())
	}
	ask(0)
	answer(0, nil, world.Errorf(world.KindRefused, "", "not b"))
	if problem() != "ErrImagePull [not a, not b]" {
		t.Errorf("%s", problem())
	}
	ask(backoffFirst - 1)
	ask(backoffFirst)
	answer(backoffFirst, nil, world.Errorf(world.KindRefused, "", "not a"))
	ask(backoffFirst)
	answer(backoffFirst, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	want := []string{"i a 1", "i b ", "i a 1", "i b "}
	if d := cmp.Diff(want, used); d != "" || problem() != "" {
		t.Errorf("%s, %s", d, problem())
	}
	if got := r.store.Need("pod", wanted, v1.PullAlways, t0); got.ID != "x" {
		t.Errorf("%+v", got)
	}
}

// What is wrong with the credentials of one pod is no problem of another's.
func TestCredentialsAreApart(t *testing.T) {
	r := &rig{}
	with := func(name string) Wanted {
		return Wanted{Ref: "i", With: Credentials{Name: name, Tries: []keyring.Credential{{}}}}
	}
	a, none := with("a"), Wanted{Ref: "i"}
	r.store.Need("p", a, v1.PullAlways, t0)
	r.store.Need("q", none, v1.PullAlways, t0)
	r.store.Images[a.Name()].Problem = &Problem{Reason: "ErrImagePull"}
	for _, c := range []struct {
		wanted Wanted
		fails  bool
	}{{a, true}, {with("b"), false}, {none, false}} {
		if got := r.store.Need("r", c.wanted, v1.PullAlways, t0); (got.Problem != nil) != c.fails {
			t.Errorf("%q: %+v", c.wanted.With.Name, got.Problem)
		}
	}
	if got := r.store.Need("p", Wanted{Ref: a.Name()}, v1.PullAlways, t0); got.Problem == nil ||
		got.Problem.Reason != "InvalidImageName" {
		t.Errorf("an image is called as one with credentials: %+v", got)
	}
	for _, wanted := range []Wanted{a, none, with("b")} {
		for _, uid := range []string{"p", "q", "r"} {
			r.store.Release(uid, wanted.Name())
		}
	}
	if len(r.store.Images) > 0 {
		t.Errorf("left: %v", r.store.Names())
	}
}
