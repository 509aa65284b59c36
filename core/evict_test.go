package core

import (
	"maps"
	"testing"
	"time"

	"seedlet.dev/core/eviction"
	"seedlet.dev/core/pod"
	"seedlet.dev/world"
)

// An eviction is counted by its signal, and its Event has the annotations by which tools find the
// containers that used too much (offending_containers of the kubelet).
func TestEvictionIsReported(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	annotations := map[string]string{"starved_resource": "memory", "offending_containers": "c"}
	n.agent.evict(eviction.Candidate{UID: "u1"}, eviction.Eviction{Signal: eviction.MemoryAvailable,
		Message: "low", Grace: time.Second, Annotations: annotations})
	if got := n.agent.state.Metrics.Evicted; len(got) != 1 || got["memory.available"] != 1 {
		t.Errorf("kubelet_evictions counts %v, want one for memory.available", got)
	}
	found := 0
	for _, eff := range n.agent.effects.List() {
		if e, isEvent := eff.Body.(*world.RecordEvent); isEvent && e.Reason == pod.ReasonEvicted {
			found++
			if e.Type != "Warning" || e.Message != "low" || !maps.Equal(e.Annotations, annotations) {
				t.Errorf("the Event is %s %q with %v", e.Type, e.Message, e.Annotations)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d Events, want one", found)
	}
}
