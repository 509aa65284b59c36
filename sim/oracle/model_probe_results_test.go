package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The thresholds, and replies of which the effect is not known.
func TestProbeResults(t *testing.T) {
	for _, c := range []struct {
		name        string
		answers     []replySet
		good, other bool
	}{
		{"no reply", nil, false, true},
		{"one success of two", []replySet{maySucceed}, false, true},
		{"two successes", []replySet{maySucceed, maySucceed}, true, false},
		{"successes interrupted", []replySet{maySucceed, mayFail, maySucceed}, false, true},
		{"success, then too few failures", []replySet{maySucceed, maySucceed, mayFail, mayFail},
			true, false},
		{"success, then failure", []replySet{maySucceed, maySucceed, mayFail, mayFail, mayFail},
			false, true},
		{"one reply may be lost", []replySet{maySucceed, mayBeLost, maySucceed}, true, false},
		{"one reply may be a failure", []replySet{maySucceed, maySucceed | mayFail}, true, true},
	} {
		s := newProbeResults(&v1.Probe{SuccessThreshold: 2, FailureThreshold: 3})
		for _, a := range c.answers {
			s.apply(begin, a)
		}
		if s.canBe(resultSuccess) != c.good || s.canBeOther() != c.other {
			t.Errorf("%s: possible states %+v", c.name, s.states)
		}
	}
}
