package oracle

import "testing"

func TestHealth(t *testing.T) {
	for _, test := range []struct {
		name                         string
		sandboxes, containers, asked float64 // in seconds; zero: never told
		evented, violated            bool
	}{
		{"just told", 100, 100, 101, false, false},
		{"young", 0, 0, 180, false, false},
		{"never told", 0, 0, 181, false, true},
		{"told of one half only", 300, 0, 301, false, true},
		{"told long ago", 100, 100, 281, false, true},
		{"with events", 100, 100, 700, true, false},
		{"with events, long ago", 100, 100, 881, true, true},
	} {
		s := tell()
		s.world.opts.Evented = test.evented
		s.AgentStarted(s.now)
		start := s.now
		for _, told := range []struct {
			at         float64
			containers bool
		}{{test.sandboxes, false}, {test.containers, true}} {
			if s.now = start; told.at > 0 {
				s.wait(told.at)
				s.Listed(s.now, told.containers)
			}
		}
		s.now = start
		s.wait(test.asked)
		s.Well(s.now)
		if got := len(s.Violations()) > 0; got != test.violated {
			t.Errorf("%s: %v", test.name, s.Violations())
		}
	}
}
