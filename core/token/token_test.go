package token

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var (
	t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner = op.Owner{Component: "pod", Name: "u"}
)

type harness struct {
	set   Set
	pod   *v1.Pod
	table op.Table
	wake  time.Time
}

func newHarness(tokens ...v1.ServiceAccountTokenProjection) *harness {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"}}
	pod.Spec.ServiceAccountName = "robot"
	source := &v1.ProjectedVolumeSource{}
	for i := range tokens {
		source.Sources = append(source.Sources, v1.VolumeProjection{ServiceAccountToken: &tokens[i]})
	}
	pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: source}}}
	return &harness{pod: pod}
}

// planAt plans a while after t0, with a jitter of ten seconds, and returns the effects.
func (r *harness) planAt(after time.Duration) []world.Effect {
	var effects op.Effects
	effects.Reset(&r.table, t0.Add(after))
	jitter := func(string, time.Duration) time.Duration { return jitterMax }
	r.wake = r.set.Plan(r.pod, owner, "s", jitter, &effects)
	return effects.List()
}

func (r *harness) complete(eff world.Effect, after time.Duration, body any, err *world.Error) {
	record, _ := r.table.Complete(eff.Op)
	r.set.HandleCompletion(eff.Op, record, world.Event{Time: t0.Add(after), Body: body, Err: err})
}

func tokenFor(seconds int64) v1.ServiceAccountTokenProjection {
	return v1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: &seconds}
}

// A token is bound to its pod, and one token serves all projections with the same audience and
// validity.
func TestRequest(t *testing.T) {
	r := newHarness(tokenFor(600), v1.ServiceAccountTokenProjection{}, tokenFor(600))
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	spec := func(audiences []string, seconds int64) *world.CreateToken {
		return &world.CreateToken{Namespace: "n", ServiceAccount: "robot",
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
				ExpirationSeconds: &seconds, BoundObjectRef: bound}}
	}
	var got []any
	for _, eff := range r.planAt(0) {
		got = append(got, eff.Body)
	}
	want := []any{spec([]string{"vault"}, 600), spec(nil, 3600)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if again := r.planAt(time.Second); len(again) > 0 {
		t.Errorf("requested twice: %v", again)
	}
}

// A token is renewed when a fifth of its lifetime is left, or when it is a day old, minus the
// jitter.
func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		name               string
		requested, granted int64 // seconds
		after              time.Duration
	}{
		{"ten minutes", 600, 600, 8*time.Minute - jitterMax},
		{"an hour", 3600, 3600, 48*time.Minute - jitterMax},
		{"a year", 31536000, 31536000, 24*time.Hour - jitterMax},
		{"shortened by the server", 3600, 600, 8*time.Minute - jitterMax},
		{"extended by the server", 600, 3600, 8*time.Minute - jitterMax},
		{"the server does not say for how long", 600, 0, 8*time.Minute - jitterMax},
	} {
		r := newHarness(tokenFor(c.requested))
		r.complete(r.planAt(0)[0], time.Second,
			&world.TokenCreated{Token: "one", ExpirationSeconds: c.granted}, nil)
		if issued := r.planAt(c.after - 1); len(issued) > 0 || !r.wake.Equal(t0.Add(c.after)) {
			t.Errorf("%s: issued %v before it is due, planned again at %v", c.name, issued, r.wake.Sub(t0))
		}
		if issued := r.planAt(c.after); len(issued) != 1 {
			t.Errorf("%s: %d requests when it is due", c.name, len(issued))
		}
	}
}

// A failed request keeps the token, and is repeated after a back-off and the server's retry time.
func TestFailedRenewal(t *testing.T) {
	r := newHarness(tokenFor(600))
	wanted := r.pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
	r.complete(r.planAt(0)[0], 0, nil, world.Errorf(world.KindNotFound, "", "no robot"))
	if value, _, problem := r.set.Find(wanted); value != "" || problem != "no robot" {
		t.Errorf("%q, %q", value, problem)
	}
	if len(r.planAt(time.Second-1)) > 0 {
		t.Error("requested again without back-off")
	}
	r.complete(r.planAt(time.Second)[0], time.Second, &world.TokenCreated{Token: "one"}, nil)
	_, first, problem := r.set.Find(wanted)
	if problem != "" {
		t.Errorf("problem %q with a token", problem)
	}
	busy := &world.Error{Kind: world.KindThrottled, RetryAfter: time.Minute}
	r.complete(r.planAt(9 * time.Minute)[0], 9*time.Minute, nil, busy)
	value, version, problem := r.set.Find(wanted)
	if value != "one" || version != first || problem != "" {
		t.Errorf("%q, version %s, %q after a failed renewal", value, version, problem)
	}
	if issued := r.planAt(10*time.Minute - 1); len(issued) > 0 {
		t.Error("requested before the server's retry time")
	}
	r.complete(r.planAt(10 * time.Minute)[0], 10*time.Minute, &world.TokenCreated{Token: "two"}, nil)
	if value, version, _ := r.set.Find(wanted); value != "two" || version == first {
		t.Errorf("%q, version %s; want another token", value, version)
	}
}

// A completion without a token is a failure.
func TestEmptyResponse(t *testing.T) {
	for _, body := range []any{&world.TokenCreated{}, &world.Done{}} {
		r := newHarness(tokenFor(600))
		r.complete(r.planAt(0)[0], 0, body, nil)
		if value, version, problem := r.set.Find(
			r.pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken); value != "" ||
			version != "" || problem == "" {
			t.Errorf("%T: %q, %q, %q", body, value, version, problem)
		}
	}
}

// A few requests of a pod are in flight at a time, however many tokens it needs, and it has no more
// than budget.TokensMax.
func TestFewRequestsAtATime(t *testing.T) {
	var projections []v1.ServiceAccountTokenProjection
	for i := range budget.TokensMax + 1 {
		projections = append(projections, tokenFor(600+int64(i)), tokenFor(600+int64(i)))
	}
	r := newHarness(projections...)
	if n := Count(r.pod); n != budget.TokensMax+1 {
		t.Errorf("the pod needs %d tokens", n)
	}
	issued := r.planAt(0)
	for requested := len(issued); requested <= budget.TokensMax; requested += len(issued) {
		if r.table.InFlight > budget.TokenRequestsMax {
			t.Fatalf("%d requests in flight", r.table.InFlight)
		}
		for _, eff := range issued {
			r.complete(eff, 0, &world.TokenCreated{Token: "one"}, nil)
		}
		if issued = r.planAt(0); len(issued) == 0 {
			if requested != budget.TokensMax {
				t.Errorf("%d tokens requested", requested)
			}
			break
		}
	}
	if value, _, _ := r.set.Find(&projections[2*budget.TokensMax-1]); value != "one" {
		t.Error("a token is missing")
	}
	if _, _, problem := r.set.Find(&projections[2*budget.TokensMax]); problem == "" {
		t.Error("no problem for a token over the bound")
	}
}
