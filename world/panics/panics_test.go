package panics_test

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
	"seedlet.dev/world/panics"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// only returns the one pod that an agent gets which starts now.
func only(t *testing.T, r *panics.Record, now time.Time) world.PodSetAside {
	t.Helper()
	pods := panics.Open(r.Entries(), now).SetAside(now)
	if len(pods) != 1 {
		t.Fatalf("%+v, want one pod", pods)
	}
	return pods[0]
}

// The time doubles with each panic in a row up to 5 minutes, also for agents that have panicked at
// once, and starts again after 10 minutes without one.
func TestBackoff(t *testing.T) {
	r, now := panics.Open(nil, t0), t0
	if r.SetAside(now) != nil {
		t.Error("a pod is set aside without a panic")
	}
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		r = panics.Open(r.Entries(), now) // an agent for each
		if n := r.Note("u1", "", now); n != i+1 {
			t.Errorf("panic %d counts as %d", i+1, n)
		}
		if got := only(t, r, now.Add(time.Second)); got.UID != "u1" || got.Panics != i+1 ||
			got.Silent || got.Remaining != want*time.Second-time.Second {
			t.Errorf("after %d panics: %+v, want %v in all", i+1, got, want*time.Second)
		}
		now = now.Add(want * time.Second)
		if got := only(t, r, now); got.Remaining != 0 {
			t.Errorf("at the end: %+v", got)
		}
	}
	now = now.Add(10*time.Minute - time.Second)
	if got := only(t, r, now); got.Panics != 7 {
		t.Errorf("forgotten too early: %+v", got)
	}
	now = now.Add(time.Second)
	if got := panics.Open(r.Entries(), now).SetAside(now); len(got) > 0 {
		t.Errorf("not forgotten after a quiet time: %+v", got)
	}
	if n := r.Note("u1", "", now); n != 1 {
		t.Errorf("counted as %d after a quiet time", n)
	}
}

// A panic while the pod is set aside makes it silent: its status can be the reason.
func TestPanicWhileSetAside(t *testing.T) {
	r := panics.Open(nil, t0)
	r.Note("u1", "", t0)
	r = panics.Open(r.Entries(), t0.Add(time.Second))
	r.Note("u2", "", t0.Add(2*time.Second))
	r.Note("u1", "", t0.Add(3*time.Second))
	for _, pod := range r.SetAside(t0.Add(4 * time.Second)) {
		if pod.Silent != (pod.UID == "u1") {
			t.Errorf("%+v", pod)
		}
	}
}

// A date that was changed does not keep a pod aside for longer than its back-off.
func TestChangedDate(t *testing.T) {
	r := panics.Open(nil, t0)
	r.Note("u1", "", t0.AddDate(50, 0, 0))
	if got := only(t, r, t0); got.Remaining != 10*time.Second {
		t.Errorf("%+v", got)
	}
}

// The pods are bounded. The newest stay.
func TestManyPods(t *testing.T) {
	r := panics.Open(nil, t0)
	for i := range 100 {
		r.Note("u"+strings.Repeat("x", i), "", t0)
	}
	if pods := r.SetAside(t0); len(pods) != 64 || len(pods[63].UID) != 100 {
		t.Errorf("%d pods", len(pods))
	}
}
