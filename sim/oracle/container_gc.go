package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// containerGC fires when the agent reports that the garbage collection of containers fails although
// nothing of it can have failed for a minute, and when it does not report that the removal of a
// container has failed for longer. What is to be collected is a part of progress.
type containerGC struct{}

func (*containerGC) describe() Entry {
	return Entry{"container-gc", "The event ContainerGCFailed is only recorded if a removal, or a " +
		"list that it needs, has failed for a minute. It is recorded within a minute then if all " +
		"removals of a container have failed."}
}

const (
	containerGCPeriod = time.Minute
	// removalRetryBound is how long the call after a failed one takes, with its back-off: a call has
	// two minutes, and the agent waits half a minute before the next.
	removalRetryBound = 3 * time.Minute
	// removalTimeout is how long the newest failure may have taken.
	removalTimeout = 2 * time.Minute
)

// reasonContainerGCFailed is that of the event.
const reasonContainerGCFailed = "ContainerGCFailed"

// collectionCalls are the calls of the collection, and those before it.
var collectionCalls = []string{"ListContainers", "ListPodSandbox", "RemoveContainer",
	"RemovePodSandbox", "RemoveTree", "ListDir"}

func (*containerGC) checkFact(m *model, f *truth.Fact) *finding {
	since := f.Time.Add(-containerGCPeriod)
	if f.Kind != truth.EventRecorded || f.Reason != reasonContainerGCFailed ||
		m.anyFaultPossible(since.Add(-removalRetryBound), since, collectionCalls...) &&
			m.anyFaultPossible(f.Time.Add(-removalTimeout), f.Time, collectionCalls...) {
		return nil
	}
	return findingf("the event ContainerGCFailed says %q, although nothing has failed for a minute",
		f.Message)
}

// containerRemovals are the removals of containers, as far as the agent knows how they ended.
type containerRemovals struct {
	inFlight map[world.OpID]removal
	failing  map[string]*failingRemoval // by the container
	// reportedAt is when the event was last recorded.
	reportedAt time.Time
}

type removal struct {
	container string
	deadline  time.Time
}

// failingRemoval is when the removal of a container has first and last failed in a row. dueSince
// is when it first failed again after a minute of failures, and after the last event; zero: it has
// not.
type failingRemoval struct{ first, last, dueSince time.Time }

func (r *containerRemovals) asked(container string, eff *world.Effect) {
	if r.inFlight == nil {
		r.inFlight = map[world.OpID]removal{}
	}
	r.inFlight[eff.Op] = removal{container, eff.Deadline}
}

func (r *containerRemovals) received(now time.Time, ev *world.Event) {
	asked, known := r.inFlight[ev.Op]
	if !known {
		return
	}
	delete(r.inFlight, ev.Op)
	if ev.Err == nil || ev.Err.Has(world.KindNotFound) || now.After(asked.deadline) {
		delete(r.failing, asked.container)
		return
	}
	if r.failing == nil {
		r.failing = map[string]*failingRemoval{}
	}
	f := r.failing[asked.container]
	if f == nil {
		f = &failingRemoval{first: now}
		r.failing[asked.container] = f
	}
	f.last = now
	if now.Sub(f.first) >= containerGCPeriod && !r.reportedAt.Before(f.dueSince) {
		f.dueSince = now
	}
}

// reported notes an Event.
func (r *containerRemovals) reported(f *truth.Fact) {
	if f.Reason == reasonContainerGCFailed {
		r.reportedAt = f.Time
	}
}

// checkServed finds a removal that failed again after more than a minute, without an event in the
// minute after that.
func (*containerGC) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown {
		return nil
	}
	for id, f := range m.removals.failing { //ordered: whether there is one
		c, due := m.containers[id], f.dueSince.Add(containerGCPeriod+transitSlack)
		if c != nil && !f.dueSince.IsZero() && now.After(due) &&
			m.removals.reportedAt.Before(f.dueSince) {
			return findingf("the removal of %s has failed from %s to %s, but no event ContainerGCFailed "+
				"says so", c, f.first.Format(time.TimeOnly), f.last.Format(time.TimeOnly))
		}
	}
	return nil
}
