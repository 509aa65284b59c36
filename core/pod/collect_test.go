package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An eviction for a disk waits for the containers of its victim, unless the pod was ending for
// another reason already, and keeps them.
func TestFreedDisk(t *testing.T) {
	for _, c := range []struct {
		reason string
		runs   int
		want   bool
	}{
		{ReasonEvicted, 1, false}, {ReasonEvicted, 0, true}, {"DeadlineExceeded", 1, true},
		{reasonDeleted, 1, false},
	} {
		p := podWith(&v1.Pod{}, make([]Container, c.runs)...)
		p.Stage, p.Storage.ReleaseSteps = Terminated, releaseStepsOfDesired
		p.Termination = Termination{Reason: c.reason, UnderPressure: true}
		p.NoLongerDesired = c.reason == reasonDeleted
		if got := p.HasFreedDisk(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A pod has freed its memory when its volumes in memory are unmounted too, not when it has ended.
func TestFreedMemory(t *testing.T) {
	p := podWith(&v1.Pod{})
	for _, c := range []struct {
		stage     Stage
		unmounted bool
		want      bool
	}{{Terminating, true, false}, {Terminated, false, false}, {Terminated, true, true}} {
		p.Stage, p.Storage.Unmounted = c.stage, c.unmounted
		if got := p.HasUnmounted(); got != c.want {
			t.Errorf("%+v: %t", c, got)
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
