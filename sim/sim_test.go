package sim_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
)

// loadAll reads the scenarios that come with the project.
func loadAll(t testing.TB) []*sim.Scenario {
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var all []*sim.Scenario
	for _, file := range files {
		data, err := fs.ReadFile(scenarios.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sim.ParseScenario(file, data, scenarios.Files)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func draw(t testing.TB, s *sim.Scenario, seed uint64) *sim.Plan {
	plan, err := sim.Draw(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func run(t testing.TB, plan *sim.Plan, opts sim.Options) *sim.Verdict {
	verdict, err := sim.Run(plan, opts)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

// Every scenario holds for some seeds; `seedsim run` is for many.
func TestScenariosHold(t *testing.T) {
	for _, s := range loadAll(t) {
		for seed := uint64(1); seed <= 20; seed++ {
			if f := run(t, draw(t, s, seed), sim.Options{}).Failure; f != nil {
				t.Errorf("%s: %s: seedsim replay %s --seed %d --log", f.Oracle, f.Message,
					s.Metadata.Name, seed)
			}
		}
	}
}

// The same plan leads to the same events and effects, every time.
func TestDeterminism(t *testing.T) {
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= seedsTwice(4); seed++ {
				first := run(t, draw(t, s, seed), sim.Options{})
				again := run(t, draw(t, s, seed), sim.Options{})
				if first.Hash != again.Hash {
					t.Errorf("seed %d: hash %016x, then %016x\n%s", seed, first.Hash, again.Hash,
						divergence(t, draw(t, s, seed), sim.Options{}))
				}
			}
		})
	}
}

// An agent restored from its snapshot, at any event, goes on exactly as the original would.
func TestDeterminismOverRestore(t *testing.T) {
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= seedsTwice(3); seed++ {
				plan := draw(t, s, seed)
				restore := sim.Options{RestoreAfter: func(event uint64) bool {
					return (event*2654435761^seed)%17 == 0
				}}
				want, got := run(t, plan, sim.Options{}), run(t, plan, restore)
				if want.Hash != got.Hash {
					t.Errorf("seed %d: hash %016x, with restores %016x\n%s", seed, want.Hash,
						got.Hash, divergence(t, plan, restore))
				}
			}
		})
	}
}

// seedsTwice is how many seeds are run twice: fewer under the race detector, which takes ten times
// as long (hack/test calls that -short).
func seedsTwice(all uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return all
}

// divergence names the first event at which two runs of a plan differ, and how the states differ
// there, field by field.
func divergence(t *testing.T, plan *sim.Plan, other sim.Options) string {
	hashes := func(opts sim.Options) []uint64 {
		var all []uint64
		opts.Watch = func(s sim.Step) { all = append(all, s.Hash) }
		run(t, plan, opts)
		return all
	}
	a, b := hashes(sim.Options{}), hashes(other)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("first difference at event %d:\n%s", i+1,
				stateDiff(t, plan, other, uint64(i+1)))
		}
	}
	return fmt.Sprintf("one run has %d events, the other %d", len(a), len(b))
}

func stateDiff(t *testing.T, plan *sim.Plan, other sim.Options, event uint64) string {
	state := func(opts sim.Options) (fields map[string]any) {
		opts.Until = event
		if err := json.Unmarshal(run(t, plan, opts).State, &fields); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	return cmp.Diff(state(sim.Options{}), state(other))
}

// The check of determinism itself sees a difference, and where it is.
func TestDeterminismCheckFires(t *testing.T) {
	s := loadAll(t)[0]
	a, b := draw(t, s, 1), draw(t, s, 1)
	b.Spec.Seed++
	if run(t, a, sim.Options{}).Hash == run(t, b, sim.Options{}).Hash {
		t.Error("runs with different latencies have one hash")
	}
}

// A plan survives being written to a file and read back.
func TestPlanFile(t *testing.T) {
	for _, s := range loadAll(t) {
		plan := draw(t, s, 7)
		text := plan.YAML()
		back, err := sim.ParsePlan("plan.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.YAML(), text) {
			t.Errorf("%s: the plan reads back as another", s.Metadata.Name)
		}
		want, got := run(t, plan, sim.Options{}), run(t, back, sim.Options{})
		if want.Hash != got.Hash {
			t.Errorf("%s: the plan from the file runs otherwise", s.Metadata.Name)
		}
	}
}

// Whatever plan is drawn, whatever is taken out of it: it holds, and a restore changes nothing. A
// plan that fails becomes a file: `seedsim shrink` makes it small and keeps to the failure, which
// rapid would not.
func TestAnyPlan(t *testing.T) {
	all := loadAll(t)
	if err := flag.Set("rapid.shrinktime", "0s"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := all[rapid.IntRange(0, len(all)-1).Draw(t, "scenario")]
		plan, err := sim.Draw(s, rapid.Uint64Range(0, 1<<40).Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		spec := &plan.Spec
		spec.Faults = some(t, "faults", spec.Faults)
		spec.AgentKills = some(t, "agent kills", spec.AgentKills)
		spec.RuntimeEnds = some(t, "runtime restarts", spec.RuntimeEnds)
		spec.Kills = some(t, "kills", spec.Kills)
		spec.Sandboxes = some(t, "sandbox kills", spec.Sandboxes)
		spec.Clock = some(t, "clock steps", spec.Clock)
		spec.Lost = some(t, "lost", spec.Lost)
		spec.Removals = some(t, "removals", spec.Removals)
		spec.Acts = append(some(t, "acts", acts(spec.Acts, false)), acts(spec.Acts, true)...)
		spec.Expect = nil
		every := rapid.Uint64Range(10, 1000).Draw(t, "restore every")
		verdict, err := sim.Run(plan, sim.Options{RestoreAfter: func(event uint64) bool {
			return event%every == 0
		}})
		if err != nil {
			t.Fatal(err)
		}
		if f := verdict.Failure; f != nil {
			// rapid wants the same text from each run of the plan.
			file := filepath.Join(os.TempDir(), "TestAnyPlan-"+plan.Metadata.Name+".yaml")
			if err := os.WriteFile(file, plan.YAML(), 0o644); err != nil {
				t.Log(err)
			}
			t.Fatalf("%s seed %d, restored every %d events: %s: %s at %v\n"+
				"seedsim replay %s --plan %s", spec.Scenario, spec.Seed, every, f.Oracle,
				f.Message, f.Virtual, spec.Scenario, file)
		}
	})
}

// acts are those about objects that pods need, or the others.
func acts(all []sim.Act, needed bool) []sim.Act {
	return slices.DeleteFunc(slices.Clone(all), func(a sim.Act) bool {
		return (a.Object != "") != needed
	})
}

// some takes entries out of a list.
func some[T any](t *rapid.T, what string, list []T) []T {
	var kept []T
	for i, keep := range rapid.SliceOfN(rapid.Bool(), len(list), len(list)).Draw(t, what) {
		if keep {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// A plan has no pods that the agent would never run.
func TestAPlanWithAForbiddenSysctl(t *testing.T) {
	const plan = "{apiVersion: sim.seedlet.dev/v1alpha1, kind: Plan, metadata: {name: p}, spec: {" +
		"order: uniform, duration: 1s, settle: 1s, node: {config: %s}, pods: [{name: a, manifest: {" +
		"apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]," +
		"securityContext: {sysctls: [{name: kernel.sem, value: '1'}]}}}}]}}"
	for config, want := range map[string]string{
		"{}": `p.yaml: spec.pods[0].manifest: the agent refuses it: forbidden sysctl: ` +
			`"kernel.sem" not allowlisted`,
		"{allowedUnsafeSysctls: [kernel.sem]}": "<nil>",
	} {
		_, err := sim.ParsePlan("p.yaml", []byte(fmt.Sprintf(plan, config)))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: %s", config, got)
		}
	}
}
