// Package tally counts what happens, for those who watch a node from outside.
//
// It keeps numbers and nothing else: a count, or how often something took how long. Nobody in the
// core looks at them, so they decide nothing. The bounds of a histogram's buckets are no part of
// its facts; whoever counts and whoever shows it uses the same ones. Start reading at Histogram.
package tally

import (
	"maps"
	"slices"
	"time"

	"seedlet.dev/world"
)

// Bounds are the upper bounds of the buckets of a histogram, ascending.
type Bounds []time.Duration

// Seconds makes bounds of numbers of seconds.
func Seconds(bounds ...float64) Bounds {
	made := make(Bounds, len(bounds))
	for i, b := range bounds {
		made[i] = time.Duration(b * float64(time.Second))
	}
	return made
}

// Histogram counts durations by buckets. The zero value is ready.
type Histogram struct {
	Counts []uint64      `json:"counts,omitempty"` // the last is of what is above all bounds
	Sum    time.Duration `json:"sum,omitempty"`
}

// Add counts one duration. A negative one, as of two clocks that do not agree, is none at all.
func (h *Histogram) Add(bounds Bounds, d time.Duration) {
	if len(h.Counts) != len(bounds)+1 {
		h.Counts, h.Sum = make([]uint64, len(bounds)+1), 0 // none yet, or of other bounds
	}
	d = max(d, 0)
	i, _ := slices.BinarySearch(bounds, d)
	h.Counts[i]++
	h.Sum += d
}

// Shown is the histogram as the world has it.
func (h *Histogram) Shown(bounds Bounds) *world.Histogram {
	shown := &world.Histogram{Bounds: make([]float64, len(bounds)),
		Counts: make([]uint64, len(bounds)), Sum: h.Sum.Seconds()}
	for i, bound := range bounds {
		shown.Bounds[i] = bound.Seconds()
	}
	for i, n := range h.Counts {
		shown.Count += n
		if i < len(bounds) {
			shown.Counts[i] = shown.Count
		}
	}
	return shown
}

// Counters are counts by a word of a closed list.
type Counters map[string]uint64

// Add counts one.
func (c *Counters) Add(word string) {
	if *c == nil {
		*c = Counters{}
	}
	(*c)[word]++
}

// Words are those that something was counted of, in order.
func (c Counters) Words() []string { return slices.Sorted(maps.Keys(c)) }

// Histograms are histograms by a word of a closed list.
type Histograms map[string]*Histogram

// Add counts one duration.
func (h *Histograms) Add(word string, bounds Bounds, d time.Duration) {
	if *h == nil {
		*h = Histograms{}
	}
	if (*h)[word] == nil {
		(*h)[word] = &Histogram{}
	}
	(*h)[word].Add(bounds, d)
}

// Words are those that something was counted of, in order.
func (h Histograms) Words() []string { return slices.Sorted(maps.Keys(h)) }
