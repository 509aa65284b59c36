// Package why finds the step that decides the failure of a plan. It replays the run up to an event,
// lets chance go another way from there, many times, and counts how often the same oracle fails. At
// the step that decides, the share of failures rises from what it is for any run of the plan.
//
// Start reading at Explain.
package why

import (
	"context"
	"errors"
	"slices"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// Options are how much is tried.
type Options struct {
	Runs int // from each event
	// Each calls a function with every number below n, some perhaps at once. Nil: one after the other.
	Each func(n int, do func(int))
	// Progress, if not nil, is called after each point. All is an estimate.
	Progress func(done, all int)
}

// Explanation is how probable a failure was, event by event.
type Explanation struct {
	Failure *sim.Failure
	Points  []Point // in the order of their events
	// Decisive is the first event after which the share of failures is nearer to all than to that of
	// runs that are drawn again from the start. It is zero if nearly all of those fail: then the plan
	// decides, and not chance.
	Decisive uint64
}

// Point is how many runs have failed that were the same up to an event.
type Point struct {
	Event          uint64 // zero: all of the run was drawn again
	Runs, Failures int
}

// Share returns the share of runs that have failed.
func (p Point) Share() float64 { return float64(p.Failures) / float64(p.Runs) }

// ErrPasses means that the plan does not fail.
var ErrPasses = errors.New("the plan does not fail")

// inevitable is the share of failures from which the plan decides, and not chance.
const inevitable = 0.9

// overview is the number of events, evenly distributed over the run, that are tried first.
const overview = 8

// Explain explains the failure of a plan.
func Explain(ctx context.Context, p *plan.Plan, opts Options) (*Explanation, error) {
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil {
		return nil, err
	}
	if verdict.Failure == nil {
		return nil, ErrPasses
	}
	s := &search{ctx: ctx, plan: p, opts: opts, failure: verdict.Failure, execute: sim.Run}
	return s.explain()
}

// search is a search in progress.
type search struct {
	ctx     context.Context
	plan    *plan.Plan
	opts    Options
	failure *sim.Failure
	execute func(*plan.Plan, sim.Options) (*sim.Verdict, error)
	points  []Point
}

func (s *search) explain() (*Explanation, error) {
	last := s.failure.Event
	for i := range uint64(overview) {
		if _, err := s.try(last * i / overview); err != nil {
			return nil, err
		}
	}
	// Chance no longer has a part when the last event has been handled.
	before, after := s.points[0], Point{Event: last, Runs: s.opts.Runs, Failures: s.opts.Runs}
	if before.Share() >= inevitable {
		return &Explanation{Failure: s.failure, Points: s.points}, nil
	}
	isLikely := func(p Point) bool { return p.Share() > (1+s.points[0].Share())/2 }
	for _, p := range s.points {
		if isLikely(p) {
			after = p
			break
		}
		before = p
	}
	for after.Event-before.Event > 1 {
		middle, err := s.try(before.Event + (after.Event-before.Event)/2)
		if err != nil {
			return nil, err
		}
		if isLikely(middle) {
			after = middle
		} else {
			before = middle
		}
	}
	slices.SortFunc(s.points, func(a, b Point) int { return int(a.Event) - int(b.Event) })
	return &Explanation{Failure: s.failure, Points: s.points, Decisive: after.Event}, nil
}

// try runs the plan with another course of chance after an event, as often as the options say.
func (s *search) try(event uint64) (Point, error) {
	point := Point{Event: event, Runs: s.opts.Runs}
	failed, errs := make([]bool, point.Runs), make([]error, point.Runs)
	each := s.opts.Each
	if each == nil {
		each = func(n int, do func(int)) {
			for i := range n {
				do(i)
			}
		}
	}
	each(point.Runs, func(i int) {
		if errs[i] = s.ctx.Err(); errs[i] == nil {
			failed[i], errs[i] = s.run(event, s.plan.Spec.Seed+1+uint64(i))
		}
	})
	for i := range failed {
		if failed[i] {
			point.Failures++
		}
	}
	if err := errors.Join(errs...); err != nil {
		return point, err
	}
	s.points = append(s.points, point)
	if s.opts.Progress != nil {
		all := overview
		for n := s.failure.Event / overview; n > 1; n /= 2 {
			all++
		}
		s.opts.Progress(len(s.points), max(all, len(s.points)))
	}
	return point, nil
}

// run reports whether the same oracle fails if chance goes another way after an event.
func (s *search) run(event, seed uint64) (bool, error) {
	p, opts := s.plan, sim.Options{ReseedAfter: event, ReseedWith: seed}
	if event == 0 {
		again := *s.plan
		again.Spec.Seed = seed
		p, opts = &again, sim.Options{}
	}
	verdict, err := s.execute(p, opts)
	if err != nil {
		return false, err
	}
	return verdict.Failure != nil && verdict.Failure.Oracle == s.failure.Oracle, nil
}
