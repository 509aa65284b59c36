package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A terminal phase that the API server has is final, whatever phase this agent has computed.
func TestTerminalPhaseAtAPIServerIsFinal(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodFailed, v1.PodSucceeded} {
		r := newHarness(t, runningPod(func(*v1.Container) {}))
		r.pod.Status.Phase = phase
		object := r.pod.Spec.DeepCopy()
		object.Status.Phase = v1.PodFailed
		r.pod.SetDesired(object, nil, t0)
		if r.pod.StaleSince = (time.Time{}); r.pod.Status.Phase != v1.PodFailed {
			t.Errorf("%s here: %s", phase, r.pod.Status.Phase)
		}
		r.planAt(0).expectCall("StopContainer")
	}
}
