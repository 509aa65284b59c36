package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The runs of a pod are removed that was hastened in its end for the sake of the node: others wait
// for the space.
func TestRunsOfHastenedPodAreRemoved(t *testing.T) {
	for _, c := range []struct {
		reason        string
		underPressure bool
		want          bool
	}{
		{"DeadlineExceeded", false, false}, {"DeadlineExceeded", true, true}, {ReasonEvicted, true, true},
	} {
		p := podWith(&v1.Pod{}, Container{Name: "a", State: Exited})
		p.Stage = Terminated
		p.Termination = Termination{Reason: c.reason, UnderPressure: c.underPressure}
		if got := p.WantsRunsRemoved(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What the final status has of runs that were removed stays when the pod has not ended after all.
func TestFinalStatusStays(t *testing.T) {
	p := podWith(&v1.Pod{})
	p.MayLoseRuns = true
	p.KeepFinalStatus(&v1.PodStatus{Phase: v1.PodFailed})
	p.keepRuns()
	if p.MayLoseRuns || p.FinalStatus == nil {
		t.Errorf("may lose runs: %v, final status %v", p.MayLoseRuns, p.FinalStatus)
	}
}

// The end of a pod that is being deleted needs no record, whatever has hastened it.
func TestDeletionIsDurable(t *testing.T) {
	now := metav1.NewTime(time.Unix(0, 0))
	p := podWith(&v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}})
	p.Termination = Termination{Reason: ReasonEvicted, Phase: v1.PodFailed}
	if !p.isTerminationDurable() {
		t.Error("a deleted pod waits for its record")
	}
	if p.Spec.DeletionTimestamp = nil; p.isTerminationDurable() {
		t.Error("an evicted pod does not wait for its record")
	}
}
