package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"seedlet.dev/world"
)

var bounds = Seconds(0.5, 1, 10)

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{-time.Second, time.Second / 2, time.Second, time.Minute} {
		h.Observe(bounds, d)
	}
	want := &world.Histogram{Bounds: []float64{0.5, 1, 10}, Counts: []uint64{2, 3, 3}, Count: 4,
		Sum: 61.5}
	if got := h.Export(bounds); !cmp.Equal(got, want) {
		t.Errorf("shows %+v, want %+v", got, want)
	}
}

// A histogram from a snapshot whose bounds have changed since starts again from zero.
func TestChangedBoundsResetTheHistogram(t *testing.T) {
	h := Histogram{Counts: []uint64{1, 2}, Sum: time.Hour}
	h.Observe(bounds, time.Second)
	if got := h.Export(bounds); got.Count != 1 || got.Sum != 1 {
		t.Errorf("shows %+v", got)
	}
}

// For any values, counts are cumulative from bound to bound, and no value is lost.
func TestCountsAreCumulative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		values := rapid.SliceOf(rapid.Int64Range(-1e9, 1e11)).Draw(t, "values")
		for _, v := range values {
			h.Observe(bounds, time.Duration(v))
		}
		got := h.Export(bounds)
		for i, bound := range bounds {
			var want uint64
			for _, v := range values {
				if time.Duration(v) <= bound {
					want++
				}
			}
			if got.Counts[i] != want {
				t.Fatalf("%d at or below %v, want %d", got.Counts[i], bound, want)
			}
		}
		if got.Count != uint64(len(values)) {
			t.Fatalf("%d values, want %d", got.Count, len(values))
		}
	})
}

func TestKeys(t *testing.T) {
	var c Counters
	var h Histograms
	for _, word := range []string{"b", "a", "b"} {
		c.Increment(word)
		h.Observe(word, bounds, time.Second)
	}
	if !cmp.Equal(c.Keys(), []string{"a", "b"}) || !cmp.Equal(h.Keys(), c.Keys()) || c["b"] != 2 {
		t.Errorf("counted %v and %v", c, h)
	}
}

// Names without end leave a bounded number of keys. Nothing is lost: what has no key of its own
// counts for the rest, whose labels are as many.
func TestKeysAreBounded(t *testing.T) {
	const names = 10_000
	var c Counters
	var h Histograms
	for i := range names {
		key := fmt.Sprintf("driver-%d mount success", i)
		for range 2 {
			c.Increment(key)
			h.Observe(key, bounds, time.Second)
		}
	}
	const rest = "other other other"
	if len(c) > CountersMax+1 || c[rest] != 2*(names-CountersMax) || c["driver-0 mount success"] != 2 {
		t.Errorf("%d counters, %d of the rest", len(c), c[rest])
	}
	if len(h) > HistogramsMax+1 || h[rest] == nil ||
		h[rest].Export(bounds).Count != 2*(names-HistogramsMax) {
		t.Errorf("%d histograms", len(h))
	}
}
