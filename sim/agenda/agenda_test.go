package agenda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRunsInOrderOfTime(t *testing.T) {
	a := New(start, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	var ran []time.Time
	for range 1000 {
		at := start.Add(time.Duration(rng.IntN(500)) * time.Millisecond)
		a.At(at, func() {
			if !a.Now().Equal(at) {
				t.Errorf("entry for %v ran at %v", at, a.Now())
			}
			ran = append(ran, at)
		})
	}
	for {
		next, ok := a.Next()
		if ran := a.Run(); ran != ok {
			t.Fatalf("Next says %v, Run %v", ok, ran)
		}
		if !ok {
			break
		}
		if !a.Now().Equal(next) {
			t.Fatalf("clock at %v after the entry of %v", a.Now(), next)
		}
	}
	if len(ran) != 1000 || !slices.IsSortedFunc(ran, time.Time.Compare) {
		t.Errorf("%d entries ran, sorted: %v", len(ran), slices.IsSortedFunc(ran, time.Time.Compare))
	}
}

func TestOrderAmongEqualTimesIsTheSeeds(t *testing.T) {
	order := func(seed uint64) string {
		a := New(start, seed)
		var ran []int
		for i := range 8 {
			a.After(time.Second, func() { ran = append(ran, i) })
		}
		for a.Run() {
		}
		return fmt.Sprint(ran)
	}
	seen := map[string]bool{}
	for seed := range uint64(50) {
		if order(seed) != order(seed) {
			t.Fatalf("seed %d: two orders", seed)
		}
		seen[order(seed)] = true
	}
	if len(seen) < 40 {
		t.Errorf("50 seeds gave only %d orders", len(seen))
	}
}

func TestThePastIsNow(t *testing.T) {
	a := New(start, 1)
	var ran []string
	a.After(time.Second, func() {
		a.At(start, func() { ran = append(ran, "past "+a.Now().Sub(start).String()) })
		a.After(-time.Hour, func() { ran = append(ran, "past "+a.Now().Sub(start).String()) })
		a.After(time.Nanosecond, func() { ran = append(ran, "later") })
	})
	for a.Run() {
	}
	if got := fmt.Sprint(ran); got != "[past 1s past 1s later]" {
		t.Errorf("ran %s", got)
	}
}

func BenchmarkAgenda(b *testing.B) {
	a := New(start, 1)
	rng := rand.NewPCG(1, 2)
	do := func() {}
	for range 200 {
		a.After(time.Duration(rng.Uint64()%1e9), do)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.After(time.Duration(rng.Uint64()%1e9), do)
		a.Run()
	}
}
