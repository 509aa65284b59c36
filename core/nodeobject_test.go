package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

func nodeReady(n *fakeNode) v1.ConditionStatus {
	for _, c := range n.apiServer.node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func TestNodeStatusAndLease(t *testing.T) {
	n := newNode(nil)
	n.apiServer, n.status = newServer(), runtimeStatus(true)
	n.restart()
	n.advance(2 * time.Second)
	if nodeReady(n) != v1.ConditionTrue {
		t.Fatalf("%+v", n.apiServer.node.Status)
	}
	n.status = runtimeStatus(false)
	n.advance(7 * time.Second) // the runtime's status is polled every five seconds
	if nodeReady(n) != v1.ConditionFalse {
		t.Errorf("%+v", n.apiServer.node.Status.Conditions)
	}
	written := n.apiServer.nodeWrites.nodePatches
	n.apiServer.nodeWrites.nodeCallsTimeOut = true
	n.advance(time.Minute)
	if got := len(n.apiServer.nodeWrites.leaseRenewals); got < 6 || got > 8 {
		t.Errorf("%d renewals in 69 seconds", got)
	}
	n.apiServer.nodeWrites.nodeCallsTimeOut = false
	n.status = runtimeStatus(true)
	n.advance(20 * time.Second)
	if nodeReady(n) != v1.ConditionTrue || n.apiServer.nodeWrites.nodePatches == written {
		t.Errorf("%d patches: %+v", n.apiServer.nodeWrites.nodePatches,
			n.apiServer.node.Status.Conditions)
	}
	owner := n.apiServer.nodeWrites.lease.OwnerReferences
	if len(owner) != 1 || owner[0].UID != "node-uid" {
		t.Errorf("owned by %+v", owner)
	}
}

// What changes on the machine while the agent runs is in the Node's status, and the Node's address
// in the statuses of pods.
func TestMachineChanges(t *testing.T) {
	n := newNode(map[string]string{"a": web})
	n.apiServer, n.status = newServer(), runtimeStatus(true)
	n.machine.Addresses = []string{"192.0.2.1", "2001:db8::1"}
	n.restart()
	n.advance(5 * time.Second)
	check := func(cpus, disk int64, address string) {
		t.Helper()
		s := n.apiServer.node.Status
		gotCPUs, gotDisk := s.Capacity[v1.ResourceCPU], s.Capacity[v1.ResourceEphemeralStorage]
		if gotCPUs.Value() != cpus || gotDisk.Value() != disk || s.Addresses[0].Address != address {
			t.Errorf("capacity %v, addresses %v", s.Capacity, s.Addresses)
		}
		n.event(world.Event{Body: &world.PodsRequest{}})
		if len(n.pods) != 1 || len(n.pods[0].Status.HostIPs) != 1 ||
			n.pods[0].Status.HostIP != address {
			t.Errorf("pods %+v", n.pods)
		}
	}
	check(2, 1<<30, "192.0.2.1")
	n.machine.CPUs, n.machine.Machine.RootDirBytes = 64, 2<<30
	n.machine.Addresses = []string{"192.0.2.9"}
	n.advance(11 * time.Second)
	check(64, 2<<30, "192.0.2.9")
	if cpus := n.agent.state.Node.Allocatable[v1.ResourceCPU]; cpus != 64_000 {
		t.Errorf("pods are configured for %d milli-CPUs", cpus)
	}
	n.failingCalls = map[string]bool{"ReadMachine": true}
	n.machine.CPUs = 0
	n.advance(time.Minute)
	check(64, 2<<30, "192.0.2.9")
}

// The runtime gets the ranges of the Node once, and again when they change or the runtime may have
// restarted. The range of the configuration is that of a node without an API server.
func TestPodCIDR(t *testing.T) {
	n := newNode(nil)
	n.status, n.podCIDR = runtimeStatus(true), "10.9.0.0/24"
	check := func(after time.Duration, want ...string) {
		t.Helper()
		n.advance(after)
		if d := cmp.Diff(want, n.podCIDRs); d != "" {
			t.Error(d)
		}
		n.podCIDRs = nil
	}
	n.restart()
	check(time.Minute, "10.9.0.0/24")
	n.apiServer = newServer()
	setRanges := func(ranges ...string) {
		n.apiServer.version++
		n.apiServer.node.Spec.PodCIDRs = ranges
		n.apiServer.node.ResourceVersion = fmt.Sprint(n.apiServer.version)
		watch := n.agent.state.Objects.Watch(n.agent.nodeWatch())
		n.event(world.Event{Body: &world.ObjectChanged{Watch: watch.ID,
			Object: world.Object{Node: n.apiServer.node.DeepCopy()}}})
	}
	n.restart()
	check(time.Minute)
	setRanges("10.1.0.0/24", "2001:db8::/64")
	check(time.Minute, "10.1.0.0/24,2001:db8::/64")
	setRanges()
	check(time.Minute)
	n.failingCalls = map[string]bool{"Status": true}
	n.advance(time.Minute)
	check(0, "10.1.0.0/24,2001:db8::/64")
	n.failingCalls = nil
	check(time.Minute)
	n.failingCalls = map[string]bool{"UpdateRuntimeConfig": true}
	setRanges("10.2.0.0/24")
	check(time.Minute)
	n.failingCalls = nil
	check(time.Minute, "10.2.0.0/24")
	n.restart()
	check(time.Minute, "10.2.0.0/24")
}

// Others read timestamps with the date, also after it was changed; intervals and timestamps that
// were written before stay as they are.
func TestChangeOfTheDate(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("before", "u1"))
	n.advance(20 * time.Second)
	status := func(name string) v1.PodStatus { return n.apiServer.objects["default/"+name].Status }
	before, renewals := status("before"), len(n.apiServer.nodeWrites.leaseRenewals)
	const step = -3 * time.Hour
	n.event(world.Event{Body: &world.ClockStepped{Offset: step}})
	isDate := func(what string, at time.Time) {
		t.Helper()
		if late := n.now.Add(step).Sub(at); late < 0 || late > 3*time.Second {
			t.Errorf("%s is %v old", what, late)
		}
	}
	n.advance(2 * time.Second)
	if got := n.apiServer.nodeWrites.leaseRenewals; len(got) != renewals+1 {
		t.Errorf("%d renewals of the lease, %d before the change", len(got), renewals)
	}
	isDate("the renewal of the lease", n.apiServer.nodeWrites.lease.Spec.RenewTime.Time)
	for _, c := range n.apiServer.node.Status.Conditions {
		isDate("the heartbeat "+string(c.Type), c.LastHeartbeatTime.Time)
		if !c.LastTransitionTime.After(n.now.Add(step).Add(time.Hour)) {
			t.Errorf("the transition of %s has moved to %v", c.Type, c.LastTransitionTime)
		}
	}
	n.restore(t)
	n.apiServer.put(apiPodNamed("after", "u2"))
	n.advance(2 * time.Second)
	isDate("the start time", status("after").StartTime.Time)
	for _, c := range status("after").Conditions {
		isDate("the transition of "+string(c.Type), c.LastTransitionTime.Time)
	}
	n.advance(30 * time.Second)
	if diff := cmp.Diff(before, status("before")); diff != "" {
		t.Errorf("the status of a pod from before the change (-before +after):\n%s", diff)
	}
	renewals = len(n.apiServer.nodeWrites.leaseRenewals)
	n.advance(time.Minute)
	if got := len(n.apiServer.nodeWrites.leaseRenewals) - renewals; got < 5 || got > 7 {
		t.Errorf("%d renewals in a minute", got)
	}
}
