package image

import (
	"cmp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/keyring"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// accessHarness completes the operations of a store: an image is there after its pull.
type accessHarness struct {
	t       *testing.T
	store   Store
	table   op.Table
	out     op.Effects
	now     time.Time
	present bool
	pulls   []string // the users of the pulls so far
	refuse  *world.Error
	noDisk  *world.Error

	accounts accounts
}

func newAccessHarness(t *testing.T) *accessHarness {
	return &accessHarness{t: t, now: t0, store: Store{Records: pullrecord.Store{Dir: "/im",
		IsListed: true, Settings: pullrecord.Settings{Policy: kubeletconfig.NeverVerifyPreloadedImages}}}}
}

// withSecret returns a request with the credentials of a secret; the user is named as the secret.
func withSecret(secret string) Request {
	return Request{Ref: "q.io/i", Credentials: Credentials{Name: secret,
		List:    []keyring.Credential{{Username: secret}},
		Sources: []keyring.Source{{UID: secret, Namespace: "ns", Name: secret, CredentialHash: secret}}}}
}

// require has a pod need an image, and plans until nothing is issued.
func (r *accessHarness) require(request Request, policy v1.PullPolicy) Result {
	r.now = r.now.Add(10 * time.Minute)
	since := r.now
	pod := cmp.Or(request.Account.Pod, "pod")
	defer r.store.Release(pod, request.Name())
	for range 20 {
		if result := r.store.Require(pod, request, policy, since); result.ID != "" {
			return result
		}
		r.out.Reset(&r.table, r.now)
		r.store.Plan(request.Name(), r.env())
		r.store.Records.Plan(&r.out)
		var issued []world.Effect
		for _, e := range r.out.List() {
			if e.Op != 0 {
				issued = append(issued, e)
			}
		}
		for _, e := range issued {
			r.complete(request.Name(), e)
		}
	}
	return r.store.Require(pod, request, policy, since)
}

func (r *accessHarness) env() *Env {
	return &Env{Effects: &r.out, Enqueue: func(timer.Key) {}}
}

func (r *accessHarness) complete(name string, e world.Effect) {
	record, _ := r.table.Complete(e.Op)
	r.out.Reset(&r.table, r.now)
	ev := world.Event{Time: r.now, Op: e.Op}
	switch b := e.Body.(type) {
	case *runtimeapi.ImageStatusRequest:
		answer := &runtimeapi.ImageStatusResponse{}
		if r.present {
			answer.Image = &runtimeapi.Image{Id: "sha256:1"}
		}
		ev.Body = answer
	case *runtimeapi.PullImageRequest:
		r.pulls = append(r.pulls, b.GetAuth().GetUsername())
		if ev.Err = r.refuse; ev.Err == nil {
			r.present = true
			ev.Body = &runtimeapi.PullImageResponse{ImageRef: "sha256:1"}
		}
	case *world.ReadFiles:
		ev.Body = &world.FilesRead{Directory: true}
	case *world.GetObject, *world.CreateToken, *world.GetCredentials:
		r.accounts.respond(b, &ev)
	default:
		ev.Body, ev.Err = &world.Done{}, r.noDisk
	}
	if record.Owner == pullrecord.Owner {
		r.store.HandleRecordCompletion(record, ev, &r.out)
	} else {
		r.store.HandleCompletion(name, record, ev, &r.out)
	}
}

// An image that was pulled with a secret is pulled again for a pod without it, which may not use it
// if that fails, and does not learn that it is there.
func TestImageOfAnotherPod(t *testing.T) {
	r := newAccessHarness(t)
	check := func(what string, got Result, want Result, pulls string) {
		t.Helper()
		if got.ID != want.ID || got.Decision != want.Decision || got.Access != want.Access ||
			strings.Join(r.pulls, " ") != pulls {
			t.Errorf("%s: image %q, decision %q, access %q, pulls by %q; problem %+v", what, got.ID,
				got.Decision, got.Access, r.pulls, got.Problem)
		}
	}
	found := func(what string, request Request, access pullrecord.Access, pulls string) {
		t.Helper()
		check(what, r.require(request, v1.PullIfNotPresent),
			Result{ID: "sha256:1", Decision: Present, Access: access}, pulls)
	}
	none, denied := Request{Ref: "q.io/i"}, Result{Decision: NotAccessible, Access: pullrecord.Denied}
	r.present = true
	found("preloaded", withSecret("z"), pullrecord.Allowed, "")
	r.present = false
	found("pulled", withSecret("a"), "", "a")
	found("the same secret", withSecret("a"), pullrecord.Recorded, "a")
	check("never, the same secret", r.require(withSecret("a"), v1.PullNever),
		Result{ID: "sha256:1", Decision: Present, Access: pullrecord.Recorded}, "a")
	never := r.require(none, v1.PullNever)
	check("never", never, denied, "a")
	if never.Problem == nil || never.Problem.Reason != ErrImageNeverPull ||
		!strings.Contains(never.Problem.Message, "not present") {
		t.Errorf("problem %+v", never.Problem)
	}
	found("another secret", withSecret("b"), "", "a b")
	r.refuse = world.Errorf(world.KindInternal, "PullImage", "unauthorized")
	refused := r.require(none, v1.PullIfNotPresent)
	check("no secret", refused, denied, "a b ")
	if refused.Problem == nil || refused.Problem.Message != "unauthorized" {
		t.Errorf("problem %+v", refused.Problem)
	}
	found("still", withSecret("b"), pullrecord.Recorded, "a b ")
	r.refuse = nil
	found("public now", none, "", "a b  ")
	found("for all", withSecret("z"), pullrecord.Recorded, "a b  ")
}

// A pull that cannot be recorded does not begin, and says so.
func TestPullIsNotRecorded(t *testing.T) {
	r := newAccessHarness(t)
	r.noDisk = world.Errorf(world.KindExhausted, "WriteFile", "no space left on device")
	got := r.require(withSecret("a"), v1.PullIfNotPresent)
	if got.ID != "" || got.Problem == nil || len(r.pulls) > 0 || got.Problem.Message !=
		`Failed to record image pull intent for container image "q.io/i": no space left on device` {
		t.Errorf("image %q, pulls by %q, problem %+v", got.ID, r.pulls, got.Problem)
	}
	r.noDisk = nil
	if got := r.require(withSecret("a"), v1.PullIfNotPresent); got.ID == "" {
		t.Errorf("not pulled when it can be recorded: %+v", got.Problem)
	}
}

// An error of the registry, also a timeout, leaves an image that was on the node what it was.
func TestRegistryDoesNotAnswer(t *testing.T) {
	r := newAccessHarness(t)
	r.present = true
	list := func() {
		r.now = r.now.Add(time.Second)
		r.store.Records.Reconcile(map[string][]string{"sha256:1": {"q.io/i:latest"}}, r.now, r.now, r.now)
	}
	list()
	r.refuse = world.Errorf(world.KindTimeout, "PullImage", "dial tcp: i/o timeout")
	if got := r.require(withSecret("a"), v1.PullAlways); got.ID != "" || len(r.pulls) == 0 {
		t.Errorf("image %q, pulls by %q", got.ID, r.pulls)
	}
	for range 2 {
		if got := r.require(Request{Ref: "q.io/i"}, v1.PullNever); got.Access != pullrecord.Allowed {
			t.Errorf("access %q, problem %+v", got.Access, got.Problem)
		}
		list()
	}
}

// An error does not say that nothing came of a pull: the next list does.
func TestFailedPullHasBroughtImage(t *testing.T) {
	r := newAccessHarness(t)
	r.refuse = world.Errorf(world.KindInternal, "PullImage", "broken")
	r.require(withSecret("a"), v1.PullIfNotPresent)
	r.present = true
	expect := func(when string) {
		t.Helper()
		if got := r.require(Request{Ref: "q.io/i"}, v1.PullNever); got.Access != pullrecord.Denied {
			t.Errorf("%s: access %q", when, got.Access)
		}
	}
	expect("before a list")
	r.now = r.now.Add(time.Second)
	r.store.Records.Reconcile(map[string][]string{"sha256:1": {"q.io/i:latest"}}, r.now, r.now, r.now)
	expect("after it")
	r.store.Records.Reconcile(map[string][]string{"sha256:1": {"q.io/i:latest"}}, r.now, r.now, r.now)
	expect("after another one")
}

// A pod that has pulled an image does not get another one that has its name by now.
func TestNameMoves(t *testing.T) {
	for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullAlways} {
		r := newAccessHarness(t)
		request := withSecret("a")
		r.require(request, policy)
		since := r.now
		image := r.store.Images[request.Name()]
		if image == nil {
			r.store.Require("pod", request, policy, since)
			image = r.store.Images[request.Name()]
		}
		image.PulledAt, image.PulledID, image.ID = since, "sha256:1", "sha256:1"
		if got := r.store.Require("pod", request, policy, since); got.ID != "sha256:1" {
			t.Errorf("%s: image %q", policy, got.ID)
		}
		r.out.Reset(&r.table, r.now)
		r.store.Records.Begin("q.io/i", "other", "", r.now)
		r.store.Records.Pulled("q.io/i", "sha256:2",
			pullrecord.OfSecret(&keyring.Source{UID: "b"}), r.now, r.now)
		image.recordStatus(&runtimeapi.Image{Id: "sha256:2"}, since, since)
		if got := r.store.Require("pod", request, policy, since); got.ID != "" {
			t.Errorf("%s: image %q of another pod", policy, got.ID)
		}
		if image.PulledAt.Equal(since) || image.PullNeededSince.Before(since) {
			t.Errorf("%s: it is not pulled again", policy)
		}
	}
}

// A runtime that answers with a digest, and knows the image by its ID, makes no pod pull it twice.
func TestRuntimeAnswersWithDigest(t *testing.T) {
	r := newAccessHarness(t)
	request := withSecret("a")
	r.require(request, v1.PullIfNotPresent)
	r.store.Require("pod", request, v1.PullAlways, r.now)
	image := r.store.Images[request.Name()]
	r.out.Reset(&r.table, r.now)
	r.store.Records.Begin("q.io/i", "pull", "", r.now)
	r.store.Records.Pulled("q.io/i", "q.io/i@sha256:0", pullrecord.OfSecret(&keyring.Source{
		UID: "a", Name: "a", Namespace: "ns"}), r.now, r.now)
	image.PulledAt, image.PulledID, image.ID = r.now, "q.io/i@sha256:0", "q.io/i@sha256:0"
	found := &runtimeapi.Image{Id: "sha256:2", RepoDigests: []string{"q.io/i@sha256:0"}}
	r.store.noteID(image, found, &r.out)
	image.recordStatus(found, r.now, r.now)
	if got := r.store.Require("pod", request, v1.PullAlways, r.now); got.ID != "sha256:2" {
		t.Errorf("image %q, problem %+v", got.ID, got.Problem)
	}
	stranger := r.store.Records.Access("q.io/i", "sha256:2", nil, nil)
	if stranger != pullrecord.Denied {
		t.Errorf("a stranger's access is %q", stranger)
	}
}
