package sim

import (
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim/plan"
)

// The marks change no run: one whose ports they do not see has the same events and effects.
func TestMarksChangeNothing(t *testing.T) {
	more := 0 // marks with ports than without
	for _, name := range []string{"mix", "hooks", "api-partition", "odd-runtime", "panics"} {
		s, err := plan.ReadScenario(scenarios.Files, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for seed := uint64(1); seed <= 4; seed++ {
			p, err := plan.Generate(s, seed)
			if err != nil {
				t.Fatal(err)
			}
			marked, err := Run(p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := newRun(p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.marks.Connect()
			plain := r.execute()
			if plain.Hash != marked.Hash || plain.Effects != marked.Effects {
				t.Errorf("%s seed %d: hash %x without ports, %x with them", name, seed, plain.Hash,
					marked.Hash)
			}
			more += marked.Marks.Len() - plain.Marks.Len()
		}
	}
	if more < 10 {
		t.Errorf("only %d marks depend on the ports", more)
	}
}
