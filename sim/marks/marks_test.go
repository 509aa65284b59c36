package marks_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/marks"
	"seedlet.dev/sim/plan"
)

// pool are the scenarios, and how many seeds of each, in which every mark that is not rare is
// reached: about half a minute of one core.
var pool = []struct {
	scenario string
	seeds    uint64
}{
	{"mix", 50}, {"hooks", 40}, {"sidecars", 25}, {"agent-restarts", 20}, {"api-partition", 10},
	{"node-churn", 10}, {"mirror-pods", 10}, {"reboot", 10}, {"runtime-restart", 10},
	{"deadlines", 5}, {"probes", 5}, {"oom", 20}, {"image-gc", 40}, {"shutdown", 30},
	{"shutdown-cancel", 10}, {"shutdown-priority", 35}, {"shutdown-agent-restart", 12},
	{"shutdown-under-pressure", 20}, {"image-churn", 10}, {"eviction-races", 40},
	{"resize-restart", 12}, {"pid-storm", 12},
}

// Marks that are not rare are reached by the seeds of the pool.
func TestMarksAreReached(t *testing.T) {
	var plans []*plan.Plan
	for _, entry := range pool {
		s := load(t, entry.scenario)
		for seed := uint64(1); seed <= entry.seeds; seed++ {
			p, err := plan.Generate(s, seed)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
	}
	runs := runAll(t, plans)
	for id, m := range marks.Catalogue() {
		if !m.Rare && runs[id] == 0 {
			t.Errorf("%q is not reached by %d runs: see `seedsim marks`; mark it as rare only if "+
				"no scenario can be made to reach it", m.Name, len(plans))
		}
	}
}

// runAll runs plans, and returns how many of them reach each mark.
func runAll(t *testing.T, plans []*plan.Plan) map[int]int {
	runs := map[int]int{}
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan *plan.Plan, len(plans))
	for _, p := range plans {
		next <- p
	}
	close(next)
	for range runtime.NumCPU() {
		group.Go(func() {
			for p := range next {
				verdict, err := sim.Run(p, sim.Options{})
				mu.Lock()
				if err != nil || verdict.Failure != nil {
					t.Errorf("%s: %v, %v", p.Metadata.Name, verdict.Failure, err)
				} else {
					for id := range verdict.Marks.All() {
						runs[int(id)]++
					}
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return runs
}

func load(t *testing.T, name string) *plan.Scenario {
	s, err := plan.ReadScenario(scenarios.Files, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Names are unique, and each place has a sentence.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range marks.Catalogue() {
		isPair := strings.Contains(m.Name, " ")
		if seen[m.Name] || !isPair && !strings.HasSuffix(m.About, ".") {
			t.Errorf("%+v", m)
		}
		seen[m.Name] = true
	}
	for _, name := range []string{"agent-killed during CreateContainer", "prestop-twice",
		"reboot during RemovePodSandbox", "runtime-restart during StopContainer",
		"error Exhausted of WriteFile"} {
		if !seen[name] {
			t.Errorf("no mark %q", name)
		}
	}
}

const planText = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Plan
metadata: {name: by-hand}
spec:
  scenario: by-hand
  seed: 1
  order: uniform
  duration: 1m
  settle: 5m
  node: {api: true}
  pods:
  - name: web-0
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web-0}
      spec:
        terminationGracePeriodSeconds: 20
        containers:
        - name: web
          image: "registry.test/web:1"
          lifecycle: {preStop: {exec: {command: [drain]}}}
    behaviours:
    - {container: web, stopTakes: 3s, answers: [{match: drain, takes: 5s, reply: good}]}
  happenings:
  - act: {do: create, pod: web-0}
  - at: 20s
    act: {do: delete, pod: web-0}
`

// A mark is reached by the plan that has its moment, and by no other.
func TestMomentsOfMarks(t *testing.T) {
	for _, test := range []struct{ happening, reached, missed string }{
		{"", "", "sandbox-dies-during-prestop agent-killed-during-prestop term-during-prestop"},
		{"{when: {fact: Asked, pod: web-0, after: 1s}, killSandbox: {pod: web-0}}",
			"sandbox-dies-during-prestop", "sandbox-dies-while-stopping"},
		{"{when: {fact: StopRequested, pod: web-0, after: 1s}, killSandbox: {pod: web-0}}",
			"sandbox-dies-while-stopping", "sandbox-dies-during-prestop"},
		{"{when: {fact: Asked, pod: web-0, after: 1s}, killAgent: {down: 1s}}",
			"agent-killed-during-prestop, agent-killed during ExecSync", "agent-killed-after-term"},
		{"{when: {effect: StartContainer, pod: web-0}, killAgent: {down: 1s}}",
			"agent-killed during StartContainer, start-while-agent-down, " +
				"given up before the effect of StartContainer", "agent-killed during StopContainer"},
		{"{when: {effect: StopContainer, pod: web-0, after: 10ms}, restartRuntime: {down: 1s}}",
			"runtime-restart during StopContainer, runtime-restarts-after-term",
			"runtime-restarts-during-prestop"},
		{"{when: {effect: RunPodSandbox, pod: web-0, after: 1ms}, reboot: {down: 1s}}",
			"reboot during RunPodSandbox", "reboot during StopContainer, reboot-while-ending"},
		{"{when: {effect: RunPodSandbox, pod: web-0, after: 1ms}, shutDown: {down: 1s}}",
			"shutdown-during-sandbox", "shutdown-during-start, shutdown-while-ending, cancel-before-term"},
		{"{at: 21s, shutDown: {down: 1s}}", "shutdown-while-ending", "shutdown-during-sandbox"},
		{"{at: 0s, fault: {id: f, for: 1m, class: error-after, kind: Internal, probability: 1, " +
			"calls: [CreateContainer]}}", "error after the effect of CreateContainer, " +
			"error Internal of CreateContainer", "answer lost after the effect of CreateContainer"},
	} {
		text := planText
		if test.happening != "" {
			text += "  - " + test.happening + "\n"
		}
		p, err := plan.Parse("plan", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil || verdict.Failure != nil {
			t.Fatalf("%s: %v, %v", test.happening, verdict.Failure, err)
		}
		var reached []string
		for id := range verdict.Marks.All() {
			reached = append(reached, marks.Catalogue()[id].Name)
		}
		for _, name := range strings.Split(test.reached, ", ") {
			if name != "" && !slices.Contains(reached, name) {
				t.Errorf("%s does not reach %q, but %q", test.happening, name, reached)
			}
		}
		for _, name := range strings.Split(test.missed, ", ") {
			if slices.Contains(reached, name) {
				t.Errorf("%s reaches %q", test.happening, name)
			}
		}
	}
}

func TestSet(t *testing.T) {
	var s marks.Set
	want := []marks.ID{0, 63, 64, 300}
	for _, id := range []marks.ID{300, 64, 0, 63, 64} {
		s.Add(id)
	}
	if got := slices.Collect(s.All()); !slices.Equal(got, want) || s.Len() != 4 || s.Has(1) ||
		s.Has(1000) || !s.Has(300) {
		t.Errorf("%v, %d", got, s.Len())
	}
}
