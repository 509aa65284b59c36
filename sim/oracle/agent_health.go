package oracle

import (
	"time"
)

// health fires when /healthz succeeds although the agent has not seen what the runtime has for
// longer than the kubelet's threshold. Only a list that succeeded counts (upstream #93886).
type health struct{}

func (*health) describe() Entry {
	return Entry{"health", "The agent reports that it is healthy only if it has lately listed " +
		"what the runtime has."}
}

// The kubelet's relist thresholds: with the generic PLEG, and with the evented PLEG, to which
// three minutes are added for the time after its stream broke.
const (
	relistThreshold        = 3 * time.Minute
	relistThresholdEvented = 13 * time.Minute
)

// ListReceived reports that a complete list of sandboxes, or of containers, has reached the agent.
func (s *Set) ListReceived(now time.Time, containers bool) {
	if containers {
		s.model.containersListedAt = now
	} else {
		s.model.sandboxesListedAt = now
	}
}

// ReportedHealthy reports that /healthz succeeded.
func (s *Set) ReportedHealthy(now time.Time) {
	m := s.model
	seen := m.containersListedAt
	if m.sandboxesListedAt.Before(seen) {
		seen = m.sandboxesListedAt
	}
	seen = later(seen, m.agentStartedAt)
	most := relistThreshold
	if m.opts.EventedPLEG {
		most = relistThresholdEvented
	}
	if unseen := now.Sub(seen); unseen > most {
		s.report(&health{}, findingf("the agent reports that it is healthy, but "+
			"its last complete list was %v ago", unseen.Round(time.Second)), now)
	}
}
