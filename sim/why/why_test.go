package why

import (
	"context"
	"errors"
	"testing"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// decidedAt returns a search in whose runs the oracle fails with a probability of one in four until
// an event is the same, and nearly always from then on.
func decidedAt(event uint64) *search {
	return &search{ctx: context.Background(), plan: &plan.Plan{}, opts: Options{Runs: 20},
		failure: &sim.Failure{Oracle: "readiness", Event: 1000},
		execute: func(p *plan.Plan, opts sim.Options) (*sim.Verdict, error) {
			seed := opts.ReseedWith + p.Spec.Seed
			v := &sim.Verdict{}
			switch {
			case opts.ReseedAfter >= event && seed%20 != 0, seed%4 == 0:
				v.Failure = &sim.Failure{Oracle: "readiness"}
			case seed%3 == 0: // another failure does not count
				v.Failure = &sim.Failure{Oracle: "probes"}
			}
			return v, nil
		}}
}

func TestDecisiveEvent(t *testing.T) {
	for _, event := range []uint64{1, 2, 499, 875, 999, 1000} {
		s := decidedAt(event)
		e, err := s.explain()
		if err != nil {
			t.Fatal(err)
		}
		if e.Decisive != event {
			t.Errorf("decisive is event %d, want %d", e.Decisive, event)
		}
		for i, p := range e.Points {
			if i > 0 && p.Event <= e.Points[i-1].Event || p.Runs != 20 || p.Failures < 5 ||
				p.Failures > 20 || p.Event >= event && p.Failures < 19 {
				t.Errorf("point %d of %d: %+v", i, len(e.Points), p)
			}
		}
		if len(e.Points) > 20 {
			t.Errorf("%d points were tried", len(e.Points))
		}
	}
}

func TestPlanThatDecides(t *testing.T) {
	e, err := decidedAt(0).explain()
	if err != nil {
		t.Fatal(err)
	}
	if e.Decisive != 0 || e.Points[0].Failures < 19 {
		t.Errorf("%+v", e)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := decidedAt(100)
	s.ctx = ctx
	if _, err := s.explain(); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
