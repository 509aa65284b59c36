package loop

import (
	"time"

	"seedlet.dev/world"
)

// Histogram counts durations in buckets.
type Histogram struct {
	Counts [len(stepBounds) + 1]uint64
	Sum    time.Duration
	Count  uint64
}

// stepBounds are the upper bounds of the buckets: a step is meant to take microseconds.
var stepBounds = [...]time.Duration{
	10 * time.Microsecond, 30 * time.Microsecond, 100 * time.Microsecond,
	300 * time.Microsecond, time.Millisecond, 3 * time.Millisecond,
	10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	i := 0
	for i < len(stepBounds) && d > stepBounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += d
	h.Count++
}

// Buckets calls yield with each upper bound in seconds and the count at or below it.
func (h *Histogram) Buckets(yield func(boundSeconds float64, cumulative uint64)) {
	var sum uint64
	for i, bound := range stepBounds {
		sum += h.Counts[i]
		yield(bound.Seconds(), sum)
	}
}

// Steps returns the durations of the steps so far. Empty without a stopwatch.
func (l *Loop) Steps() Histogram { return l.steps }

// Metrics returns the loop's counters and bounds.
func (l *Loop) Metrics() []world.Metric {
	ms := []world.Metric{
		gauge("seedlet_inbox_events", "Events waiting for their turn.", l.inbox.len()),
		gauge("seedlet_inbox_events_max", "Bound on events waiting for their turn.",
			l.opts.Limits.Inbox),
		counter("seedlet_inbox_refused_total", "Events refused because the inbox was full.",
			l.refused),
		counter("seedlet_operations_canceled_total",
			"Operations given up before they began, for want of a place in their lane.",
			l.canceled),
		gauge("seedlet_paths_unanswered",
			"Paths of the machine at which an operation is past its deadline.",
			l.turns.overdue(l.last)),
		gauge("seedlet_paths_waiting", "Operations waiting for their turn at a path.",
			l.turns.waiting.len()),
		counter("seedlet_paths_refused_total",
			"Operations that failed at once, as an earlier one at their path was not answered.",
			l.turns.refused),
	}
	for i := range l.lanes {
		lane := Lane(i)
		add := func(name, help string, n int) {
			m := gauge(name, help, n)
			m.Labels = []world.Label{{Name: "lane", Value: lane.String()}}
			ms = append(ms, m)
		}
		add("seedlet_operations_flying", "Operations that a port is carrying out.",
			l.lanes[i].flying)
		add("seedlet_operations_flying_max", "Bound on operations that a port carries out at once.",
			l.opts.Limits.Flying[i])
		add("seedlet_operations_waiting", "Operations waiting for a place in their lane.",
			l.lanes[i].waiting.len())
	}
	return ms
}

func gauge(name, help string, value int) world.Metric {
	return world.Metric{Name: name, Help: help, Value: float64(value)}
}

func counter(name, help string, value uint64) world.Metric {
	return world.Metric{Name: name, Help: help, Counter: true, Value: float64(value)}
}
