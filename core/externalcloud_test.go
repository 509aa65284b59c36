package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/world"
)

// An external cloud controller initializes the Node: it sets the machine's ID and the addresses,
// and removes the taint. The agent changes none of these afterwards, whatever the machine's own
// addresses are and however often it is started, and pods have the addresses of the Node.
func TestExternalCloudInitializesTheNode(t *testing.T) {
	n := newNode(nil)
	n.settings = nodeobject.Options{ExternalCloud: true}
	n.apiServer, n.status = newServer(), runtimeStatus(true)
	n.apiServer.node.Spec.Taints = []v1.Taint{{Value: "true", Effect: v1.TaintEffectNoSchedule,
		Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
	n.machine.Addresses = []string{"192.0.2.1"}
	n.apiServer.put(apiPodNamed("a", "u1"))
	n.restart()
	n.advance(30 * time.Second)
	hasIP := func(a v1.NodeAddress) bool { return a.Type != v1.NodeHostName }
	if slices.ContainsFunc(n.apiServer.node.Status.Addresses, hasIP) ||
		len(n.apiServer.node.Spec.Taints) != 1 || n.apiServer.node.Spec.ProviderID != "" {
		t.Errorf("before the cloud controller: %+v", n.apiServer.node)
	}
	if ip := n.apiServer.objects["default/a"].Status.HostIP; ip != "" {
		t.Errorf("before the cloud controller, the pod is on %s", ip)
	}

	node := n.apiServer.node.DeepCopy()
	addresses := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "198.51.100.7"},
		{Type: v1.NodeExternalIP, Address: "203.0.113.7"}, {Type: v1.NodeHostName, Address: "n1"}}
	node.Spec.ProviderID, node.Spec.Taints = "cloud://zone/i-1", nil
	node.Status.Addresses = addresses
	n.setNode(node)
	check := func(when string) {
		t.Helper()
		is := n.apiServer.node
		if d := cmp.Diff(addresses, is.Status.Addresses); d != "" {
			t.Errorf("%s: addresses: %s", when, d)
		}
		if is.Spec.ProviderID != node.Spec.ProviderID || len(is.Spec.Taints) > 0 {
			t.Errorf("%s: %+v", when, is.Spec)
		}
		if s := n.apiServer.objects["default/a"].Status; s.HostIP != "198.51.100.7" ||
			len(s.HostIPs) != 1 {
			t.Errorf("%s: the pod is on %s, %v", when, s.HostIP, s.HostIPs)
		}
	}
	n.advance(time.Minute)
	check("after the cloud controller")
	n.machine.Addresses = []string{"192.0.2.9"}
	n.advance(10 * time.Minute) // beyond nodeStatusReportFrequency
	check("with another address of the machine")
	n.restart()
	n.advance(10 * time.Minute)
	check("after a restart")
}

// setNode has a controller write the Node, and its watch report that.
func (n *fakeNode) setNode(node *v1.Node) {
	n.apiServer.version++
	node.ResourceVersion = fmt.Sprint(n.apiServer.version)
	n.apiServer.node = node
	watch := n.agent.state.Objects.Watch(n.agent.nodeWatch())
	n.event(world.Event{Body: &world.ObjectChanged{Watch: watch.ID,
		Object: world.Object{Node: node.DeepCopy()}}})
}
