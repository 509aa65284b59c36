package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// standing is everything that the answers to a probe may have come to, as far as can be told from
// outside: an answer may have been lost, or come too late, or not have been heard by an agent that
// died. What is not among it is wrong.
type standing struct {
	good, bad int32 // the thresholds
	can       []stand
	at        time.Time // of the newest answer
	before    []stand   // what it was before that

	// When the result could last be so, if it could be and cannot any more.
	wasGood, wasOther, wasBad time.Time
}

// stand is one thing that it may have come to.
type stand struct {
	result verdict // of the thresholds
	last   verdict // answer
	inARow int32   // answers like it, as far as they matter
}

type verdict int8

const (
	undecided verdict = iota
	good
	bad
)

// outcome is a set of what an answer may have meant.
type outcome int8

const (
	canGood outcome = 1 << iota
	canBad
	canNothing
)

// undecidedOf is how a probe stands that was never answered.
func undecidedOf(p *v1.Probe) standing {
	if p == nil {
		return standing{}
	}
	return standing{good: max(p.SuccessThreshold, 1), bad: max(p.FailureThreshold, 1),
		can: []stand{{}}}
}

func (s *standing) clone() standing {
	c := *s
	c.can = slices.Clone(s.can)
	return c
}

// may says whether the result may be r.
func (s *standing) may(r verdict) bool {
	return slices.ContainsFunc(s.can, func(o stand) bool { return o.result == r })
}

// mayBeOther says whether the result may be something else than good.
func (s *standing) mayBeOther() bool { return s.may(undecided) || s.may(bad) }

// mark notes what is possible until now.
func (s *standing) mark(now time.Time) {
	if s.may(good) {
		s.wasGood = now
	}
	if s.mayBeOther() {
		s.wasOther = now
	}
	if s.may(bad) {
		s.wasBad = now
	}
}

// take takes an answer.
func (s *standing) take(now time.Time, can outcome) {
	s.mark(now)
	s.before, s.at = s.can, now
	s.can = nil
	for _, o := range s.before {
		if can&canNothing != 0 {
			s.add(o)
		}
		if can&canGood != 0 {
			s.add(s.after(o, good))
		}
		if can&canBad != 0 {
			s.add(s.after(o, bad))
		}
	}
}

// after is how a probe stands after one more answer.
func (s *standing) after(o stand, answer verdict) stand {
	threshold := s.good
	if answer == bad {
		threshold = s.bad
	}
	if o.last != answer {
		o.last, o.inARow = answer, 0
	}
	o.inARow = min(o.inARow+1, threshold)
	if o.inARow >= threshold {
		o.result = answer
	}
	return o
}

func (s *standing) add(o stand) {
	if !slices.Contains(s.can, o) {
		s.can = append(s.can, o)
	}
}

// believe takes it that the result is r, if it may be: what the agent does next shows it.
func (s *standing) believe(r verdict) {
	if s.may(r) {
		s.can = slices.DeleteFunc(slices.Clone(s.can), func(o stand) bool { return o.result != r })
	}
}

// loosen adds that any number of bad answers may have come.
func (s *standing) loosen(now time.Time) {
	s.mark(now)
	s.can = slices.Clone(s.can)
	for i := 0; i < len(s.can); i++ {
		s.add(s.after(s.can[i], bad))
	}
}

// forget is what a restart of the agent leaves of it: the result, or none; of what was counted
// nothing for sure. What was shown last may be what is remembered, if there was anything newer.
func (s *standing) forget(now time.Time, results ...verdict) {
	s.mark(now)
	known := slices.Clone(s.can)
	if now.Sub(s.at) < 2*wireSlack {
		known = append(known, s.before...)
	}
	s.can = nil
	for _, o := range known {
		s.add(o)
		s.add(stand{result: o.result})
	}
	for _, r := range results {
		s.add(stand{result: r})
	}
}
