package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Whoever has told the API server first how a pod has ended has told it for good.
func TestThePhaseOfTheServerCounts(t *testing.T) {
	for _, here := range []v1.PodPhase{v1.PodRunning, v1.PodFailed, v1.PodSucceeded} {
		r := newRig(t, running(func(*v1.Container) {}))
		r.pod.Phase = here
		is := r.pod.Spec.DeepCopy()
		is.Status.Phase = v1.PodFailed
		r.pod.Want(is, t0)
		if r.pod.Stale = (time.Time{}); r.pod.Phase != v1.PodFailed {
			t.Errorf("%s here: %s", here, r.pod.Phase)
		}
		r.at(0).want("StopContainer")
	}
}
