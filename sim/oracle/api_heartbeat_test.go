package oracle

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

func TestHeartbeat(t *testing.T) {
	join := func(s *script) {
		s.AgentStarted(s.now)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
			Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{}}}})
	}
	renew := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{Incarnation: 1,
			Resource: api.ResourceLeases, After: api.Object{Lease: &coordinationv1.Lease{}}}})
	}
	beats := func(seconds ...float64) func(*script) {
		return func(s *script) {
			join(s)
			renew(s)
			for _, wait := range seconds {
				s.wait(wait)
				renew(s)
			}
			s.AgentKilled(s.now)
		}
	}
	runCases(t, []testCase{
		{"in time", "", beats(10, 39, 10)},
		{"late", "heartbeat", beats(10, 41)},
		{"no lease", "", func(s *script) { s.startPod(always) }},
		{"renewed only once", "heartbeat", func(s *script) { join(s); renew(s) }},
	})
}
