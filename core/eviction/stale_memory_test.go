package eviction

import "testing"

// Memory was short once, when no pod could be evicted; it cannot be observed any more. A disk that
// is short later must not evict a pod for the memory of then.
func TestNoEvictionForMemoryOfThen(t *testing.T) {
	n := newShortNode(t)
	all := n.candidates
	n.candidates = nil // such as static pods only
	n.run(0, false)
	n.memory = 1
	n.run(period, false)
	n.candidates, n.memory = all, 500
	n.failsNode = true
	for range 30 { // five minutes
		n.run(period, false)
	}
	if len(n.evicted) != 0 {
		t.Fatalf("evicted %q without an observation", n.evicted)
	}
	n.disk = 1
	n.run(period, false)
	n.victim(t, "disk")
}
