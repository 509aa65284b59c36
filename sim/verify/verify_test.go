package verify

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// steady is a plan of which there is one run only.
func steady(t *testing.T) *plan.Plan {
	t.Helper()
	s, err := plan.ReadScenario(scenarios.Files, "steady.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRun(t *testing.T) {
	var runs []string
	r, err := Run(context.Background(), steady(t), func(name string) { runs = append(runs, name) })
	switch {
	case err != nil:
		t.Fatal(err)
	case r.Divergence != nil:
		t.Errorf("a run diverges: %+v", r.Divergence)
	case r.Events < 100 || r.Verdict.Hash == 0:
		t.Errorf("%d events, hash %x", r.Events, r.Verdict.Hash)
	}
	want := []string{"first run", "second run", "run with restores"}
	if d := cmp.Diff(want, runs); d != "" {
		t.Error(d)
	}
}

// unfaithful returns a verifier whose runs have other effects once the agent has been restored
// after an event.
func unfaithful(t *testing.T, event uint64) *verifier {
	return &verifier{ctx: context.Background(), plan: steady(t),
		run: func(p *plan.Plan, opts sim.Options) (*sim.Verdict, error) {
			watch := opts.Watch
			if watch != nil && opts.RestoreAfter != nil && opts.RestoreAfter(event) {
				opts.Watch = func(s sim.Step) {
					if s.Number > event {
						s.Hash++
					}
					watch(s)
				}
			}
			return sim.Run(p, opts)
		}}
}

func TestRestoreThatChangesTheRun(t *testing.T) {
	r, err := unfaithful(t, 37).verify()
	if err != nil {
		t.Fatal(err)
	}
	want := &Divergence{Event: 38, With: "a restore after event 37"}
	if d := cmp.Diff(want, r.Divergence); d != "" {
		t.Error(d)
	}
}

func TestSecondRunThatDiffers(t *testing.T) {
	v := unfaithful(t, 0)
	count, plain := 0, v.run
	v.run = func(p *plan.Plan, opts sim.Options) (*sim.Verdict, error) {
		if count++; count == 2 { // the fact is another, the events and effects are not
			watch := opts.WatchFact
			opts.WatchFact = func(f truth.Fact) {
				f.ExitCode++
				watch(f)
			}
		}
		return plain(p, opts)
	}
	r, err := v.verify()
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Divergence; d == nil || d.With != "a second run" || d.Event != 0 || len(d.Facts) != 2 {
		t.Errorf("divergence %+v", d)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, steady(t), func(name string) {
		if name == "second run" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestDifferences(t *testing.T) {
	a := map[string]any{"same": 1.0, "gone": "x", "list": []any{1.0, 2.0},
		"pods": map[string]any{"u1": map[string]any{"op": 3.0}}}
	b := map[string]any{"same": 1.0, "new": nil, "list": []any{1.0, 5.0},
		"pods": map[string]any{"u1": map[string]any{"op": 4.0}}}
	want := []string{`.gone: "x", then absent`, ".list[1]: 2, then 5", ".new: absent, then null",
		".pods.u1.op: 3, then 4"}
	if d := cmp.Diff(want, Differences(a, b)); d != "" {
		t.Error(d)
	}
	many := map[string]any{}
	for i := range 50 {
		many[strings.Repeat("x", i+1)] = 1.0
	}
	if got := Differences(many, map[string]any{}); len(got) != 41 || got[40] != "and 10 more" {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
}
