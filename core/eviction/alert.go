package eviction

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Shortages of memory that the kernel reports between two observations. A report leads to an
// observation, never to an eviction by itself. Upstream: UpdateThreshold in
// pkg/kubelet/eviction/memory_threshold_notifier_others.go.

// HandleMemoryAlert has the node observed now, unless it was just before.
func (m *Manager) HandleMemoryAlert(now time.Time) {
	s := &m.Sources[sourceNode]
	if soon := s.AskedAt.Add(alertPeriod); soon.After(now) {
		now = soon
	}
	if now.Before(s.NextAt) {
		s.NextAt = now
	}
}

// alertAbove returns the working set above which the next threshold of a signal is met; zero if all
// are met already, or the capacity is not known.
func (m *Manager) alertAbove(signal Signal) int64 {
	o, isObserved := m.Observed[signal]
	least := int64(0)
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		if t.Signal != signal || !isObserved || !t.MetSince.IsZero() {
			continue
		}
		amount := t.Amount.Of(o.Capacity)
		if above := o.Capacity - amount.Value(); above > 0 && (least == 0 || above < least) {
			least = above
		}
	}
	return least
}

// noteAlertProblem logs once why the kernel does not report shortages.
func (m *Manager) noteAlertProblem(problem string, effects *op.Effects) {
	if problem != "" && problem != m.AlertProblem {
		effects.Log(world.LevelWarning, "Eviction manager: failed to create memory threshold notifier",
			"err", problem)
	}
	m.AlertProblem = problem
}
