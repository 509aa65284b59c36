package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// heartbeat fires when the node's lease is not renewed although no fault prevents that (upstream
// #48638, #121793).
type heartbeat struct{}

func (*heartbeat) describe() Entry {
	return Entry{"heartbeat", "The lease of the node is renewed within its grace period, " +
		"whenever the API server can be reached."}
}

// nodeGracePeriod is the age of a lease at which the node lifecycle controller takes the node for
// unhealthy (its node-monitor-grace-period).
const nodeGracePeriod = 40 * time.Second

func (h *heartbeat) checkFact(m *model, f *truth.Fact) *finding {
	if f.Write == nil || f.Write.Resource != api.ResourceLeases {
		return nil
	}
	return h.check(m, f.Time)
}

func (h *heartbeat) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	return h.check(m, now)
}

func (*heartbeat) check(m *model, now time.Time) *finding {
	last := m.objects.leaseRenewedAt
	if last.IsZero() || m.agentDown || m.objects.node == nil {
		return nil
	}
	last = later(later(last, m.agentStartedAt), m.objects.nodeCreatedAt)
	if since := now.Add(-nodeGracePeriod); !last.Before(since) ||
		m.anyFaultPossible(since, now, "GetObject", "CreateObject", "UpdateObject", "PatchObject") {
		return nil // one renewal without a fault must have been possible
	}
	return findingf("the lease was not renewed for %v, although no fault "+
		"prevented that", now.Sub(last).Round(time.Second))
}
