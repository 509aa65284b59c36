package rapidplan_test

import (
	"fmt"

	"pgregory.net/rapid"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/rapidplan"
)

// oneAgent is a property of all plans: no incarnation of the agent ends but by a strike. In a test
// it is checked by rapid.Check(t, oneAgent(plans)).
func oneAgent(plans *rapid.Generator[*plan.Plan]) func(*rapid.T) {
	return func(t *rapid.T) {
		p := plans.Draw(t, "plan")
		strikes := 0
		for _, h := range p.Spec.Happenings {
			if h.KillAgent != nil || h.Reboot != nil {
				strikes++
			}
		}
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if verdict.Failure != nil || verdict.Incarnations > 1+strikes {
			t.Fatalf("%d incarnations, %d strikes: %+v\nseedsim replay %s --plan -\n%s",
				verdict.Incarnations, strikes, verdict.Failure, p.Spec.Scenario, p.YAML())
		}
	}
}

// A property of all plans of two scenarios.
func Example() {
	var list []*plan.Scenario
	for _, file := range []string{"steady.yaml", "init-chain.yaml"} {
		s, err := plan.ReadScenario(scenarios.Files, file)
		if err != nil {
			panic(err)
		}
		list = append(list, s)
	}
	tb := &recorder{} // a *testing.T in a test
	rapid.Check(tb, oneAgent(rapidplan.Plans(list...)))
	fmt.Println("failed:", tb.Failed())
	// Output:
	// failed: false
}
