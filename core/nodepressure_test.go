package core

import (
	"testing"
	"time"
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

// Evictions wait for records that were not read, and for no others.
func TestRecordsThatEvictionsWaitFor(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	n.advance(5 * time.Second)
	p := n.agent.state.Pods["u1"]
	if !p.HasLiveContainers() || n.agent.lacksRecords() {
		t.Errorf("lacks records, want none: the pod runs, and its record was read")
	}
	if p.Record.Loaded = false; !n.agent.lacksRecords() {
		t.Error("lacks no records, want one")
	}
}
