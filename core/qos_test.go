package core

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/pod"
)

// All pods together have the CPU that is not reserved if enforceNodeAllocatable has "pods", and all
// of the machine otherwise.
func TestNodeLimits(t *testing.T) {
	n := bootNode(nil)
	reserved := &n.agent.state.NodeObject.Settings.Reserved
	reserved.Amounts = v1.ResourceList{"cpu": resource.MustParse("500m")}
	for limitsPods, want := range map[bool]int64{true: 1500, false: 2000} {
		reserved.LimitsPods = limitsPods
		n.agent.applyNodeLimits()
		if got := n.agent.state.QOS.Limits.CPU; got != want {
			t.Errorf("%v: %d milli-CPUs, want %d", limitsPods, got, want)
		}
	}
}

// If all process IDs of the machine are reserved, pods are limited to one, as by the kubelet: zero
// would be no limit.
func TestNodeLimitsWithoutPIDs(t *testing.T) {
	n := bootNode(nil)
	a := n.agent
	a.state.NodeObject.Settings.Reserved.LimitsPods = true
	a.state.NodeObject.Settings.Reserved.Amounts = v1.ResourceList{"pid": resource.MustParse("32768")}
	for machine, want := range map[int64]int64{32768: 1, 40000: 7232, 0: 0} {
		a.state.Boot.Machine.PIDsMax = machine
		a.applyNodeLimits()
		if got := a.state.QOS.Limits.PidsMax; got != want {
			t.Errorf("of %d: %d, want %d", machine, got, want)
		}
	}
}

// A pod that only the runtime has counts with the allocation of its newest sandbox.
func TestShareOfOrphan(t *testing.T) {
	n := bootNode(nil)
	a := n.agent
	orphan := pod.NewOrphan("u1", "default", "web", n.now)
	for i, cpu := range []string{"1", "2"} {
		spec := withRequests(apiPodNamed("web", "u1"), cpu, 0)
		orphan.Sandboxes = append(orphan.Sandboxes, pod.Sandbox{ID: cpu, Attempt: uint32(i), Ready: true,
			Cgroup: "kubepods/burstable/podu1", Allocation: admission.EncodeAllocation(spec)})
		a.countShare(orphan)
		if got := a.state.QOS.Shares["u1"].CPU; got != int64(i+1)*1000 {
			t.Errorf("sandbox %d: %d milli-CPUs", i, got)
		}
	}
}
