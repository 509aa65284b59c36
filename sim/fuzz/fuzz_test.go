package fuzz

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
)

func load(t *testing.T, names ...string) []*plan.Scenario {
	t.Helper()
	var list []*plan.Scenario
	for _, name := range names {
		s, err := plan.ReadScenario(scenarios.Files, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// runRound runs a round of a search, and returns its draws.
func runRound(t *testing.T, c *Corpus, list []*plan.Scenario, n int) []Draw {
	t.Helper()
	draws := c.Draw(list, n)
	var results []Result
	for _, d := range draws {
		p, err := d.Plan(list)
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		r := Result{Draw: d, Verdict: verdict}
		if verdict.Failure != nil {
			r.Signature = Signature(verdict.Failure)
		}
		results = append(results, r)
	}
	c.Merge(results)
	return draws
}

// The draws of a search are a function of its corpus: two searches draw the same, one that is read
// from its file in the middle as well. New seeds are those that were not drawn before.
func TestDrawsDependOnTheCorpusOnly(t *testing.T) {
	list := load(t, "steady", "sidecars", "agent-restarts")
	one, other := New(7), New(7)
	seen := map[string]bool{}
	mutated := 0
	for round := range 6 {
		a := runRound(t, one, list, 8)
		if round%2 == 1 {
			read, err := Parse("corpus.json", other.JSON())
			if err != nil {
				t.Fatal(err)
			}
			other = read
		}
		if b := runRound(t, other, list, 8); !reflect.DeepEqual(a, b) {
			t.Fatalf("round %d: one search draws %v, the other %v", round, a, b)
		}
		for _, d := range a {
			if seen[d.String()] {
				t.Errorf("%s is drawn twice", d)
			}
			seen[d.String()] = true
			if len(d.Mutations) > 0 {
				mutated++
			}
		}
	}
	if string(one.JSON()) != string(other.JSON()) {
		t.Error("the corpora differ")
	}
	if mutated == 0 || one.Runs() != 48 || len(one.Marks) < 50 || len(one.Entries) == 0 {
		t.Errorf("%d mutated draws, %d runs, %d marks, %d entries", mutated, one.Runs(),
			len(one.Marks), len(one.Entries))
	}
	// An entry of rarer marks that was not mutated yet is favoured.
	few, many := &Entry{Marks: []string{"few"}}, &Entry{Marks: []string{"many"}}
	one.Marks["few"], one.Marks["many"] = 1, 100
	favoured := one.weight(few) > one.weight(many)
	few.Mutated = 1000
	if !favoured || one.weight(few) >= one.weight(many) {
		t.Error("the weights do not follow the rarity of marks")
	}
}

// A mutated plan keeps its pods and what users do, can be written to a file, and differs.
func TestMutate(t *testing.T) {
	list := load(t, "mix")
	changed, orders := 0, map[plan.Order]bool{}
	for seed := uint64(1); seed <= 60; seed++ {
		d := Draw{Scenario: "mix", Seed: seed % 3, Mutations: []uint64{seed, seed + 1}}
		p, err := d.Plan(list)
		if err != nil {
			t.Fatal(err)
		}
		before, err := Draw{Scenario: "mix", Seed: seed % 3}.Plan(list)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Parse("plan.yaml", p.YAML()); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		orders[p.Spec.Order] = true
		isDone := func(h plan.Happening) bool { return isTrouble(&h) }
		if !reflect.DeepEqual(p.Spec.Pods, before.Spec.Pods) ||
			!reflect.DeepEqual(slices.DeleteFunc(slices.Clone(p.Spec.Happenings), isDone),
				slices.DeleteFunc(slices.Clone(before.Spec.Happenings), isDone)) {
			t.Errorf("%s: the pods, or what is done to them, differ", d)
		}
		if !reflect.DeepEqual(p.Spec.Happenings, before.Spec.Happenings) {
			changed++
		}
	}
	if changed < 50 || len(orders) != len(plan.Orders) {
		t.Errorf("only %d of 60 plans differ, with the orders %v", changed, orders)
	}
}

func TestSignature(t *testing.T) {
	of := func(oracle, message string) string {
		return Signature(&sim.Failure{Oracle: oracle, Message: message})
	}
	same := []string{
		"container web #1 (c0ffee12) of pod default/web-0 (uid 12-34) ran for 12.5s, with 3 of 4",
		"container a #12 (abcdef01) of pod kube-system/static-sim (uid 77-ab) ran for 900ms, with 0 of 1",
	}
	if of("o", same[0]) != of("o", same[1]) {
		t.Errorf("%q, %q", normalise(same[0]), normalise(same[1]))
	}
	lists := []string{`not settled: pod default/a (uid 1) is "x"`,
		`not settled: pod default/b (uid 2) is "y"`}
	if of("o", lists[0]) != of("o", lists[1]) {
		t.Errorf("%q, %q", normalise(lists[0]), normalise(lists[1]))
	}
	if of("o", same[0]) == of("p", same[0]) || of("o", same[0]) == of("o", lists[0]) {
		t.Error("different failures have one signature")
	}
}

// The corpus has a bound. A failure is found once.
func TestMerge(t *testing.T) {
	list := load(t, "steady")
	p, err := plan.Generate(list[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := sim.Run(p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := New(1)
	for seed := uint64(1); seed <= 2*entriesMax; seed++ {
		clear(c.Marks) // each run is the first of its marks
		c.Merge([]Result{{Draw: Draw{Scenario: "steady", Seed: seed}, Verdict: verdict}})
	}
	if len(c.Entries) != entriesMax || c.Scenarios["steady"].NextSeed != 2*entriesMax+1 {
		t.Errorf("%d entries, %+v", len(c.Entries), c.Scenarios["steady"])
	}
	failed := *verdict
	failed.Failure = &sim.Failure{Oracle: "o", Message: "m"}
	result := Result{Draw: Draw{Scenario: "steady", Seed: 5}, Verdict: &failed, Signature: "o-1"}
	first, second := c.Merge([]Result{result}), c.Merge([]Result{result, result})
	if len(first) != 1 || len(second) != 0 || c.Failures["o-1"].Runs != 3 {
		t.Errorf("%v, %v, %+v", first, second, c.Failures["o-1"])
	}
}

func TestParseBadCorpus(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "corpus.json: not a corpus: unexpected end of JSON input",
		`{"version": 99}`:           "corpus.json: version: want 1, have 99: use another folder",
		`{"version": 1, "more": 1}`: `corpus.json: not a corpus: json: unknown field "more"`,
	} {
		if _, err := Parse("corpus.json", []byte(text)); !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
