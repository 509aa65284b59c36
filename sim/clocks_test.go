package sim

import (
	"testing"
	"time"

	"seedlet.dev/sim/plan"
)

// Changes of a clock add up, each from its time on.
func TestOffset(t *testing.T) {
	var o offset
	after := func(d time.Duration) time.Time { return plan.Start.Add(d) }
	o.change(after(10*time.Second), -time.Hour)
	o.change(after(20*time.Second), time.Minute)
	o.change(after(time.Minute), -o.at(after(time.Minute)))
	for at, want := range map[time.Duration]time.Duration{ //ordered: each alone
		9 * time.Second: 0, 10 * time.Second: -time.Hour, 20 * time.Second: -59 * time.Minute,
		time.Minute: 0,
	} {
		if got := o.at(after(at)); got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

// A change of the date is one of the runtime's clock as well.
func TestRuntimeSkew(t *testing.T) {
	var c clocks
	c.date.change(plan.Start, -time.Hour)
	c.runtime.change(plan.Start, time.Second)
	if got := c.runtimeSkew(plan.Start); got != time.Second-time.Hour {
		t.Errorf("the runtime's clock is wrong by %v", got)
	}
}
