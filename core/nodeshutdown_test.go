package core

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// What a static pod holds stays its own while a shutdown has ended it: if the machine stays up the
// pod runs again, and a pod that waits for the room does not.
func TestCancelledShutdownKeepsAllocations(t *testing.T) {
	n := bootNode(map[string]string{"a.yaml": staticOf("a", "1500m")})
	n.advance(5 * time.Second)
	n.manifests["b.yaml"] = staticOf("b", "1")
	n.advance(time.Minute)
	n.delayShutdowns()
	n.event(world.Event{Body: &world.MachineShutdown{}})
	n.advance(5 * time.Second)
	check := func(when string, want v1.PodPhase) {
		for _, p := range n.agent.listServedPods() {
			if p.Name == "a-n1" && p.Status.Phase != want ||
				p.Name == "b-n1" && p.Status.Phase != v1.PodPending {
				t.Errorf("%s: %s is %s", when, p.Name, p.Status.Phase)
			}
		}
	}
	check("shutdown", v1.PodFailed)
	n.event(world.Event{Body: &world.MachineShutdown{Cancelled: true}})
	n.advance(time.Minute)
	check("cancelled", v1.PodRunning)
	for _, uid := range n.agent.podUIDs {
		if p := n.agent.state.Pods[uid]; n.agent.state.Allocation.Allocated.Get(uid) == nil {
			t.Errorf("nothing is recorded for %s", p.Name)
		}
	}
}
