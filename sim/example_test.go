package sim_test

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/shrink"
	"seedlet.dev/sim/truth"
)

// A scenario and a seed give a plan. The run of a plan is the same every time.
func ExampleRun() {
	s, err := plan.ReadScenario(scenarios.Files, "steady.yaml") // os.DirFS for files of your own
	if err != nil {
		panic(err)
	}
	p, err := plan.Generate(s, 7)
	if err != nil {
		panic(err)
	}
	first, err := sim.Run(p, sim.Options{})
	if err != nil {
		panic(err)
	}
	again, err := sim.Run(p, sim.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("failed:", first.Failure != nil)
	fmt.Println("the same run:", first.Hash == again.Hash)
	// Output:
	// failed: false
	// the same run: true
}

// crashing is a plan that is written in Go. It asks for what the pod never does: its container
// exits after a second, again and again, and is to succeed.
func crashing() *plan.Plan {
	return &plan.Plan{
		APIVersion: plan.APIVersion, Kind: "Plan",
		Metadata: plan.Metadata{Name: "crashing"},
		Spec: plan.Spec{
			Seed: 1, Order: plan.OrderUniform,
			Duration: plan.Duration(time.Minute), Settle: plan.Duration(5 * time.Minute),
			Pods: []plan.Pod{{
				Name: "web",
				Manifest: map[string]any{
					"apiVersion": "v1", "kind": "Pod",
					"metadata": map[string]any{"name": "web"},
					"spec": map[string]any{"containers": []any{
						map[string]any{"name": "main", "image": "registry.test/web:1"},
					}},
				},
				Behaviours: []plan.Behaviour{{
					Container: "main",
					Processes: []plan.ProcessRun{{Runs: plan.Duration(time.Second), ExitCode: 1}},
				}},
			}},
			Happenings: []plan.Happening{
				{Manifest: &plan.ManifestChange{File: "web.yaml", Pod: "web"}},
				{At: plan.Duration(20 * time.Second),
					KillAgent: &plan.AgentKill{Down: plan.Duration(3 * time.Second)}},
			},
			Expectations: []plan.Expectation{{PodPrefix: "web", Phase: "Succeeded"}},
		},
	}
}

// A failure has the name of an oracle, its message and its moment.
func ExampleRun_failure() {
	p := crashing()
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil {
		panic(err)
	}
	f := verdict.Failure
	fmt.Printf("%s: %s\n", f.Oracle, f.Message)
	fmt.Println("incarnations of the agent:", verdict.Incarnations)

	smaller, _, err := shrink.Minimize(context.Background(), p, 100, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println("happenings left:", len(smaller.Spec.Happenings))
	// Output:
	// expect: pod web-sim is Running, the scenario expects Succeeded
	// incarnations of the agent: 2
	// happenings left: 1
}

// Facts are what really happened in the simulated world, and steps what the agent has seen and
// done.
func ExampleOptions() {
	starts, stops := 0, 0
	_, err := sim.Run(crashing(), sim.Options{
		WatchFact: func(f truth.Fact) {
			if f.Kind == truth.ContainerStarted {
				starts++
			}
		},
		Watch: func(s sim.Step) {
			for _, effect := range s.Effects {
				if _, ok := effect.Body.(*runtimeapi.StopContainerRequest); ok {
					stops++
				}
			}
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("restarted:", starts > 1)
	fmt.Println("stopped by the agent:", stops)
	// Output:
	// restarted: true
	// stopped by the agent: 0
}

// A property holds for every seed: here, that no pod runs in a sandbox that is not ready. For
// properties with plans that are made smaller by rapid, see package rapidplan.
func Example_property() {
	s, err := plan.ReadScenario(scenarios.Files, "pleg-races.yaml")
	if err != nil {
		panic(err)
	}
	violations := 0
	for seed := uint64(1); seed <= 5; seed++ {
		p, err := plan.Generate(s, seed)
		if err != nil {
			panic(err)
		}
		ready := map[string]bool{}
		verdict, err := sim.Run(p, sim.Options{WatchFact: func(f truth.Fact) {
			switch f.Kind {
			case truth.SandboxReady, truth.SandboxStopped:
				ready[f.SandboxID] = f.Kind == truth.SandboxReady
			case truth.ContainerStarted:
				if !ready[f.SandboxID] {
					violations++
				}
			}
		}})
		if err != nil {
			panic(err)
		}
		if verdict.Failure != nil {
			fmt.Printf("seed %d: %s: %s\n", seed, verdict.Failure.Oracle, verdict.Failure.Message)
		}
	}
	fmt.Println("violations:", violations)
	// Output:
	// violations: 0
}
