// Package metrics has the counters and histograms that are served as metrics.
//
// They are plain numbers for dashboards: no component decides by them. The bounds of a histogram's
// buckets are not part of its state; the code that observes a duration and the code that exports
// the histogram pass the same bounds. Start reading at Histogram.
package metrics

import (
	"maps"
	"slices"
	"time"

	"seedlet.dev/world"
)

// Bounds are the upper bounds of the buckets of a histogram, ascending.
type Bounds []time.Duration

// Seconds returns bounds that are given in seconds.
func Seconds(bounds ...float64) Bounds {
	made := make(Bounds, len(bounds))
	for i, b := range bounds {
		made[i] = time.Duration(b * float64(time.Second))
	}
	return made
}

// DefaultBounds are the default buckets of Prometheus (DefBuckets).
var DefaultBounds = Seconds(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)

// Histogram counts durations by bucket. The zero value is ready.
type Histogram struct {
	Counts []uint64      `json:"counts,omitempty"` // the last counts what exceeds all bounds
	Sum    time.Duration `json:"sum,omitempty"`
}

// Observe counts one duration. A negative one, which comes from two clocks that disagree, counts as
// zero.
func (h *Histogram) Observe(bounds Bounds, d time.Duration) {
	if len(h.Counts) != len(bounds)+1 {
		h.Counts, h.Sum = make([]uint64, len(bounds)+1), 0 // empty, or with other bounds
	}
	d = max(d, 0)
	i, _ := slices.BinarySearch(bounds, d)
	h.Counts[i]++
	h.Sum += d
}

// Export returns the histogram in the form of a metric.
func (h *Histogram) Export(bounds Bounds) *world.Histogram {
	exported := &world.Histogram{Bounds: make([]float64, len(bounds)),
		Counts: make([]uint64, len(bounds)), Sum: h.Sum.Seconds()}
	for i, bound := range bounds {
		exported.Bounds[i] = bound.Seconds()
	}
	for i, n := range h.Counts {
		exported.Count += n
		if i < len(bounds) {
			exported.Counts[i] = exported.Count
		}
	}
	return exported
}

// Counters are counts by key. The keys are values of labels, from a closed list.
type Counters map[string]uint64

// Increment adds one to the count of a key.
func (c *Counters) Increment(key string) {
	if *c == nil {
		*c = Counters{}
	}
	(*c)[key]++
}

// Keys returns the keys that have a count, sorted.
func (c Counters) Keys() []string { return slices.Sorted(maps.Keys(c)) }

// Histograms are histograms by key. The keys are values of a label, from a closed list.
type Histograms map[string]*Histogram

// Observe counts one duration in the histogram of a key.
func (h *Histograms) Observe(key string, bounds Bounds, d time.Duration) {
	if *h == nil {
		*h = Histograms{}
	}
	if (*h)[key] == nil {
		(*h)[key] = &Histogram{}
	}
	(*h)[key].Observe(bounds, d)
}

// Keys returns the keys that have a histogram, sorted.
func (h Histograms) Keys() []string { return slices.Sorted(maps.Keys(h)) }
