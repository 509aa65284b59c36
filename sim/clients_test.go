package sim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

const crashingPods = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: requests}
spec:
  description: d
  duration: 1m
  settle: 1m
  pods:
  - count: 4
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec:
        containers:
        - {name: web, image: "registry.test/web:1"}
    behaviour:
    - container: web
      runs: 1s..1m
      exitCodes: [0, 1]
      stopTakes: 0s..3s
  strikes: {containers: 0..5}
  requests: 10..50
`

// The requests of HTTP clients do not change what else happens in a run. They may end later than
// everything else, so only what both runs have is compared.
func TestRequestsDoNotChangeTheRun(t *testing.T) {
	s, err := plan.ParseScenario("requests.yaml", []byte(crashingPods), nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(30) {
		p, err := plan.Generate(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		with, requests := calls(t, seed, p)
		p.Spec.Happenings = slices.DeleteFunc(p.Spec.Happenings, func(h plan.Happening) bool {
			return h.Request != nil
		})
		without, _ := calls(t, seed, p)
		both := min(len(with), len(without))
		if both < 100 || requests == 0 || len(with) > both+20 || len(without) > both+20 {
			t.Errorf("seed %d: %d calls with %d requests, %d without", seed, len(with), requests,
				len(without))
		}
		if d := cmp.Diff(without[:both], with[:both]); d != "" {
			t.Errorf("seed %d: %s", seed, d)
		}
	}
}

// calls returns the calls of the ports in a run, with their times, and the number of responses to
// clients.
func calls(t *testing.T, seed uint64, p *plan.Plan) (calls []string, requests int) {
	verdict, err := Run(p, Options{Watch: func(step Step) {
		for _, eff := range step.Effects {
			if world.PortOf(eff.Body) == world.PortRequests {
				requests++
				continue
			}
			calls = append(calls, fmt.Sprint(step.Event.Time, " ", world.BodyName(eff.Body)))
		}
	}})
	if err != nil || verdict.Failure != nil {
		t.Fatalf("seed %d: %v, %v", seed, err, verdict.Failure)
	}
	return calls, requests
}
