// Package metrics has the counters and histograms that are served as metrics.
//
// They are plain numbers for dashboards: no component decides by them. The bounds of a histogram's
// buckets are not part of its state; the code that observes a duration and the code that exports
// the histogram pass the same bounds. Start reading at Histogram.
package metrics

import (
	"maps"
	"slices"
	"strings"
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

// The bounds of the keys of counters and of histograms. The closed lists of all metrics are within
// them: exit codes have the largest of the counters, operations of CSI drivers that of the
// histograms. A key is kept until the agent ends, and is a series of a database of metrics for as
// long as that keeps it, so nothing that can have any value may be a key. Where a mistake makes it
// one, or a plugin has another name each time that it registers, what comes after as many keys as
// this counts for Rest.
const (
	CountersMax   = 8192
	HistogramsMax = 2048
)

// Other is the value of a label that stands for all that have none of their own.
const Other = "other"

// Rest returns the key that a key counts for if there is no room for it: it has Other for each of
// its words, so that the metric has the same labels.
func Rest(key string) string {
	return strings.TrimSuffix(strings.Repeat(Other+" ", strings.Count(key, " ")+1), " ")
}

// Counters are counts by key. The keys are values of labels, from a closed list.
type Counters map[string]uint64

// Increment adds one to the count of a key, or to that of Rest.
func (c *Counters) Increment(key string) {
	if *c == nil {
		*c = Counters{}
	}
	if _, isCounted := (*c)[key]; !isCounted && len(*c) >= CountersMax {
		key = Rest(key)
	}
	(*c)[key]++
}

// Keys returns the keys that have a count, sorted.
func (c Counters) Keys() []string { return slices.Sorted(maps.Keys(c)) }

// Histograms are histograms by key. The keys are values of a label, from a closed list.
type Histograms map[string]*Histogram

// Observe counts one duration in the histogram of a key, or in that of Rest.
func (h *Histograms) Observe(key string, bounds Bounds, d time.Duration) {
	if *h == nil {
		*h = Histograms{}
	}
	if (*h)[key] == nil && len(*h) >= HistogramsMax {
		key = Rest(key)
	}
	if (*h)[key] == nil {
		(*h)[key] = &Histogram{}
	}
	(*h)[key].Observe(bounds, d)
}

// Keys returns the keys that have a histogram, sorted.
func (h Histograms) Keys() []string { return slices.Sorted(maps.Keys(h)) }
