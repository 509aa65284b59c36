package clock_test

import (
	"encoding/json"
	"testing"
	"time"

	"seedlet.dev/realworld/clock"
)

func TestNowNeverGoesBack(t *testing.T) {
	c := clock.New()
	last := c.Now()
	for range 10_000 {
		now := c.Now()
		if now.Before(last) {
			t.Fatalf("the clock went back from %v to %v", last, now)
		}
		last = now
	}
	if off := time.Until(c.Now()); off < -time.Second || off > time.Second {
		t.Errorf("the clock is %v off the wall clock", off)
	}
}

func TestNowSurvivesMarshaling(t *testing.T) {
	now := clock.New().Now()
	data, err := json.Marshal(now)
	if err != nil {
		t.Fatal(err)
	}
	var back time.Time
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back != now { // the struct, not only the instant
		t.Errorf("unmarshaled %#v, want %#v", back, now)
	}
}

// The date of a test is not changed.
func TestOffset(t *testing.T) {
	if off := clock.New().Offset(); off.Abs() > time.Second {
		t.Errorf("the date is %v off", off)
	}
}

func TestUntil(t *testing.T) {
	c := clock.New()
	got := c.Until(c.Now().Add(time.Hour))
	if got > time.Hour || got < time.Hour-time.Minute {
		t.Errorf("an hour from now is %v away", got)
	}
	if got := c.Until(c.Now().Add(-time.Hour)); got >= 0 {
		t.Errorf("an hour ago is %v away, want a negative duration", got)
	}
}
