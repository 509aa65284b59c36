package sim_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// loadAll returns the scenarios of the project.
func loadAll(t testing.TB) []*plan.Scenario {
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var all []*plan.Scenario
	for _, file := range files {
		s, err := plan.ReadScenario(scenarios.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func generate(t testing.TB, s *plan.Scenario, seed uint64) *plan.Plan {
	p, err := plan.Generate(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t testing.TB, p *plan.Plan, opts sim.Options) *sim.Verdict {
	verdict, err := sim.Run(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

// No oracle reports a violation for some seeds of every scenario: for these, and for those of
// TestDeterminism. `seedsim run` is for many seeds. One plan of each is also run from its file.
func TestScenariosHold(t *testing.T) {
	for _, s := range loadAll(t) {
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(deterministicSeeds + 1); seed <= 10; seed++ {
				p := generate(t, s, seed)
				verdict := run(t, p, sim.Options{})
				checkHolds(t, s, seed, verdict)
				if seed == 10 {
					checkPlanFile(t, p, verdict)
				}
			}
		})
	}
}

// poolSeeds is the number of seeds of the pool of TestPool.
const poolSeeds = 3000

// No oracle reports a violation for many seeds of the pool, in which pods of all kinds, their
// sources and all troubles are drawn together.
func TestPool(t *testing.T) {
	s, err := plan.ReadScenario(scenarios.Files, "mix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const part = 100
	for first := uint64(1); first <= poolSeeds; first += part {
		t.Run(fmt.Sprintf("%d-%d", first, first+part-1), func(t *testing.T) {
			t.Parallel()
			for seed := first; seed < first+part; seed++ {
				checkHolds(t, s, seed, run(t, generate(t, s, seed), sim.Options{}))
			}
		})
	}
}

// checkPlanFile requires that a plan which is written to a file and parsed is the same plan.
func checkPlanFile(t *testing.T, p *plan.Plan, want *sim.Verdict) {
	t.Helper()
	text := p.YAML()
	back, err := plan.Parse("plan.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.YAML(), text) {
		t.Error("the parsed plan differs")
	}
	if got := run(t, back, sim.Options{}); want.Hash != got.Hash {
		t.Error("the run of the parsed plan differs")
	}
}

func checkHolds(t *testing.T, s *plan.Scenario, seed uint64, verdict *sim.Verdict) {
	t.Helper()
	if f := verdict.Failure; f != nil {
		t.Errorf("%s: %s: seedsim replay %s --seed %d --log", f.Oracle, f.Message, s.Metadata.Name, seed)
	}
}

// TestDeterminism compares two runs of the first seeds of each scenario. The second runs of the
// first ones have restores from snapshots.
const (
	deterministicSeeds = 2
	restoredSeeds      = 1
)

// breakDown panics as an oracle with a bug does.
func breakDown(f truth.Fact) {
	if f.Kind == truth.SandboxCreated {
		var none []truth.Fact
		none[len(f.Cause)] = f
	}
}

// A panic of an oracle is a failure of its run: no other run ends for it, and its plan is known.
func TestPanicOfAnOracle(t *testing.T) {
	p := generate(t, loadAll(t)[0], 1)
	f := run(t, p, sim.Options{WatchFact: breakDown}).Failure
	if f == nil || f.Oracle != "simulator" ||
		!strings.Contains(f.Message, "sim_test.breakDown: runtime") ||
		!strings.Contains(f.Stack, "sim_test.breakDown") {
		t.Errorf("got %+v", f)
	}
}

// Every run of a plan has the same events and effects, also if the agent is replaced, after any
// event, by one that is restored from its snapshot. Under the race detector, where runs take ten
// times as long (hack/test.sh passes -short), one seed of every third scenario runs, unrestored.
func TestDeterminism(t *testing.T) {
	for i, s := range loadAll(t) {
		seeds, restored := uint64(deterministicSeeds), uint64(restoredSeeds)
		if testing.Short() {
			if i%3 != 0 {
				continue
			}
			seeds, restored = 1, 0
		}
		t.Run(s.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= seeds; seed++ {
				first := run(t, generate(t, s, seed), sim.Options{})
				checkHolds(t, s, seed, first)
				again := sim.Options{}
				if seed <= restored {
					again.RestoreAfter = func(event uint64) bool {
						return (event*2654435761^seed)%67 == 0
					}
				}
				second := run(t, generate(t, s, seed), again)
				if first.Hash != second.Hash {
					t.Errorf("hash %016x, then %016x (restored: %v): seedsim verify %s --seed %d",
						first.Hash, second.Hash, seed <= restored, s.Metadata.Name, seed)
				}
			}
		})
	}
}

// The check of determinism finds a difference.
func TestDeterminismCheckFires(t *testing.T) {
	s := loadAll(t)[0]
	a, b := generate(t, s, 1), generate(t, s, 1)
	b.Spec.Seed++
	if run(t, a, sim.Options{}).Hash == run(t, b, sim.Options{}).Hash {
		t.Error("runs with different latencies have the same hash")
	}
}

// No oracle reports a violation for any plan of any seed, with any entries removed, and with
// restores from snapshots. A failing plan is written to a file for `seedsim shrink`, which keeps
// the oracle that fails; shrinking by rapid would not.
func TestAnyPlan(t *testing.T) {
	all := loadAll(t)
	if err := flag.Set("rapid.shrinktime", "0s"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := all[rapid.IntRange(0, len(all)-1).Draw(t, "scenario")]
		p, err := plan.Generate(s, rapid.Uint64Range(0, 1<<40).Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		spec := &p.Spec
		spec.Happenings = some(t, "happenings", spec.Happenings, func(h *plan.Happening) bool {
			return h.Act != nil && h.Act.Object != "" // pods may need the object
		})
		spec.Expectations = nil
		every := rapid.Uint64Range(10, 1000).Draw(t, "restore every")
		verdict, err := sim.Run(p, sim.Options{RestoreAfter: func(event uint64) bool {
			return event%every == 0
		}})
		if err != nil {
			t.Fatal(err)
		}
		if f := verdict.Failure; f != nil {
			// rapid requires the same message from every run of the plan.
			file := filepath.Join(os.TempDir(), "TestAnyPlan-"+p.Metadata.Name+".yaml")
			if err := os.WriteFile(file, p.YAML(), 0o644); err != nil {
				t.Log(err)
			}
			t.Fatalf("%s seed %d, restored every %d events: %s: %s at %v\n"+
				"seedsim replay %s --plan %s", spec.Scenario, spec.Seed, every, f.Oracle,
				f.Message, f.Virtual, spec.Scenario, file)
		}
	})
}

// some returns a list with any entries removed, but none that must stay.
func some[T any](t *rapid.T, name string, list []T, mustStay func(*T) bool) []T {
	var chosen []T
	for i, choose := range rapid.SliceOfN(rapid.Bool(), len(list), len(list)).Draw(t, name) {
		if choose || mustStay(&list[i]) {
			chosen = append(chosen, list[i])
		}
	}
	return chosen
}

// A plan whose pods the agent never admits is not valid.
func TestPlanWithForbiddenSysctl(t *testing.T) {
	const text = "{apiVersion: sim.seedlet.dev/v1alpha1, kind: Plan, metadata: {name: p}, spec: {" +
		"order: uniform, duration: 1s, settle: 1s, node: {config: %s}, pods: [{name: a, manifest: {" +
		"apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]," +
		"securityContext: {sysctls: [{name: kernel.sem, value: '1'}]}}}}]}}"
	for config, want := range map[string]string{
		"{}": `p.yaml: spec.pods[0].manifest: the agent refuses it: forbidden sysctl: ` +
			`"kernel.sem" not allowlisted`,
		"{allowedUnsafeSysctls: [kernel.sem]}": "<nil>",
	} {
		_, err := plan.Parse("p.yaml", []byte(fmt.Sprintf(text, config)))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: %s", config, got)
		}
	}
}

// A plan with a pod that an API server would refuse is not valid.
func TestPlanWithInvalidPod(t *testing.T) {
	const text = "{apiVersion: sim.seedlet.dev/v1alpha1, kind: Plan, metadata: {name: p}, spec: {" +
		"order: uniform, duration: 1s, settle: 1s, node: {api: true}, pods: [{name: a, api: true, " +
		"manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [%s]}}}]}}"
	for container, want := range map[string]string{
		"{name: c, image: i}": "<nil>",
		"{image: i}": "p.yaml: spec.pods[0].manifest: spec.containers[0].name: Required value: " +
			"a container has a name",
		"{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}": "p.yaml: " +
			`spec.pods[0].manifest: spec.containers[0].volumeMounts[0].name: Not found: "v"`,
	} {
		_, err := plan.Parse("p.yaml", []byte(fmt.Sprintf(text, container)))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: %s", container, got)
		}
	}
}
