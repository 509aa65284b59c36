package core

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// An agent that learns that a pod was evicted waits for its end before it evicts another one.
func TestVictimOfEarlierAgentIsAdopted(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	n.failingCalls = map[string]bool{"StopContainer": true}
	n.agent.state.Pods["u1"].Evict("low", time.Second, n.now) // as its record would have it
	n.agent.enqueuePod("u1")
	n.advance(2 * time.Second)
	v := n.agent.state.Eviction.Victim
	if v == nil || v.UID != "u1" || !v.HoldsDisk || v.Deadline.After(n.now.Add(31*time.Second)) {
		t.Errorf("the victim is %+v", v)
	}
}

// The node is observed at once when the kernel reports that memory is short.
func TestMemoryAlertHasTheNodeObserved(t *testing.T) {
	n := bootNode(nil)
	n.advance(5 * time.Second)
	s := &n.agent.state.Eviction.Sources[0]
	before := s.AskedAt
	n.event(world.Event{Body: &world.MemoryAlert{}})
	if !s.AskedAt.After(before) {
		t.Errorf("observed at %s, not after the alert", s.AskedAt)
	}
}
