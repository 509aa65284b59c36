package sweep_test

import (
	"slices"
	"testing"
	"time"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/sweep"
	"seedlet.dev/world"
)

func generate(t *testing.T, name string, seed uint64) *plan.Plan {
	t.Helper()
	scenario, err := plan.ReadScenario(scenarios.Files, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(scenario, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Effects that change something are points; each strike happens once, and right after its effect.
func TestWithStrike(t *testing.T) {
	p := generate(t, "steady", 1)
	points, err := sweep.Points(p)
	if err != nil {
		t.Fatal(err)
	}
	isCalled := map[string]bool{}
	for _, point := range points {
		isCalled[point.Call] = true
	}
	if !isCalled["StartContainer"] || !isCalled["WriteFile"] || isCalled["ListContainers"] ||
		isCalled["Log"] || isCalled["ReadFiles"] {
		t.Errorf("%v", isCalled)
	}
	start := points[slices.IndexFunc(points, func(p sweep.Point) bool {
		return p.Call == "StartContainer"
	})]
	for _, s := range sweep.Strikes {
		file, err := plan.Parse("plan", sweep.WithStrike(p, s, start).YAML())
		if err != nil {
			t.Fatal(err)
		}
		changes := 0
		var at []int
		if _, err := sim.Run(file, sim.Options{
			WatchEffect: func(eff world.Effect) {
				if plan.ChangesSomething(world.CallName(eff.Body)) {
					changes++
				}
			},
			WatchHappening: func(_ time.Time, h *plan.Happening) {
				if h.Manifest == nil {
					at = append(at, changes)
				}
			},
		}); err != nil {
			t.Fatal(err)
		}
		if len(at) != 1 || at[0] < start.Nth || s == sweep.KillAgent && at[0] > start.Nth {
			t.Errorf("%s: strikes after changes %d, want one after %d", s, at, start.Nth)
		}
	}
}

// A sample of the sweeps of calm plans: every eleventh point of each, by each strike in turn.
func TestSweep(t *testing.T) {
	for _, name := range []string{"steady", "sidecars", "config-reads", "evictions"} {
		p := generate(t, name, 1)
		points, err := sweep.Points(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(points); i += 11 {
			s, point := sweep.Strikes[i%len(sweep.Strikes)], points[i]
			verdict, err := sim.Run(sweep.WithStrike(p, s, point), sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if f := verdict.Failure; f != nil {
				t.Errorf("%s: %s after change %d, %s: %s: %s", name, s, point.Nth, point.Call, f.Oracle,
					f.Message)
			}
		}
	}
}
