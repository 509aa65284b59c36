package sim

import (
	"testing"
	"time"
)

// The judges know of every window, of how long it reaches, and of the runtime's absence.
func TestStruck(t *testing.T) {
	p := &PlanSpec{
		Duration: Duration(time.Minute),
		Faults: []Window{{ID: "late", At: Duration(10 * time.Second), For: Duration(time.Second),
			Class: ClassLatency, Calls: []string{"HTTPGet"}, Takes: Span{Most: 2 * time.Second}}},
		Manifests: []Change{{At: Duration(5 * time.Second), URL: true, File: "p", Text: "no page"},
			{At: Duration(7 * time.Second), URL: true, File: "p"}},
		RuntimeEnds: []RuntimeEnd{{At: Duration(30 * time.Second), Down: Duration(time.Second)}},
	}
	s := newStruck(newFates(p, Start), p)
	at := func(seconds int) time.Time { return Start.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		call     string
		from, to int
		want     bool
	}{
		{"HTTPGet", 0, 9, false}, {"HTTPGet", 0, 10, true}, {"HTTPGet", 14, 20, true},
		{"HTTPGet", 16, 40, false}, {"ExecSync", 10, 12, false}, {"ExecSync", 20, 40, true},
		{"ExecSync", 32, 40, false},
		{"FetchManifest", 0, 4, false}, {"FetchManifest", 0, 5, true}, {"FetchManifest", 52, 60, true},
		{"FetchManifest", 53, 60, false}, {"ReadFiles", 0, 60, false},
	} {
		if got := s.may(c.call, at(c.from), at(c.to)); got != c.want {
			t.Errorf("%s from %d s to %d s: %t", c.call, c.from, c.to, got)
		}
	}
}
