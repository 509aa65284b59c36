package canonical

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The hash covers the statuses of served pods, though each status is encoded only once.
func TestHashHasServedStatuses(t *testing.T) {
	sum := func(phase v1.PodPhase) uint64 {
		start := time.Unix(0, 0)
		h := NewHash(start)
		pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		for range 2 {
			h.Step(1, world.Event{Time: start}, []world.Effect{
				{Body: &world.PodsAnswer{Pods: []*v1.Pod{pod}}},
			})
		}
		return h.Sum()
	}
	if sum(v1.PodRunning) != sum(v1.PodRunning) {
		t.Error("equal statuses have different hashes")
	}
	if sum(v1.PodRunning) == sum(v1.PodPending) {
		t.Error("different statuses have the same hash")
	}
}
