package sim_test

import (
	"testing"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// The PCT strategy is deterministic for every scenario, also over restores from snapshots, orders
// the events otherwise, and no oracle reports a violation.
func TestPCT(t *testing.T) {
	for i, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			p := generate(t, s, 1)
			var byTime *sim.Verdict
			if i%10 == 0 {
				byTime = run(t, p, sim.Options{})
			}
			p.Spec.Order = plan.OrderPCT
			first, again := run(t, p, sim.Options{}), run(t, p, sim.Options{
				RestoreAfter: func(event uint64) bool { return event%500 == 0 },
			})
			if first.Hash != again.Hash {
				t.Errorf("%s: hash %016x, then %016x", s.Metadata.Name, first.Hash, again.Hash)
			}
			if byTime != nil && first.Hash == byTime.Hash {
				t.Errorf("%s: the same run by time and by priorities", s.Metadata.Name)
			}
			if f := first.Failure; f != nil {
				t.Errorf("%s: %s: %s: seedsim replay %s --seed 1 --strategy pct --log", f.Oracle, f.Message,
					s.Metadata.Name, s.Metadata.Name)
			}
		})
	}
}
