package image

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/core/credentials"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/world"
)

// accounts has the service accounts of an API server, and a plugin whose user is named as the
// token of the service account.
type accounts struct {
	uids    map[string]string // by name
	err     *world.Error      // of the API server
	calls   []string
	noToken *world.Error
}

func (a *accounts) respond(request any, ev *world.Event) {
	a.calls = append(a.calls, world.CallName(request))
	if _, isPlugin := request.(*world.GetCredentials); !isPlugin && a.err != nil {
		ev.Err = a.err
		return
	}
	switch m := request.(type) {
	case *world.GetObject:
		uid, exists := a.uids[m.Name]
		if !exists {
			ev.Err = world.Errorf(world.KindNotFound, "GetObject", "not found")
			return
		}
		ev.Body = &world.ObjectRead{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: types.UID(uid)}}}}
	case *world.CreateToken:
		if ev.Err = a.noToken; ev.Err == nil {
			ev.Body = &world.TokenCreated{Token: m.UID + "@" + m.Spec.BoundObjectRef.Name}
		}
	case *world.GetCredentials:
		var asked pluginapi.CredentialProviderRequest
		if err := json.Unmarshal(m.Request, &asked); err != nil {
			panic(err)
		}
		ev.Body = &world.CredentialsGot{Output: []byte(strings.ReplaceAll(
			`{"apiVersion": "v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Image",
			"auth": {"q.io": {"username": "USER"}}}`, "USER", asked.ServiceAccountToken))}
	}
}

func (a *accounts) take() []string {
	calls := a.calls
	a.calls = nil
	return calls
}

func newAccountHarness(t *testing.T) *accessHarness {
	r := newAccessHarness(t)
	r.store.Node.Providers = []credentials.Provider{{Name: "p", MatchImages: []string{"q.io"},
		APIVersion: "v1", Tokens: &credentials.Tokens{Audience: "reg", NeedsAccount: true}}}
	r.accounts.uids = map[string]string{"robot": "u1", "other": "u2"}
	return r
}

func withAccount(name string) Request {
	return Request{Ref: "q.io/i", Account: Account{Namespace: "ns", Name: name, Pod: "pod-" + name}}
}

// requireAgain has a pod go on to need an image since a time, with some plans of it.
func (r *accessHarness) requireAgain(pod string, request Request, policy v1.PullPolicy,
	since time.Time) (result Result) {
	for range 10 {
		result = r.store.Require(pod, request, policy, since)
		r.out.Reset(&r.table, r.now)
		r.store.Plan(request.Name(), r.env())
		r.store.Records.Plan(&r.out)
		for _, e := range slices.Clone(r.out.List()) {
			if e.Op != 0 {
				r.complete(request.Name(), e)
			}
		}
	}
	return result
}

// An image that was pulled with a token of a service account can be used by the pods of that one
// without another pull, and by others only with a pull of their own. The record survives the agent.
func TestImageOfServiceAccount(t *testing.T) {
	r := newAccountHarness(t)
	check := func(what string, request Request, policy v1.PullPolicy, access pullrecord.Access,
		pulls string, calls ...string) {
		t.Helper()
		got := r.require(request, policy)
		if got.Access != access || strings.Join(r.pulls, " ") != pulls || (got.ID == "") !=
			(access == pullrecord.Denied) {
			t.Errorf("%s: image %q, access %q, pulls by %q; problem %+v", what, got.ID, got.Access, r.pulls,
				got.Problem)
		}
		if made := r.accounts.take(); !slices.Equal(made, calls) {
			t.Errorf("%s: calls %q, want %q", what, made, calls)
		}
	}
	robot, other := withAccount("robot"), withAccount("other")
	check("pulled", robot, v1.PullIfNotPresent, "", "u1@pod-robot", "GetObject", "CreateToken",
		"GetCredentials")
	for _, record := range r.store.Records.Records {
		good := record.CredentialMapping["q.io/i"]
		if len(good.KubernetesSecrets) > 0 || good.NodePodsAccessible || !slices.Equal(
			good.KubernetesServiceAccounts, []pullrecord.Account{{UID: "u1", Namespace: "ns",
				Name: "robot"}}) {
			t.Errorf("recorded %+v", good)
		}
	}
	check("again", robot, v1.PullIfNotPresent, pullrecord.Recorded, "u1@pod-robot", "GetObject")
	check("never", robot, v1.PullNever, pullrecord.Recorded, "u1@pod-robot", "GetObject")
	check("none, never", Request{Ref: "q.io/i"}, v1.PullNever, pullrecord.Denied, "u1@pod-robot")
	check("other, never", other, v1.PullNever, pullrecord.Denied, "u1@pod-robot")
	check("other", other, v1.PullIfNotPresent, "", "u1@pod-robot u2@pod-other", "GetObject",
		"CreateToken", "GetCredentials")
	r.accounts.uids["robot"] = "u3"
	check("created again, never", robot, v1.PullNever, pullrecord.Denied, "u1@pod-robot u2@pod-other",
		"GetObject")
	r.accounts.err = world.Errorf(world.KindUnavailable, "", "no server")
	check("no server", other, v1.PullNever, pullrecord.Recorded, "u1@pod-robot u2@pod-other",
		"GetObject")
	r.store.Node.ForgetPod("pod-other")
	check("no server, not read before", other, v1.PullNever, pullrecord.Denied,
		"u1@pod-robot u2@pod-other", "GetObject")
	r.refuse = world.Errorf(world.KindInternal, "PullImage", "unauthorized")
	check("no server, pulled without credentials", other, v1.PullIfNotPresent, pullrecord.Denied,
		"u1@pod-robot u2@pod-other ", "GetObject")
	r.accounts.err = nil
	check("server", other, v1.PullNever, pullrecord.Recorded, "u1@pod-robot u2@pod-other ",
		"GetObject")
}

// A pull whose token is refused goes on without it. It is tried again after the back-off, with the
// service account as it is then.
func TestTokenIsRefused(t *testing.T) {
	r := newAccountHarness(t)
	r.refuse = world.Errorf(world.KindInternal, "PullImage", "unauthorized")
	r.accounts.noToken = world.Errorf(world.KindConflict, "CreateToken", "another UID")
	got := r.require(withAccount("robot"), v1.PullIfNotPresent)
	if got.ID != "" || got.Problem == nil || got.Problem.Reason != ErrImagePull ||
		!slices.Equal(r.pulls, []string{""}) {
		t.Errorf("image %q, pulls by %q, problem %+v", got.ID, r.pulls, got.Problem)
	}
	r.refuse, r.accounts.noToken, r.accounts.uids["robot"] = nil, nil, "u3"
	got = r.require(withAccount("robot"), v1.PullIfNotPresent)
	if got.ID == "" || !slices.Equal(r.pulls, []string{"", "u3@pod-robot"}) {
		t.Errorf("image %q, pulls by %q, problem %+v", got.ID, r.pulls, got.Problem)
	}
}

// Within a back-off nothing is asked; each attempt reads the service account again.
func TestServiceAccountIsReadForEachAttempt(t *testing.T) {
	r := newAccountHarness(t)
	r.refuse = world.Errorf(world.KindInternal, "PullImage", "unauthorized")
	request := withAccount("robot")
	since := r.now
	attempt := func() []string {
		r.requireAgain("pod", request, v1.PullAlways, since)
		return r.accounts.take()
	}
	if calls := attempt(); len(calls) != 3 || len(r.pulls) != 1 {
		t.Errorf("calls %q, pulls by %q", calls, r.pulls)
	}
	if calls := attempt(); len(calls) != 0 || len(r.pulls) != 1 {
		t.Errorf("within the back-off: calls %q, pulls by %q", calls, r.pulls)
	}
	r.accounts.uids["robot"] = "u3"
	r.now = r.now.Add(backoffFirst)
	if calls := attempt(); len(calls) != 3 || len(r.pulls) != 2 || r.pulls[1] != "u3@pod-robot" {
		t.Errorf("after it: calls %q, pulls by %q", calls, r.pulls)
	}
}

// A pod that pulls nothing has its service account read again with each look at the image: a read
// that has failed does not keep it out for good.
func TestServiceAccountIsReadAgainWithoutAPull(t *testing.T) {
	r := newAccountHarness(t)
	request := withAccount("robot")
	r.require(request, v1.PullIfNotPresent)
	r.store.Node.ForgetPod("pod-robot")
	r.now = r.now.Add(time.Minute)
	since := r.now
	look := func() Result { return r.requireAgain("pod-robot", request, v1.PullNever, since) }
	r.accounts.err = world.Errorf(world.KindRefused, "", "forbidden")
	if got := look(); got.ID != "" || got.Problem == nil {
		t.Errorf("image %q, problem %+v", got.ID, got.Problem)
	}
	r.accounts.err = nil
	r.now = r.now.Add(backoffFirst)
	if look(); !slices.Contains(r.accounts.take(), "GetObject") {
		t.Error("the service account was not read again")
	}
	if got := look(); got.ID == "" || len(r.pulls) != 1 {
		t.Errorf("image %q, problem %+v, pulls by %q", got.ID, got.Problem, r.pulls)
	}
}

// The pods of a service account share a pull, unless its credentials may be good for one pod only.
// A token is bound to a pod that waits.
func TestPodsOfServiceAccountShareAPull(t *testing.T) {
	request := withAccount("robot")
	other := request
	other.Account.Pod = "another"
	if request.Name() != other.Name() {
		t.Errorf("%q and %q", request.Name(), other.Name())
	}
	request.Account.OnlyFor, other.Account.OnlyFor = "u1", "u2"
	shared, secret := withAccount("robot"), withSecret("ns/robot")
	if request.Name() == other.Name() || request.Name() == shared.Name() {
		t.Errorf("%q and %q", request.Name(), other.Name())
	}
	if secret.Name() == shared.Name() {
		t.Errorf("%q", secret.Name())
	}
	r := newAccountHarness(t)
	request, other = withAccount("robot"), withAccount("robot")
	other.Account.Pod = "another"
	r.store.Require("a", other, v1.PullIfNotPresent, r.now)
	r.store.Require("b", request, v1.PullIfNotPresent, r.now)
	r.store.Release("a", other.Name())
	img := r.store.Images[request.Name()]
	if s := img.subject(); s.Pod != "pod-robot" || s.PodUID != "b" {
		t.Errorf("%+v", s)
	}
}

// A pod that joins an attempt may have another service account of the same name: nothing is pulled
// for it with the token of the one before.
func TestServiceAccountIsReadAgainForPodsThatJoin(t *testing.T) {
	for _, policy := range []v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent} {
		r := newAccountHarness(t)
		r.now = r.now.Add(time.Minute)
		request, joined := withAccount("robot"), false
		since := map[string]time.Time{"a": r.now}
		for range 20 {
			for pod, at := range since { //ordered: each has its own need
				wants := v1.PullAlways
				if pod == "b" {
					wants = policy
				}
				r.store.Require(pod, request, wants, at)
			}
			r.out.Reset(&r.table, r.now)
			r.store.Plan(request.Name(), r.env())
			r.store.Records.Plan(&r.out)
			for _, e := range slices.Clone(r.out.List()) {
				if e.Op == 0 {
					continue
				}
				if _, isStatus := e.Body.(*runtimeapi.ImageStatusRequest); isStatus {
					continue // b does not know yet whether the image is there
				}
				_, isPlugin := e.Body.(*world.GetCredentials)
				r.complete(request.Name(), e)
				if isPlugin && !joined {
					joined, r.now = true, r.now.Add(time.Second)
					r.accounts.uids["robot"], since["b"] = "u9", r.now
				}
			}
		}
		if !joined || !slices.Equal(r.pulls, []string{"u9@pod-robot"}) {
			t.Errorf("%s: joined %t, pulls by %q, calls %q", policy, joined, r.pulls, r.accounts.calls)
		}
	}
}
