package sim

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shrink looks for a smaller plan that fails in the same way: by the same oracle. It takes
// entries out, then brings times forward, then takes what containers do out, and tries at most
// the given number of plans. Progress, if not nil, is told of every try.
func Shrink(plan *Plan, tries int, progress func(tried, entries int)) (*Plan, *Verdict, error) {
	verdict, err := Run(plan, Options{})
	if err != nil || verdict.Failure == nil {
		return plan, verdict, err
	}
	s := &shrinker{best: plan.Clone(), verdict: verdict, left: tries, progress: progress}
	s.best.Unshrunk = plan.Entries()
	for before := -1; before != s.best.Entries() && s.left > 0; {
		before = s.best.Entries()
		s.takeOut(func(p *Plan) int { return len(p.Mishaps) }, func(p *Plan, i, n int) {
			p.Mishaps = without(p.Mishaps, i, n)
		})
		s.takeOut(func(p *Plan) int { return len(p.Faults) }, func(p *Plan, i, n int) {
			p.Faults = without(p.Faults, i, n)
		})
		s.takeOut(func(p *Plan) int { return len(p.Writes) }, func(p *Plan, i, n int) {
			p.Writes = without(p.Writes, i, n)
		})
		s.takeOut(func(p *Plan) int { return len(p.Scripts) }, func(p *Plan, i, n int) {
			p.Scripts = without(p.Scripts, i, n)
		})
	}
	s.shorten()
	return s.best, s.verdict, nil
}

type shrinker struct {
	best     *Plan
	verdict  *Verdict
	left     int
	progress func(tried, entries int)
	tried    int
}

// takeOut is delta debugging: it takes out chunks of entries, first large ones, then single ones
// (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input").
func (s *shrinker) takeOut(count func(*Plan) int, out func(p *Plan, i, n int)) {
	for n := count(s.best); n >= 1; n /= 2 {
		for i := 0; i+n <= count(s.best); {
			smaller := s.best.Clone()
			out(smaller, i, n)
			if !s.try(smaller) {
				i += n
			}
		}
	}
}

// shorten ends the plan soon after what fails, and halves the windows of faults.
func (s *shrinker) shorten() {
	for i := range s.best.Faults {
		for {
			smaller := s.best.Clone()
			half := smaller.Faults[i].For.Duration / 2
			smaller.Faults[i].For = metav1.Duration{Duration: half.Round(time.Millisecond)}
			if half < 100*time.Millisecond || !s.try(smaller) {
				break
			}
		}
	}
	smaller := s.best.Clone()
	last := time.Second
	for _, w := range s.best.Writes {
		last = max(last, w.At.Duration)
	}
	for _, w := range s.best.Faults {
		last = max(last, w.At.Duration+w.For.Duration)
	}
	for _, m := range s.best.Mishaps {
		last = max(last, m.At.Duration)
	}
	if last = last.Round(time.Second) + time.Second; last < smaller.Duration.Duration {
		smaller.Duration = metav1.Duration{Duration: last}
		s.try(smaller)
	}
}

// try runs a smaller plan, and keeps it if it fails in the same way.
func (s *shrinker) try(p *Plan) bool {
	if s.left == 0 || p.validate() != nil {
		return false
	}
	s.left--
	s.tried++
	if s.progress != nil {
		s.progress(s.tried, s.best.Entries())
	}
	p.Expect = Expect{}
	verdict, err := Run(p, Options{})
	if err != nil || verdict.Failure == nil ||
		verdict.Failure.Oracle != s.verdict.Failure.Oracle {
		return false
	}
	s.best, s.verdict = p, verdict
	return true
}

func without[T any](list []T, i, n int) []T {
	return append(append([]T(nil), list[:i]...), list[i+n:]...)
}
