package agenda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Entries are late by less than the window, those of one actor never overtake each other, and all
// run, whatever is added meanwhile.
func TestPriorityBounds(t *testing.T) {
	const window = 5 * time.Millisecond
	overtaken := 0
	for seed := range uint64(20) {
		a := New(start, seed)
		a.OrderByPriority(window, []time.Time{start.Add(time.Second / 3), start.Add(time.Second / 2)})
		rng := rand.New(rand.NewPCG(seed, 1))
		latest, left := map[string]time.Time{}, 2000
		var add func(after time.Duration)
		add = func(after time.Duration) {
			name, at := fmt.Sprint("actor ", rng.IntN(6)), a.Now().Add(after)
			a.Actor(name).At(at, func() {
				if late := a.Now().Sub(at); late < 0 || late >= window {
					t.Errorf("an entry is late by %v", late)
				} else if late > 0 {
					overtaken++
				}
				if at.Before(latest[name]) {
					t.Errorf("an entry of %s comes after one that is due later", name)
				}
				latest[name] = at
				if left--; left > 0 && rng.IntN(3) > 0 {
					add(time.Duration(rng.Int64N(int64(3 * window))))
				}
			})
		}
		for range 1000 {
			add(time.Duration(rng.Int64N(int64(time.Second))))
		}
		for now := a.Now(); a.Run(); now = a.Now() {
			if a.Now().Before(now) {
				t.Fatal("the clock goes backwards")
			}
		}
	}
	if overtaken < 1000 {
		t.Errorf("only %d entries were overtaken", overtaken)
	}
}

// run returns the order in which the entries of three actors run, one due after another.
func run(seed uint64, window time.Duration, changes ...time.Time) string {
	a := New(start, seed)
	a.OrderByPriority(window, changes)
	var ran []string
	for second := range 3 {
		for i, name := range []string{"x", "y", "z"} {
			a.Actor(name).After(time.Duration(second)*time.Second+time.Duration(i)*time.Millisecond,
				func() { ran = append(ran, name) })
		}
	}
	for a.Run() {
	}
	return strings.Join(ran, "")
}

// Each seed has one order of the actors, until a change point puts the first of them last.
func TestPriorities(t *testing.T) {
	const window = 5 * time.Millisecond
	seen := map[string]bool{}
	for seed := range uint64(100) {
		order := run(seed, window)
		seen[order] = true
		if order[:3] != order[3:6] || order[:3] != order[6:] {
			t.Errorf("seed %d: the order changes: %s", seed, order)
		}
		changed := run(seed, window, start.Add(time.Second/2))
		lowered := order[1:3] + order[:1]
		if changed != order[:3]+lowered+lowered {
			t.Errorf("seed %d: %s without a change, %s with one", seed, order, changed)
		}
		if run(seed, time.Microsecond) != "xyzxyzxyz" {
			t.Errorf("seed %d: entries that are not due close together overtake each other", seed)
		}
	}
	if len(seen) != 6 {
		t.Errorf("100 seeds have only %d of 6 orders", len(seen))
	}
}

// Entries are removed from any place of the heap.
func TestRemoveAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a := New(start, 1)
		for range 1 + rng.IntN(60) {
			a.After(time.Duration(rng.IntN(1000)), func() {})
		}
		var removed, left []int64
		for a.Len() > 0 && rng.IntN(30) > 0 {
			removed = append(removed, a.removeAt(rng.IntN(a.Len())).at)
		}
		count := a.Len() + len(removed)
		for a.Len() > 0 {
			left = append(left, a.pop().at)
		}
		if !slices.IsSorted(left) || len(left)+len(removed) != count {
			t.Fatalf("left %v after %v", left, removed)
		}
	}
}
