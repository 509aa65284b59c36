package node

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/runtime"
	"seedlet.dev/world"
)

// expectEvents fails the test unless these Events were recorded since its last call.
func (r *harness) expectEvents(want string) {
	r.t.Helper()
	if got := strings.Join(r.events, " "); got != want {
		r.t.Errorf("recorded %q, want %q", got, want)
	}
	r.events = nil
}

// An Event is recorded when the node is cordoned and when it is not any more.
func TestEventsOfScheduling(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.planUntilIdle(0)
	r.events = nil
	cordon := func(unschedulable bool) {
		r.observe(r.change(func(node *v1.Node) { node.Spec.Unschedulable = unschedulable }))
		r.planUntilIdle(0)
	}
	cordon(false)
	r.expectEvents("")
	cordon(true)
	r.planUntilIdle(time.Minute)
	r.expectEvents("NodeNotSchedulable")
	cordon(false)
	r.expectEvents("NodeSchedulable")
}

// The conditions of pressure are true as long as the eviction manager says so, with an Event for
// each change.
func TestPressureConditions(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.planUntilIdle(0)
	for _, test := range []struct {
		condition                       v1.NodeConditionType
		reason, message, event, without string
	}{
		{v1.NodeMemoryPressure, "KubeletHasInsufficientMemory",
			"kubelet has insufficient memory available", "NodeHasInsufficientMemory",
			"NodeHasSufficientMemory"},
		{v1.NodeDiskPressure, "KubeletHasDiskPressure", "kubelet has disk pressure",
			"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		{v1.NodePIDPressure, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	} {
		r.events, r.env.Pressure = nil, []v1.NodeConditionType{test.condition}
		r.planUntilIdle(time.Minute)
		c := r.condition(test.condition)
		if c.Status != v1.ConditionTrue || c.Reason != test.reason || c.Message != test.message {
			t.Errorf("%s: %+v", test.condition, c)
		}
		r.expectEvents(test.event)
		r.env.Pressure = nil
		r.planUntilIdle(time.Minute)
		if c := r.condition(test.condition); c.Status != v1.ConditionFalse {
			t.Errorf("%s after the pressure: %+v", test.condition, c)
		}
		r.expectEvents(test.without)
	}
}

// An Event is recorded for a change of readiness, for the absence of pressure on registration, and
// for a reboot of the machine, but not for a restart of the agent.
func TestEvents(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.env.Runtime = &runtime.Runtime{}
	r.planUntilIdle(0)
	r.expectEvents("NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID")
	r.env.Runtime = &runtime.Runtime{AsOf: t0, ReadyAt: t0,
		Conditions: []runtime.Condition{runtimeReady, networkReady}}
	r.planUntilIdle(time.Second)
	r.expectEvents("NodeReady")
	r.env.Runtime.Conditions = []runtime.Condition{runtimeUnready, networkReady}
	r.plan(10 * time.Second)
	r.complete(world.Errorf(world.KindUnavailable, "", "no server"))
	r.expectEvents("") // the status was not written
	r.planUntilIdle(time.Second)
	r.expectEvents("NodeNotReady")
	r.restartAgent()
	r.planUntilIdle(10 * time.Second)
	r.expectEvents("")
	r.restartAgent()
	boot := *r.env.Boot
	boot.BootID = "another"
	r.env.Boot = &boot
	r.planUntilIdle(10 * time.Second)
	r.expectEvents("Rebooted")
}
