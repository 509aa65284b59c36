package timer_test

import (
	"testing"
	"time"

	"seedlet.dev/core/timer"
)

// A time keeps its date over later changes of the date.
func TestDate(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w timer.WallClock
	w.Record(start.Add(time.Hour), 30*time.Minute)
	w.Record(start.Add(2*time.Hour), -time.Hour)
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: -time.Hour, 0: 0, time.Hour - 1: time.Hour - 1, time.Hour: 90 * time.Minute,
		2 * time.Hour: time.Hour, 3 * time.Hour: 2 * time.Hour,
	} {
		if got := w.Date(start.Add(after)); !got.Equal(start.Add(want)) {
			t.Errorf("the date %v after the start is %v after it, want %v", after, got.Sub(start), want)
		}
	}
	if !w.Date(time.Time{}).IsZero() {
		t.Error("no time has a date")
	}
	var none *timer.WallClock
	if got := none.Date(start); got != start {
		t.Errorf("without a wall clock: %v", got)
	}
}

func TestStepsAreBounded(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w timer.WallClock
	for i := range 1000 {
		w.Record(start.Add(time.Duration(i)*time.Second), time.Duration(i)*time.Minute)
	}
	if len(w.Steps) != 64 || w.Date(start.Add(time.Hour)) != start.Add(time.Hour+999*time.Minute) {
		t.Errorf("%d steps, the last %+v", len(w.Steps), w.Steps[len(w.Steps)-1])
	}
}

// A large step stays, however many small ones follow it.
func TestStepsThatDifferLeastAreMerged(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w timer.WallClock
	w.Record(start, 8*time.Hour)
	for i := range 1000 {
		w.Record(start.Add(time.Duration(i+1)*time.Minute), time.Duration(i)*time.Second)
	}
	if got := w.Date(start); got != start.Add(8*time.Hour) {
		t.Errorf("the date of a time after the large step is %v", got)
	}
	middle := start.Add(500 * time.Minute)
	if late := w.Date(middle).Sub(middle); late < 0 || late > 1000*time.Second {
		t.Errorf("a time in the middle is %v off", late)
	}
}
