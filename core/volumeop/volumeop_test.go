package volumeop

import (
	"slices"
	"testing"
	"time"
)

// Failures in a row back off, up to a bound; a success forgets them.
func TestAttempts(t *testing.T) {
	now, wake := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}
	var a Attempts
	if a.IsWaiting(now, &wake) || !wake.IsZero() {
		t.Errorf("waiting until %v", wake)
	}
	a.Fail(now, "late")
	if !a.IsWaiting(now, &wake) || !wake.Equal(now.Add(BackoffFirst)) || a.Problem != "late" {
		t.Errorf("%+v, waiting until %v", a, wake)
	}
	for range 20 {
		a.Fail(now, "late")
	}
	if want := now.Add(BackoffMax); !a.NotBefore.Equal(want) || a.Failures != 21 {
		t.Errorf("%+v, want until %v", a, want)
	}
	if a.Succeed(); a != (Attempts{}) {
		t.Errorf("%+v", a)
	}
}

// A pod has each name once, sorted; one without a name is not noted.
func TestOwners(t *testing.T) {
	var o Owners
	o.Remove("u", "a")
	for _, name := range []string{"b", "a", "b"} {
		o.Add("u", name)
	}
	if !slices.Equal(o["u"], []string{"a", "b"}) {
		t.Errorf("%v", o)
	}
	o.Remove("u", "a")
	o.Remove("u", "c")
	if o.Remove("u", "b"); len(o) != 0 {
		t.Errorf("%v", o)
	}
}
