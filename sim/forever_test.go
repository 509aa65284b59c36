package sim

import (
	"testing"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// A pod that can never be made does not run, and another one does. After the faults the pod is
// removed, and leaves nothing.
func TestFaultThatLastsForever(t *testing.T) {
	_, facts := calmRun(t, Options{},
		plan.Happening{At: plan.Duration(time.Millisecond), Fault: &plan.FaultWindow{ID: "never",
			Class: plan.FaultErrorBefore, Pod: "web-0", Forever: true, Probability: 1,
			Calls: []string{"CreateContainer"}}},
	)
	removed := false
	for _, f := range facts {
		isAfterwards := f.Time.After(plan.Start.Add(time.Second))
		if f.Kind == truth.ContainerCreated && f.PodName == "web-0-sim" && isAfterwards {
			t.Errorf("container %s was created at %v", f.Container, f.Time)
		}
		removed = removed || f.Kind == truth.SandboxRemoved && f.PodName == "web-0-sim"
	}
	if !removed {
		t.Error("the pod was not removed at the end")
	}
}

// Of the calls that a window may affect, the n-th one fails alone.
func TestFaultOfOneCall(t *testing.T) {
	failed := 0
	calmRun(t, Options{Watch: func(s Step) {
		if s.Event.Err != nil && s.Event.Err.Op == "CreateContainer" {
			failed++
		}
	}},
		plan.Happening{At: plan.Duration(time.Millisecond), Fault: &plan.FaultWindow{ID: "second",
			For: plan.Duration(time.Minute), Class: plan.FaultErrorBefore, Probability: 1, Nth: 1,
			Calls: []string{"CreateContainer"}}},
		plan.Happening{At: plan.Duration(5 * time.Second),
			KillContainer: &plan.ContainerKill{Pod: "web-0", Container: "app", ExitCode: 1}},
		plan.Happening{At: plan.Duration(30 * time.Second),
			KillContainer: &plan.ContainerKill{Pod: "web-0", Container: "app", ExitCode: 1}},
	)
	if failed != 1 {
		t.Errorf("%d creations have failed", failed)
	}
}
