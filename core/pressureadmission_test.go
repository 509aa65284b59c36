package core

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Short of memory alone, the node still admits pods that request some resource or tolerate the
// taint. Short of anything else besides, it admits neither.
func TestAdmissionUnderPressure(t *testing.T) {
	n := bootNode(nil)
	bestEffort, tolerant := apiPodNamed("a", "u1"), apiPodNamed("b", "u2")
	burstable := withRequests(apiPodNamed("c", "u3"), "1", 0)
	tolerant.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure,
		Operator: v1.TolerationOpExists}}
	memory := []v1.NodeConditionType{v1.NodeMemoryPressure}
	both := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	const ofMemory = "The node had condition: [MemoryPressure]. "
	const ofBoth = "The node had condition: [MemoryPressure DiskPressure]. "
	for _, c := range []struct {
		name     string
		pod      *v1.Pod
		pressure []v1.NodeConditionType
		want     string
	}{
		{"without pressure", bestEffort, nil, ""},
		{"BestEffort", bestEffort, memory, ofMemory},
		{"with the toleration", tolerant, memory, ""},
		{"Burstable", burstable, memory, ""},
		{"with the toleration, two conditions", tolerant, both, ofBoth},
		{"Burstable, two conditions", burstable, both, ofBoth},
	} {
		n.agent.state.Eviction.Pressure = c.pressure
		if got := n.agent.pressureMessage(c.pod, false); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A pod that is not admitted for a condition fails, whichever that is: another node may run it.
func TestPodUnderPressureFails(t *testing.T) {
	for _, condition := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure,
		v1.NodePIDPressure} {
		n := bootWithPods(nil)
		n.agent.state.Eviction.Pressure = []v1.NodeConditionType{condition}
		n.apiServer.put(apiPodNamed("a", "u1"))
		n.event(world.Event{})
		got := n.apiServer.objects["default/a"].Status
		want := "Pod was rejected: The node had condition: [" + string(condition) + "]. "
		if got.Phase != v1.PodFailed || got.Reason != "Evicted" || got.Message != want {
			t.Errorf("%s: %s, %s, %q", condition, got.Phase, got.Reason, got.Message)
		}
	}
}
