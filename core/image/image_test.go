package image

import (
	"fmt"
	"slices"
	"strings"
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

// harness plans one image, and completes the operations that the store issues.
type harness struct {
	store  Store
	table  op.Table
	out    op.Effects
	issued map[string]int // by call
	ops    []world.OpID
}

func (r *harness) env() *Env { return &Env{Effects: &r.out, Enqueue: func(timer.Key) {}} }

func (r *harness) plan(at time.Duration) {
	r.out.Reset(&r.table, t0.Add(at))
	r.store.Plan("i", r.env())
	if r.issued == nil {
		r.issued = map[string]int{}
	}
	for _, eff := range r.out.List() {
		if eff.Op != 0 {
			r.issued[world.CallName(eff.Body)]++
			r.ops = append(r.ops, eff.Op)
		}
	}
}

// complete completes the nth operation, and returns the pods to plan.
func (r *harness) complete(n int, at time.Duration, body any, err *world.Error) []string {
	record, ok := r.table.Complete(r.ops[n])
	if !ok {
		panic("completed twice")
	}
	r.out.Reset(&r.table, t0.Add(at))
	ev := world.Event{Time: t0.Add(at), Op: r.ops[n], Body: body, Err: err}
	return r.store.HandleCompletion("i", record, ev, &r.out)
}

var refused = world.Errorf(world.KindInternal, "PullImage", "no registry")

// A pod whose image exists does not wait for the pull of another pod (upstream #83471).
func TestPodWithImagePresentDoesNotWaitForPull(t *testing.T) {
	r := &harness{}
	r.store.Require("a", Request{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.complete(0, time.Second, nil, refused)
	since := t0.Add(2 * time.Second)
	r.store.Require("b", Request{Ref: "i"}, v1.PullIfNotPresent, since)
	r.plan(2 * time.Second)
	if r.issued["ImageStatus"] != 1 {
		t.Fatalf("issued %v, want one ImageStatus", r.issued)
	}
	r.complete(1, 3*time.Second,
		&runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "x"}}, nil)
	if got := r.store.Require("b", Request{Ref: "i"}, v1.PullIfNotPresent, since); got.ID != "x" {
		t.Errorf("b gets %+v", got)
	}
	if got := r.store.Require("a", Request{Ref: "i"}, v1.PullAlways, t0); got.ID != "" {
		t.Errorf("a, which wants it pulled, gets %+v", got)
	}
}

// An ImageStatus without a change plans only the pods for which the previous one was too old: of a
// hundred pods that wait for one image, not all are planned when another pod arrives.
func TestStatusPlansAffectedPods(t *testing.T) {
	none := &runtimeapi.ImageStatusResponse{}
	there := &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "x"}}
	all := []string{"a", "b"}
	for _, test := range []struct {
		name   string
		policy v1.PullPolicy // of pod a
		found  *runtimeapi.ImageStatusResponse
		err    *world.Error
		want   []string
	}{
		{"no change", v1.PullIfNotPresent, none, nil, []string{"b"}},
		{"the image exists now", v1.PullIfNotPresent, there, nil, all},
		{"ImageStatus fails", v1.PullIfNotPresent, nil, refused, all},
		{"pull policy Never needs the next ImageStatus", v1.PullNever, none, nil, all},
	} {
		r := &harness{}
		r.store.Require("a", Request{Ref: "i"}, test.policy, t0)
		r.plan(0)
		r.complete(0, time.Second, none, nil)
		r.store.Require("a", Request{Ref: "i"}, test.policy, t0)
		r.store.Require("b", Request{Ref: "i"}, v1.PullIfNotPresent, t0.Add(2*time.Second))
		r.plan(2 * time.Second)
		pods := r.complete(1, 3*time.Second, test.found, test.err)
		if !slices.Equal(pods, test.want) {
			t.Errorf("%s: %q are planned, want %q", test.name, pods, test.want)
		}
	}
}

// refusePulls plans the image. The runtime does not have it, and refuses to pull it.
func (r *harness) refusePulls(at time.Duration) {
	known := len(r.ops)
	r.plan(at)
	for n := known; n < len(r.ops); n++ {
		if r.table.Records[r.ops[n]].Call == "PullImage" {
			r.complete(n, at, nil, refused)
		} else {
			r.complete(n, at, &runtimeapi.ImageStatusResponse{}, nil)
		}
	}
}

// A pod with pull policy Never does not shorten the pull back-off of other pods.
func TestPullNeverKeepsBackoffOfOthers(t *testing.T) {
	r := &harness{}
	r.store.Require("never", Request{Ref: "i"}, v1.PullNever, t0)
	r.store.Require("other", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		r.refusePulls(at)
		r.store.Require("never", Request{Ref: "i"}, v1.PullNever, t0)
		r.store.Require("other", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
	}
	if pulls := r.issued["PullImage"]; pulls < 2 || pulls > 4 { // at 0 s, 10 s, 30 s
		t.Errorf("%d pulls in a minute", pulls)
	}
}

// A pod that begins to wait for an image does not have the back-off of another pod's failures, but
// for its first ten seconds; one that goes on waiting has it.
func TestNewWaiterHasItsOwnBackoff(t *testing.T) {
	r, at := &harness{}, time.Duration(0)
	pulls := func(until time.Duration, uids ...string) int {
		for ; at < until; at += 100 * time.Millisecond {
			r.refusePulls(at)
			for _, uid := range uids {
				r.store.Require(uid, Request{Ref: "i"}, v1.PullIfNotPresent, t0)
			}
		}
		return r.issued["PullImage"]
	}
	r.store.Require("a", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
	before := pulls(4*time.Minute, "a") // at 0 s, 10 s, 30 s, 70 s, 150 s; the next one at 310 s
	again := pulls(4*time.Minute+30*time.Second, "a")
	more := pulls(5*time.Minute, "a", "b")
	if before != 5 || again != before || more != before+2 {
		t.Errorf("%d pulls, then %d, and %d with another pod", before, again, more)
	}
}

// The result of an ImageStatus issued before a pull completed does not replace the result of the
// pull.
func TestStatusOlderThanPull(t *testing.T) {
	r := &harness{}
	r.store.Require("a", Request{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.plan(pullCheckPeriod)
	r.complete(0, pullCheckPeriod+time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.complete(1, pullCheckPeriod+2*time.Second, &runtimeapi.ImageStatusResponse{}, nil)
	if got := r.store.Require("a", Request{Ref: "i"}, v1.PullAlways, t0); got.ID != "x" {
		t.Errorf("a gets %+v", got)
	}
}

// ImageStatus finds an image whose pull never completed.
func TestLostPullCompletion(t *testing.T) {
	r := &harness{}
	r.store.Require("a", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
	r.plan(0)
	r.complete(0, 0, &runtimeapi.ImageStatusResponse{}, nil)
	r.store.Require("a", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
	r.plan(0)               // the pull, which never completes
	r.plan(pullCheckPeriod) // an ImageStatus
	r.complete(2, pullCheckPeriod, &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: "x"}}, nil)
	if got := r.store.Require("a", Request{Ref: "i"}, v1.PullIfNotPresent, t0); got.ID != "x" {
		t.Errorf("a gets %+v, after %v", got, r.issued)
	}
}

// An invalid image name is reported at once, and no operation is issued for it.
func TestInvalidImageName(t *testing.T) {
	r := &harness{}
	result := r.store.Require("a", Request{Ref: "No Such:Name:"}, v1.PullAlways, t0)
	if result.Problem == nil || result.Problem.Reason != "InvalidImageName" {
		t.Errorf("got %+v, want InvalidImageName", result.Problem)
	}
	if len(r.store.Images) > 0 {
		t.Errorf("the store has %v, want nothing", r.store.Images)
	}
	r.store.Release("a", "No Such:Name:")
}

func statusWithUser(id string, uid int64) *runtimeapi.ImageStatusResponse {
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: id, Uid: &runtimeapi.Int64Value{Value: uid}}}
}

// The user of a pulled image costs one ImageStatus if a pod needs the user, and no other pod waits
// for it.
func TestUserOfPulledImage(t *testing.T) {
	r := &harness{}
	r.store.Require("plain", Request{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.complete(0, time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.plan(time.Second)
	if r.issued["ImageStatus"] != 0 {
		t.Fatalf("%v issued, want no ImageStatus: no pod needs the user", r.issued)
	}
	if got := r.store.RequireWithUser("asks", Request{Ref: "i"}, v1.PullAlways, t0); got.ID != "" {
		t.Fatalf("got %+v before the ImageStatus, want no ID", got)
	}
	if got := r.store.Require("plain", Request{Ref: "i"}, v1.PullAlways, t0); got.ID != "x" {
		t.Fatalf("got %+v, want x: the pod does not need the user", got)
	}
	r.plan(time.Second)
	r.complete(1, 2*time.Second, nil, refused)
	r.plan(2 * time.Second)
	if r.issued["ImageStatus"] != 1 {
		t.Fatalf("%v issued: a failed ImageStatus is repeated without back-off", r.issued)
	}
	r.plan(2*time.Second + statusRetry)
	r.complete(2, 4*time.Second, statusWithUser("x", 7), nil)
	got := r.store.RequireWithUser("asks", Request{Ref: "i"}, v1.PullAlways, t0)
	if got.ID != "x" || got.User.UID == nil || *got.User.UID != 7 || got.Problem != nil {
		t.Fatalf("%+v", got)
	}
	since := t0.Add(5 * time.Second) // the same image is pulled again
	r.store.RequireWithUser("asks", Request{Ref: "i"}, v1.PullAlways, since)
	r.plan(5 * time.Second)
	r.complete(3, 6*time.Second, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	if got := r.store.RequireWithUser("asks", Request{Ref: "i"}, v1.PullAlways, since); got.ID != "x" {
		t.Errorf("got %+v, want x: the user of this ID is known", got)
	}
}

// An image that was pulled and no longer exists is pulled again after a back-off.
func TestPulledImageRemoved(t *testing.T) {
	r := &harness{}
	r.store.RequireWithUser("a", Request{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.complete(0, 0, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	r.store.RequireWithUser("a", Request{Ref: "i"}, v1.PullAlways, t0)
	r.plan(0)
	r.complete(1, time.Second, &runtimeapi.ImageStatusResponse{}, nil)
	got := r.store.RequireWithUser("a", Request{Ref: "i"}, v1.PullAlways, t0)
	if got.ID != "" || got.Problem == nil || got.Problem.Reason != ErrImageInspect {
		t.Fatalf("%+v", got)
	}
	r.plan(time.Second)
	if r.issued["PullImage"] != 1 {
		t.Fatalf("%v issued: the image is pulled again without back-off", r.issued)
	}
	r.plan(time.Second + backoffFirst)
	if r.issued["PullImage"] != 2 {
		t.Errorf("%v issued: the image is not pulled again", r.issued)
	}
}

// Credentials are tried one after the other without back-off. The pull has failed only after the
// last of them, with the errors of all.
func TestCredentialsTriedInOrder(t *testing.T) {
	r := &harness{}
	with := Credentials{Name: "s@1", List: []keyring.Credential{{Username: "a", Password: "1"},
		{Username: "b"}}}
	wanted := Request{Ref: "i", Credentials: with}
	var used []string
	ask := func(at time.Duration) {
		r.store.Require("pod", wanted, v1.PullAlways, t0)
		r.out.Reset(&r.table, t0.Add(at))
		r.store.Plan(wanted.Name(), r.env())
		for _, eff := range r.out.List() {
			if pull, is := eff.Body.(*runtimeapi.PullImageRequest); is {
				used = append(used, pull.Image.Image+" "+pull.Auth.GetUsername()+" "+
					pull.Auth.GetPassword())
				r.ops = append(r.ops, eff.Op)
			}
		}
	}
	result := func(at time.Duration, body any, err *world.Error) {
		op := r.ops[len(r.ops)-1]
		record, _ := r.table.Complete(op)
		r.out.Reset(&r.table, t0.Add(at))
		r.store.HandleCompletion(wanted.Name(), record, world.Event{Time: t0.Add(at), Op: op, Body: body,
			Err: err}, &r.out)
	}
	problem := func() string {
		if p := r.store.Images[wanted.Name()].Problem; p != nil {
			return p.Reason + " " + p.Message
		}
		return ""
	}
	ask(0)
	result(0, nil, world.Errorf(world.KindRefused, "", "not a"))
	if problem() != "" {
		t.Errorf("problem %q before all credentials were tried", problem())
	}
	ask(0)
	result(0, nil, world.Errorf(world.KindRefused, "", "not b"))
	if problem() != "ErrImagePull [not a, not b]" {
		t.Errorf("%s", problem())
	}
	ask(backoffFirst - 1)
	ask(backoffFirst)
	result(backoffFirst, nil, world.Errorf(world.KindRefused, "", "not a"))
	ask(backoffFirst)
	result(backoffFirst, &runtimeapi.PullImageResponse{ImageRef: "x"}, nil)
	want := []string{"i a 1", "i b ", "i a 1", "i b "}
	if d := cmp.Diff(want, used); d != "" || problem() != "" {
		t.Errorf("%s, %s", d, problem())
	}
	if got := r.store.Require("pod", wanted, v1.PullAlways, t0); got.ID != "x" {
		t.Errorf("%+v", got)
	}
}

// A failure with the credentials of one pod is no problem of a pod with other credentials.
func TestCredentialsAreSeparate(t *testing.T) {
	r := &harness{}
	with := func(name string) Request {
		return Request{Ref: "i", Credentials: Credentials{Name: name, List: []keyring.Credential{{}}}}
	}
	a, none := with("a"), Request{Ref: "i"}
	r.store.Require("p", a, v1.PullAlways, t0)
	r.store.Require("q", none, v1.PullAlways, t0)
	r.store.Images[a.Name()].Problem = &Problem{Reason: "ErrImagePull"}
	for _, c := range []struct {
		wanted Request
		fails  bool
	}{{a, true}, {with("b"), false}, {none, false}} {
		if got := r.store.Require("r", c.wanted, v1.PullAlways, t0); (got.Problem != nil) != c.fails {
			t.Errorf("%q: %+v", c.wanted.Credentials.Name, got.Problem)
		}
	}
	if got := r.store.Require("p", Request{Ref: a.Name()}, v1.PullAlways, t0); got.Problem == nil ||
		got.Problem.Reason != "InvalidImageName" {
		t.Errorf("a reference that is the name of an image with credentials: got %+v, want %s",
			got, "InvalidImageName")
	}
	for _, wanted := range []Request{a, none, with("b")} {
		for _, uid := range []string{"p", "q", "r"} {
			r.store.Release(uid, wanted.Name())
		}
	}
	if len(r.store.Images) > 0 {
		t.Errorf("images left: %v", r.store.Names())
	}
}

// The operations of an image that several pods wait for are of the pod that waits for the fewest.
func TestTenantOfImage(t *testing.T) {
	var s Store
	var out op.Effects
	out.Reset(&op.Table{}, t0)
	for i := range 3 {
		s.Require("greedy", Request{Ref: fmt.Sprint("i", i)}, v1.PullIfNotPresent, t0)
	}
	s.Require("ordinary", Request{Ref: "i1"}, v1.PullIfNotPresent, t0)
	tenants := func() string {
		out.Reset(&op.Table{}, t0)
		for _, name := range s.Names() {
			s.Images[name].StatusOp = 0
			s.Plan(name, &Env{Effects: &out, Enqueue: func(timer.Key) {}})
		}
		var all []string
		for _, eff := range out.List() {
			all = append(all, eff.Tenant)
		}
		return strings.Join(all, " ")
	}
	if got := tenants(); got != "greedy ordinary greedy" {
		t.Errorf("the operations are of %s", got)
	}
	s.Release("ordinary", "i1")
	if got := tenants(); got != "greedy greedy greedy" || len(s.Waits) != 1 {
		t.Errorf("the operations are of %s, counts %v", got, s.Waits)
	}
}

// The pod that has needed an image last is the one that a panic is blamed on: without it the agent
// had not panicked.
func TestLatestWaiter(t *testing.T) {
	s := &Store{Images: map[string]*Image{"a": {}}}
	if got := s.LatestWaiter("a") + s.LatestWaiter("b"); got != "" {
		t.Errorf("%q waits for an image that no pod needs", got)
	}
	at := time.Unix(100, 0)
	for i, uid := range []string{"u2", "u3", "u1"} {
		s.addWaiter(s.Images["a"], uid, "", at.Add(time.Duration(i)*time.Second))
	}
	if got := s.LatestWaiter("a"); got != "u1" {
		t.Errorf("%q, want u1", got)
	}
}
