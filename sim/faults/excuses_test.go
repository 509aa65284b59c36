package faults

import (
	"testing"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
)

// The excuses cover every window and the delays in it, the restart of the runtime, and the time
// until the manifest URL is fetched again.
func TestExcuses(t *testing.T) {
	seconds := func(n int) plan.Duration { return plan.Duration(time.Duration(n) * time.Second) }
	anchored := &plan.FaultWindow{ID: "anchored", For: seconds(2), Class: plan.FaultLatency,
		Calls: []string{"TCPConnect"}}
	spec := &plan.Spec{
		Duration: plan.Duration(time.Minute),
		Happenings: []plan.Happening{
			{At: seconds(10), Fault: &plan.FaultWindow{ID: "late", For: seconds(1),
				Class: plan.FaultLatency, Calls: []string{"HTTPGet"},
				Takes: plan.Span{Most: 2 * time.Second}}},
			{When: &plan.Anchor{Effect: "TCPConnect"}, Fault: anchored},
		},
	}
	injector := NewInjector(spec, plan.Start)
	excuses := NewExcuses(injector)
	at := func(n int) time.Time { return plan.Start.Add(time.Duration(seconds(n))) }
	excuses.PageBroken(at(5))
	excuses.PageMended(at(7))
	excuses.PageMended(at(8))
	excuses.RuntimeRestarted(at(30), time.Second)
	injector.Open(anchored, at(20))
	injector.Open(anchored, at(50))
	for _, c := range []struct {
		call     string
		from, to int
		want     bool
	}{
		{"HTTPGet", 0, 9, false}, {"HTTPGet", 0, 10, true}, {"HTTPGet", 14, 20, true},
		{"HTTPGet", 16, 40, false}, {"ExecSync", 10, 12, false}, {"ExecSync", 20, 40, true},
		{"ExecSync", 32, 40, false}, {"Unmount", 20, 40, false}, {runtime.CallEvent, 20, 40, true},
		{"FetchManifest", 0, 4, false}, {"FetchManifest", 0, 5, true}, {"FetchManifest", 52, 60, true},
		{"FetchManifest", 53, 60, false}, {"ReadFiles", 0, 60, false},
		{"TCPConnect", 0, 19, false}, {"TCPConnect", 0, 20, true}, {"TCPConnect", 23, 60, false},
	} {
		if got := excuses.MayHaveFailed(c.call, at(c.from), at(c.to)); got != c.want {
			t.Errorf("%s from %d s to %d s: got %t", c.call, c.from, c.to, got)
		}
	}
	for _, c := range []struct {
		seconds int
		want    bool
	}{{9, false}, {10, true}, {60, true}} {
		if got := NewExcuses(NewInjector(spec, plan.Start)).HasWindow(at(c.seconds)); got != c.want {
			t.Errorf("at %d s: a window has started: %t", c.seconds, got)
		}
	}
	for _, class := range plan.FaultClasses() { // a class without a case panics
		w := window{FaultWindow: &plan.FaultWindow{Class: class}}
		w.applies("ExecSync")
	}
	// A window that is not open yet is no excuse for a call of an unknown time.
	unopened := NewExcuses(NewInjector(spec, plan.Start))
	if unopened.MayHaveFailed("TCPConnect", time.Time{}, at(60)) {
		t.Error("a window that has not started is an excuse")
	}
}
