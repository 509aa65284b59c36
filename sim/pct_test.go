package sim_test

import (
	"testing"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

// The PCT strategy orders the events of every scenario otherwise, is deterministic, also over
// restores from snapshots, and no oracle reports a violation.
func TestPCT(t *testing.T) {
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			p := generate(t, s, 1)
			byTime := run(t, p, sim.Options{})
			p.Spec.Order = plan.OrderPCT
			first, again := run(t, p, sim.Options{}), run(t, p, sim.Options{
				RestoreAfter: func(event uint64) bool { return event%500 == 0 },
			})
			if first.Hash != again.Hash {
				t.Errorf("%s: hash %016x, then %016x", s.Metadata.Name, first.Hash, again.Hash)
			}
			if first.Hash == byTime.Hash {
				t.Errorf("%s: the same run by time and by priorities", s.Metadata.Name)
			}
			if f := first.Failure; f != nil {
				t.Errorf("%s: %s: %s: seedsim replay %s --seed 1 --strategy pct --log", f.Oracle, f.Message,
					s.Metadata.Name, s.Metadata.Name)
			}
		})
	}
}
