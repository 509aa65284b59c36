package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A phase is terminal once it is known how everything has ended.
func TestTerminalPhaseWaitsForExits(t *testing.T) {
	p := &Pod{NoLongerDesired: true, Stage: Terminating,
		Termination: Termination{Reason: ReasonEvicted, Phase: v1.PodFailed},
		Containers:  []Container{{Name: "app", ID: "c1", State: Exited}}}
	if p.HasReachedTerminalPhase() {
		t.Error("the exit of app is not known")
	}
	p.Containers[0].Inspected = Exited
	if !p.HasReachedTerminalPhase() {
		t.Error("everything has ended")
	}
	p.Op = 1
	if p.HasReachedTerminalPhase() {
		t.Error("an operation is in flight")
	}
}
