package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// nodeCase returns a case in which the agent writes a Node that is changed.
func nodeCase(name, want string, change func(s *v1.NodeStatus)) testCase {
	return testCase{name, want, func(s *script) {
		s.AgentStarted(s.now)
		s.model.opts.Node = testNode()
		status := goodNode()
		change(status)
		s.addNode(status)
		s.CheckServed(s.now, nil)
	}}
}

// testNode returns what the Node of the tests has to say.
func testNode() *NodeFacts {
	amount := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
	return &NodeFacts{
		Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.168.7.10"}},
		Capacity:  amount, Allocatable: amount, Port: 10250,
		BootID: func() string { return "boot-1" },
		Images: func() []string { return []string{"image:1"} }, ImagesMax: 50,
	}
}

// goodNode returns a status that is right.
func goodNode() *v1.NodeStatus {
	facts := testNode()
	s := &v1.NodeStatus{Addresses: facts.Addresses, Capacity: facts.Capacity.DeepCopy(),
		Allocatable: facts.Allocatable.DeepCopy(), NodeInfo: v1.NodeSystemInfo{BootID: "boot-1"},
		Images: []v1.ContainerImage{{Names: []string{"image:1"}}},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
				Message: "kubelet has no disk pressure"},
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "ready"},
		}}
	s.DaemonEndpoints.KubeletEndpoint.Port = 10250
	return s
}

func TestNodeObject(t *testing.T) {
	runCases(t, []testCase{
		nodeCase("as it is", "", func(*v1.NodeStatus) {}),
		nodeCase("another address", "node-object", func(s *v1.NodeStatus) {
			s.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.168.7.11"}}
		}),
		nodeCase("the boot before", "node-object", func(s *v1.NodeStatus) {
			s.NodeInfo.BootID = "boot-0"
		}),
		nodeCase("another port", "node-object", func(s *v1.NodeStatus) {
			s.DaemonEndpoints.KubeletEndpoint.Port = 10255
		}),
		nodeCase("more capacity", "node-object", func(s *v1.NodeStatus) {
			s.Capacity[v1.ResourceCPU] = resource.MustParse("5")
		}),
		nodeCase("less allocatable", "node-object", func(s *v1.NodeStatus) {
			s.Allocatable[v1.ResourceCPU] = resource.MustParse("3")
		}),
		nodeCase("a resource of another", "", func(s *v1.NodeStatus) {
			s.Capacity["example.com/gpu"] = resource.MustParse("1")
		}),
		nodeCase("the reason of another status", "node-object", func(s *v1.NodeStatus) {
			s.Conditions[0].Status = v1.ConditionTrue
		}),
		nodeCase("no message", "node-object", func(s *v1.NodeStatus) { s.Conditions[1].Message = "" }),
		nodeCase("other images, for long", "node-object", func(s *v1.NodeStatus) {
			s.Images[0].Names[0] = "image:2"
		}),
	})
}

func TestNodeReady(t *testing.T) {
	// readyAfter writes a Node, some seconds after a shutdown was cancelled; zero: there was none.
	readyAfter := func(seconds float64, cause string, said, written bool,
		fault string) func(*script) {
		return func(s *script) {
			s.AgentStarted(s.now)
			s.model.opts.Node = testNode()
			s.model.runtime.op, s.model.runtime.deadline = 1, s.now.Add(time.Minute)
			s.model.runtime.received(s.now, &world.Event{Op: 1, Body: &runtimeapi.StatusResponse{
				Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
					{Type: runtimeapi.RuntimeReady, Status: said}}}}})
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool { return call == fault }
			s.wait(150)
			if seconds > 0 {
				s.model.opts.Shutdown = &Shutdown{Groups: []ShutdownGroup{{Period: time.Second}}}
				s.machine(truth.ShutdownAnnounced, "")
				s.wait(10)
				s.machine(truth.ShutdownPermitted, "")
				s.machine(truth.ShutdownCancelled, cause)
				s.wait(seconds)
			}
			status := goodNode()
			if !written {
				c := &status.Conditions[1]
				c.Status, c.Reason = v1.ConditionFalse, "KubeletNotReady"
			}
			s.addNode(status)
		}
	}
	ready := func(said, written bool, fault string) func(*script) {
		return readyAfter(0, "", said, written, fault)
	}
	runCases(t, []testCase{
		{"ready", "", ready(true, true, "")},
		{"not ready", "", ready(false, false, "")},
		{"ready, and the runtime is not", "node-object", ready(false, true, "")},
		{"ready by an old write", "", ready(false, true, "PatchObject")},
		{"not ready, and the runtime is", "node-object", ready(true, false, "")},
		{"not ready since a shutdown whose end was not heard", "",
			readyAfter(240, truth.CauseUnwatched, true, false, "")},
		{"not ready since such a shutdown, for long", "node-object",
			readyAfter(310, truth.CauseUnwatched, true, false, "")},
		{"not ready long after a shutdown", "node-object", readyAfter(150, "", true, false, "")},
	})
}
