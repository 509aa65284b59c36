package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seedlet.dev/hack/mutants/mutation"
)

// A change that the tests of its package find is drawn, judged and printed.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short builds no mutants")
	}
	var out strings.Builder
	survived, err := measure(context.Background(), options{count: 1, seed: 1, seeds: "1-1", jobs: 2,
		scenarios: "all",
		only:      "core/admission/preempt.go | Victims | negate | len(remainingAfter(need, all))"}, &out)
	if err != nil || survived != 0 {
		t.Fatalf("%d survived, %v\n%s", survived, err, out.String())
	}
	for _, want := range []string{"core/admission/preempt.go", "found by none        0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// Each line of the list of equivalent changes names one that can be drawn, and why it is none.
func TestEquivalents(t *testing.T) {
	keys, err := readEquivalents("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, folder := range folders {
		sites, err := mutation.Sites("../..", folder, isChanged)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sites {
			exists[sites[i].Key()] = true
		}
	}
	for key := range keys { //ordered: each for itself
		if !exists[key] {
			t.Errorf("the source has no %s", key)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("a key without a reason\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalents(bad); err == nil || !strings.Contains(err.Error(), "bad:1") {
		t.Errorf("%v", err)
	}
}
