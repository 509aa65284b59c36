package oracle

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// renewWithDate adds a renewal of the lease whose date is that far ahead.
func renewWithDate(s *script, ahead time.Duration) {
	lease := &coordinationv1.Lease{}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: s.now.Add(ahead)}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
		Resource: api.ResourceLeases, Name: "node", Incarnation: 1,
		After: api.Object{Lease: lease}}})
}

// reportWithDate adds a heartbeat of the Node whose date is that far ahead.
func reportWithDate(s *script, ahead time.Duration) {
	node := &v1.Node{}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady,
		LastHeartbeatTime: metav1.NewTime(s.now.Add(ahead))}}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
		Resource: api.ResourceNodes, Incarnation: 1, After: api.Object{Node: node}}})
}

// turnReady adds a write by which the Node becomes ready, with a transition whose date is that far
// ahead.
func turnReady(s *script, ahead time.Duration) {
	states := make([]v1.Node, 2)
	for i, status := range []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue} {
		states[i].Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status,
			LastHeartbeatTime:  metav1.NewTime(s.now.Add(s.model.dateOffset(s.now))),
			LastTransitionTime: metav1.NewTime(s.now.Add(ahead))}}
	}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
		Resource: api.ResourceNodes, Incarnation: 1,
		Before: api.Object{Node: &states[0]}, After: api.Object{Node: &states[1]}}})
}

// beginDates starts the agent. The date is changed by an hour five seconds after it returns.
func beginDates(s *script) {
	changed := s.now.Add(time.Minute)
	s.model.opts.DateOffset = func(at time.Time) time.Duration {
		if at.Before(changed) {
			return 0
		}
		return time.Hour
	}
	s.AgentStarted(s.now)
	reportWithDate(s, 0)
	s.wait(30)
	renewWithDate(s, 0)
	s.wait(25)
}

func TestDates(t *testing.T) {
	end := func(s *script) { s.AgentKilled(s.now) }
	runCases(t, []testCase{
		{"with the date of the time", "", func(s *script) {
			beginDates(s)
			renewWithDate(s, 0)
			s.wait(10)
			renewWithDate(s, time.Hour)
			reportWithDate(s, time.Hour)
			end(s)
		}},
		{"a request that was in flight", "", func(s *script) {
			beginDates(s)
			s.wait(6)
			renewWithDate(s, -2*time.Second)
			s.wait(6)
			renewWithDate(s, time.Hour)
			reportWithDate(s, time.Hour)
			end(s)
		}},
		{"the lease keeps the old date", "dates", func(s *script) {
			beginDates(s)
			s.wait(14)
			renewWithDate(s, 0)
			end(s)
		}},
		{"the lease has the new date too early", "dates", func(s *script) {
			beginDates(s)
			renewWithDate(s, time.Hour)
			end(s)
		}},
		{"a heartbeat with the old date", "dates", func(s *script) {
			beginDates(s)
			s.wait(14)
			reportWithDate(s, 0)
			end(s)
		}},
		{"the old heartbeat stays", "dates", func(s *script) {
			beginDates(s)
			for range 4 {
				s.wait(10)
				renewWithDate(s, s.model.dateOffset(s.now))
				s.CheckServed(s.now, nil)
			}
			end(s)
		}},
	})
}

func TestDatesOfTransitions(t *testing.T) {
	turn := func(ahead time.Duration) func(s *script) {
		return func(s *script) {
			beginDates(s)
			s.wait(14)
			turnReady(s, ahead)
			s.AgentKilled(s.now)
		}
	}
	runCases(t, []testCase{
		{"with the new date", "", turn(time.Hour)},
		{"with the old date", "dates", turn(0)},
	})
}
