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

// stepBounds are the upper bounds of the buckets. A step is expected to take microseconds.
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

// Buckets calls yield with each upper bound in seconds and the number of durations at or below it.
func (h *Histogram) Buckets(yield func(boundSeconds float64, cumulative uint64)) {
	var sum uint64
	for i, bound := range stepBounds {
		sum += h.Counts[i]
		yield(bound.Seconds(), sum)
	}
}

// StepDurations returns the histogram of step durations. It is empty without a stopwatch.
func (l *Loop) StepDurations() Histogram { return l.stepDurations }

// Metrics returns the metrics of the loop.
func (l *Loop) Metrics() []world.Metric {
	ms := []world.Metric{
		gauge("seedlet_inbox_events", "Events in the inbox.", l.inbox.len()),
		gauge("seedlet_inbox_events_max", "Limit on events in the inbox.",
			l.opts.Limits.Inbox),
		counter("seedlet_inbox_refused_total", "Events refused because the inbox was full.",
			l.refusedEvents),
		counter("seedlet_operations_canceled_total",
			"Operations canceled at their deadline before they were started.",
			l.canceledOperations),
		gauge("seedlet_paths_unanswered",
			"Operations that hold a path lock and are past their deadline.",
			l.locks.countOverdue(l.lastTime)),
		gauge("seedlet_paths_waiting", "Operations waiting for a path lock.",
			l.locks.waiting.len()),
		counter("seedlet_paths_refused_total",
			"Operations that failed because an earlier operation on their path was overdue.",
			l.locks.refusedOperations),
	}
	for i := range l.lanes {
		lane := Lane(i)
		add := func(name, help string, n int) {
			m := gauge(name, help, n)
			m.Labels = []world.Label{{Name: "lane", Value: lane.String()}}
			ms = append(ms, m)
		}
		add("seedlet_operations_in_flight", "Operations in flight at a port.",
			l.lanes[i].inFlight)
		add("seedlet_operations_in_flight_busiest_tenant",
			"Most operations in flight of one tenant: a pod, or the namespace of what is read.",
			l.lanes[i].mostOfOne())
		add("seedlet_operations_hung",
			"Operations in flight that have passed their deadline and still occupy their slot.",
			l.lanes[i].hung)
		add("seedlet_operations_in_flight_limit",
			"Limit on operations in flight. As many again replace hung ones.",
			l.opts.Limits.InFlight[i])
		add("seedlet_operations_waiting", "Operations waiting for a slot in their lane.",
			l.lanes[i].waiters)
	}
	return ms
}

func gauge(name, help string, value int) world.Metric {
	return world.Metric{Name: name, Help: help, Value: float64(value)}
}

func counter(name, help string, value uint64) world.Metric {
	return world.Metric{Name: name, Help: help, Counter: true, Value: float64(value)}
}
