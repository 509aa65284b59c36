package shutdown

import (
	"testing"

	"seedlet.dev/world"
)

// The lock is not released before the final status of a pod is written that had ended before the
// shutdown began.
func TestStatusesOfPodsThatEndedBefore(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods, h.endedBefore[0], h.reported = [][]string{nil, nil}, []string{"a"}, false
	h.announce(false)
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(5)
	h.expect("", 30)
	h.reported = true
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("PermitShutdown", 0)
}
