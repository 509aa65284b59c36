package fuzz

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
)

// mutate returns a plan with the pods, the seed and most of the happenings of another, some of its
// troubles redrawn, and perhaps another order of events.
func mutate(p *plan.Plan, s *plan.Scenario, seed uint64) (*plan.Plan, error) {
	r := wire.Stream(seed, "mutation")
	other, err := plan.Generate(s, r.Uint64N(1<<40))
	if err != nil {
		return nil, err
	}
	mutated := p.Clone()
	spec := &mutated.Spec
	spec.Happenings = slices.Clone(spec.Happenings)
	if r.IntN(3) == 0 {
		spec.Order = plan.Orders[r.IntN(len(plan.Orders))]
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			exchangeTroubles(spec, other, seed, r)
		case 1:
			bringTogether(spec, r)
		case 2:
			anchorStrike(spec, r)
		case 3:
			moveHappenings(spec, r)
		}
	}
	slices.SortStableFunc(spec.Happenings, func(x, y plan.Happening) int {
		return cmp.Compare(x.At, y.At)
	})
	// A plan of the scenario may have fields that do not go together.
	if mutated.Validate() != nil {
		return p, nil
	}
	return mutated, nil
}

// isTrouble reports whether a happening is something that goes wrong. All others may depend on each
// other.
func isTrouble(h *plan.Happening) bool {
	return h.Manifest == nil && h.Act == nil && h.Request == nil
}

// exchangeTroubles replaces about half of the troubles by those of another plan.
func exchangeTroubles(spec *plan.Spec, other *plan.Plan, seed uint64, r *rand.Rand) {
	spec.Happenings = slices.DeleteFunc(spec.Happenings, func(h plan.Happening) bool {
		return isTrouble(&h) && r.IntN(2) == 0
	})
	for _, h := range other.Spec.Happenings {
		if !isTrouble(&h) || r.IntN(2) == 0 {
			continue
		}
		h.At = min(h.At, spec.Duration)
		if h.Fault != nil { // the ID is that of one window
			window := *h.Fault
			window.ID = fmt.Sprintf("%s-%x", window.ID, seed)
			h.Fault = &window
		}
		deed, _ := h.Deed()
		if pod := deed.PodEntry(); pod == "" || spec.PodNamed(pod) != nil {
			spec.Happenings = append(spec.Happenings, h)
		}
	}
}

// bringTogether moves a trouble to about the time of another happening.
func bringTogether(spec *plan.Spec, r *rand.Rand) {
	troubles := timedTroubles(spec)
	if len(troubles) == 0 {
		return
	}
	to := spec.Happenings[r.IntN(len(spec.Happenings))].At
	by := plan.Duration(r.Int64N(int64(2*short))) - plan.Duration(short)
	spec.Happenings[troubles[r.IntN(len(troubles))]].At = inTime(spec, to+by)
}

// moveHappenings moves about a third of the troubles to any time.
func moveHappenings(spec *plan.Spec, r *rand.Rand) {
	for _, i := range timedTroubles(spec) {
		if r.IntN(3) == 0 {
			spec.Happenings[i].At = inTime(spec, plan.Duration(r.Int64N(int64(spec.Duration))))
		}
	}
}

// anchorStrike moves a trouble to just after a change that the agent makes.
func anchorStrike(spec *plan.Spec, r *rand.Rand) {
	troubles := timedTroubles(spec)
	if len(troubles) == 0 {
		return
	}
	calls := slices.DeleteFunc(plan.Calls(), func(call string) bool {
		return !plan.ChangesSomething(call)
	})
	h := &spec.Happenings[troubles[r.IntN(len(troubles))]]
	h.At, h.When = 0, &plan.Anchor{Effect: calls[r.IntN(len(calls))],
		Nth: 1 + r.IntN(4*len(spec.Pods)+1)}
	if r.IntN(2) == 0 {
		h.When.After = plan.Duration(r.Int64N(int64(short)))
	}
}

// timedTroubles returns the indexes of the troubles that have a time.
func timedTroubles(spec *plan.Spec) []int {
	var list []int
	for i := range spec.Happenings {
		if h := &spec.Happenings[i]; isTrouble(h) && h.When == nil {
			list = append(list, i)
		}
	}
	return list
}

// inTime returns the nearest time at which any happening may be.
func inTime(spec *plan.Spec, at plan.Duration) plan.Duration {
	return min(max(at, plan.Duration(time.Millisecond)), spec.Duration)
}
