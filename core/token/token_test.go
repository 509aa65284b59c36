package token

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var (
	t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner = op.Owner{Component: "pod", Name: "u"}
)

type rig struct {
	set   Set
	pod   *v1.Pod
	table op.Table
	wake  time.Time
}

func rigOf(tokens ...v1.ServiceAccountTokenProjection) *rig {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"}}
	pod.Spec.ServiceAccountName = "robot"
	source := &v1.ProjectedVolumeSource{}
	for i := range tokens {
		source.Sources = append(source.Sources, v1.VolumeProjection{ServiceAccountToken: &tokens[i]})
	}
	pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: source}}}
	return &rig{pod: pod}
}

// at plans a while after t0, with a jitter of ten seconds, and returns what is asked.
func (r *rig) at(after time.Duration) []world.Effect {
	var out op.Out
	out.Begin(&r.table, t0.Add(after))
	jitter := func(string, time.Duration) time.Duration { return jitterMax }
	r.wake = r.set.Plan(r.pod, owner, "s", jitter, &out)
	return out.Take()
}

func (r *rig) answer(eff world.Effect, after time.Duration, body any, err *world.Error) {
	record, _ := r.table.Settle(eff.Op)
	r.set.Answered(eff.Op, record, world.Event{Time: t0.Add(after), Body: body, Err: err})
}

func lasting(seconds int64) v1.ServiceAccountTokenProjection {
	return v1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: &seconds}
}

// A token is bound to its pod, and one serves all volumes that want the same.
func TestRequest(t *testing.T) {
	r := rigOf(lasting(600), v1.ServiceAccountTokenProjection{}, lasting(600))
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	spec := func(audiences []string, seconds int64) *world.CreateToken {
		return &world.CreateToken{Namespace: "n", ServiceAccount: "robot",
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
				ExpirationSeconds: &seconds, BoundObjectRef: bound}}
	}
	var got []any
	for _, eff := range r.at(0) {
		got = append(got, eff.Body)
	}
	want := []any{spec([]string{"vault"}, 600), spec(nil, 3600)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if again := r.at(time.Second); len(again) > 0 {
		t.Errorf("asked twice: %v", again)
	}
}

// A token is renewed when a fifth of its life is left, or when it is a day old, a little early.
func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		name            string
		asked, granted  int64 // seconds
		after           time.Duration
		serversClockOff time.Duration
	}{
		{"ten minutes", 600, 600, 8*time.Minute - jitterMax, 0},
		{"an hour", 3600, 3600, 48*time.Minute - jitterMax, 0},
		{"a year", 31536000, 31536000, 24*time.Hour - jitterMax, 0},
		{"cut short by the server", 3600, 600, 8*time.Minute - jitterMax, 0},
		{"made longer by the server", 600, 3600, 8*time.Minute - jitterMax, 0},
		{"a server in the past", 600, 600, 8*time.Minute - jitterMax, -time.Hour},
		{"a server in the future", 600, 600, 8*time.Minute - jitterMax, time.Hour},
	} {
		r := rigOf(lasting(c.asked))
		expires := t0.Add(time.Duration(c.granted)*time.Second + c.serversClockOff)
		r.answer(r.at(0)[0], time.Second, &world.TokenCreated{Token: "one", Expires: expires}, nil)
		if asked := r.at(c.after - 1); len(asked) > 0 || !r.wake.Equal(t0.Add(c.after)) {
			t.Errorf("%s: asked %v before it is due, wakes at %v", c.name, asked, r.wake.Sub(t0))
		}
		if asked := r.at(c.after); len(asked) != 1 {
			t.Errorf("%s: %d requests when it is due", c.name, len(asked))
		}
	}
}

// A request that fails takes nothing away, is repeated later, and not before the server wants it.
func TestAFailedRenewal(t *testing.T) {
	r := rigOf(lasting(600))
	wanted := r.pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
	r.answer(r.at(0)[0], 0, nil, world.Errorf(world.KindNotFound, "", "no robot"))
	if value, _, problem := r.set.Find(wanted); value != "" || problem != "no robot" {
		t.Errorf("%q, %q", value, problem)
	}
	if len(r.at(time.Second-1)) > 0 {
		t.Error("asked again at once")
	}
	r.answer(r.at(time.Second)[0], time.Second, &world.TokenCreated{Token: "one"}, nil)
	_, first, problem := r.set.Find(wanted)
	if problem != "" {
		t.Errorf("%q after it was had", problem)
	}
	busy := &world.Error{Kind: world.KindThrottled, RetryAfter: time.Minute}
	r.answer(r.at(9 * time.Minute)[0], 9*time.Minute, nil, busy)
	value, version, problem := r.set.Find(wanted)
	if value != "one" || version != first || problem != "" {
		t.Errorf("%q, version %s, %q after a renewal that failed", value, version, problem)
	}
	if asked := r.at(10*time.Minute - 1); len(asked) > 0 {
		t.Error("asked before the server wants to be")
	}
	r.answer(r.at(10 * time.Minute)[0], 10*time.Minute, &world.TokenCreated{Token: "two"}, nil)
	if value, version, _ := r.set.Find(wanted); value != "two" || version == first {
		t.Errorf("%q, version %s; want another one", value, version)
	}
}

// An answer without a token is none.
func TestAnEmptyAnswer(t *testing.T) {
	for _, body := range []any{&world.TokenCreated{}, &world.Done{}} {
		r := rigOf(lasting(600))
		r.answer(r.at(0)[0], 0, body, nil)
		if value, version, problem := r.set.Find(
			r.pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken); value != "" ||
			version != "" || problem == "" {
			t.Errorf("%T: %q, %q, %q", body, value, version, problem)
		}
	}
}
