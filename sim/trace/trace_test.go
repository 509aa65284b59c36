package trace

import (
	"reflect"
	"strings"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
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

// run prints a run of a plan.
func run(t *testing.T, p *plan.Plan, printer *Printer) ([]string, *sim.Verdict) {
	t.Helper()
	var lines []string
	printer.Write = func(line string) { lines = append(lines, line) }
	var o sim.Options
	printer.Attach(p, &o)
	verdict, err := sim.Run(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return lines, verdict
}

// What is printed changes no run, and every body that says something has text.
func TestBodies(t *testing.T) {
	for name, seed := range map[string]uint64{"volumes": 1, "hooks": 1, "admission": 21,
		"evictions": 1, "evented-pleg": 1, "hung-paths": 1} {
		p := generate(t, name, seed)
		lines, printed := run(t, p, &Printer{})
		var missing []string
		verdict, err := sim.Run(p, sim.Options{
			Watch: func(s sim.Step) {
				bodies := []any{s.Event.Body}
				for _, e := range s.Effects {
					bodies = append(bodies, e.Body)
				}
				for _, body := range bodies {
					if v := reflect.ValueOf(body); body != nil && !v.Elem().IsZero() && describe(body) == "" {
						missing = append(missing, v.Elem().Type().Name())
					}
				}
			},
			WatchFact: func(f truth.Fact) {
				if describeFact(&f) == "" && f.Kind != truth.PowerLost && f.Kind != truth.RuntimeRestarted {
					missing = append(missing, string(f.Kind))
				}
			},
		})
		if err != nil || verdict.Hash != printed.Hash {
			t.Errorf("%s: hash %x when printed, %x otherwise, %v", name, printed.Hash, verdict.Hash, err)
		}
		if len(missing) > 0 {
			t.Errorf("%s: no text for %s", name, missing)
		}
		for _, kind := range []rune{KindEvent, KindEffect, KindFact, KindPlan} {
			if !strings.Contains(strings.Join(lines, "\n"), string(kind)) {
				t.Errorf("%s: no line of kind %c", name, kind)
			}
		}
	}
}

// The filters leave lines out, and change none.
func TestFilters(t *testing.T) {
	p := generate(t, "admission", 21)
	all, _ := run(t, p, &Printer{})
	isPrinted := map[string]bool{}
	for _, line := range all {
		isPrinted[line] = true
	}
	facts, _ := run(t, p, &Printer{Kinds: string(KindFact), From: 20_000_000_000})
	if len(facts) < 100 {
		t.Fatalf("%d facts", len(facts))
	}
	for _, line := range facts {
		if !isPrinted[line] || !strings.Contains(line, "·") || strings.Contains(line, " 0:19.") {
			t.Fatalf("%q", line)
		}
	}
	one, _ := run(t, p, &Printer{Pod: "small-1"})
	want := []string{"← PodSandboxStatus", "→ StartContainer", "· ContainerStarted", "! act",
		"the agent starts", "! fault"}
	for _, text := range want {
		if !strings.Contains(strings.Join(one, "\n"), text) {
			t.Errorf("no %q about the pod", text)
		}
	}
	if len(one) > len(all)/4 {
		t.Errorf("%d of %d lines are about one pod", len(one), len(all))
	}
	for _, line := range one {
		if strings.Contains(line, "small-2") && !strings.Contains(line, "small-1") {
			t.Errorf("%q is about another pod", line)
		}
	}
}
