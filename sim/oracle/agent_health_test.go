package oracle

import "testing"

func TestHealth(t *testing.T) {
	for _, test := range []struct {
		name                           string
		sandboxes, containers, checked float64 // in seconds; zero: no list
		evented, violated              bool
	}{
		{"just listed", 100, 100, 101, false, false},
		{"just started", 0, 0, 180, false, false},
		{"never listed", 0, 0, 181, false, true},
		{"only sandboxes listed", 300, 0, 301, false, true},
		{"listed long ago", 100, 100, 281, false, true},
		{"evented PLEG", 100, 100, 700, true, false},
		{"evented PLEG, listed long ago", 100, 100, 881, true, true},
	} {
		s := newScript()
		s.model.opts.EventedPLEG = test.evented
		s.AgentStarted(s.now)
		start := s.now
		for _, list := range []struct {
			at         float64
			containers bool
		}{{test.sandboxes, false}, {test.containers, true}} {
			if s.now = start; list.at > 0 {
				s.wait(list.at)
				s.ListReceived(s.now, list.containers)
			}
		}
		s.now = start
		s.wait(test.checked)
		s.ReportedHealthy(s.now)
		if got := len(s.Violations()) > 0; got != test.violated {
			t.Errorf("%s: %v", test.name, s.Violations())
		}
	}
}
