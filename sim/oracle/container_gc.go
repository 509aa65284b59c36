package oracle

import (
	"time"

	"seedlet.dev/sim/truth"
)

// containerGC fires when the agent reports that the garbage collection of containers fails although
// nothing of it can have failed for a minute. The report may be missing: what fails is not known.
// What is to be collected is a part of progress.
type containerGC struct{}

func (*containerGC) describe() Entry {
	return Entry{"container-gc", "The event ContainerGCFailed is only recorded if a removal, or a " +
		"list that it needs, has failed for a minute."}
}

const (
	containerGCPeriod = time.Minute
	// removalRetryBound is how long the call after a failed one takes, with its back-off: a call has
	// two minutes, and the agent waits half a minute before the next.
	removalRetryBound = 3 * time.Minute
)

// collectionCalls are the calls of the collection, and those before it.
var collectionCalls = []string{"ListContainers", "ListPodSandbox", "RemoveContainer",
	"RemovePodSandbox", "RemoveTree", "ListDir"}

func (*containerGC) checkFact(m *model, f *truth.Fact) *finding {
	since := f.Time.Add(-containerGCPeriod)
	if f.Kind != truth.EventRecorded || f.Reason != "ContainerGCFailed" ||
		m.anyFaultPossible(since.Add(-removalRetryBound), since, collectionCalls...) &&
			m.anyFaultPossible(since, f.Time, collectionCalls...) {
		return nil
	}
	return findingf("the event ContainerGCFailed says %q, although nothing has failed for a minute",
		f.Message)
}
