package parity

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// nodeCases are rules for the Node and its lease.
var nodeCases = []apiCase{
	{"the status of a node is changed through the status subresource only", nodeStatusSubresource},
	{"a node cannot set restricted labels or taints", nodeRestricted},
	{"a node cannot read or change other nodes", otherNodesForbidden},
	{"a node has its own lease only", nodeLease},
}

// patchNode returns a patch of the Node.
func (c *cluster) patchNode(status bool, patch string) *world.PatchObject {
	return &world.PatchObject{Resource: world.ResourceNodes, Name: c.w.Node(), Status: status,
		Patch: json.RawMessage(patch)}
}

func nodeRegisters(c *cluster) {
	// A mirror pod cannot be created before its Node.
	early := c.newPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
			Name: c.w.Node(), UID: "00000000-0000-4000-8000-000000000000", Controller: new(true)}}
	})
	c.nodeMustFail(world.KindNotFound, early)
	c.nodeMustFail(world.KindNotFound, &world.GetObject{Resource: world.ResourceNodes,
		Name: c.w.Node()})
	register := &world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.w.Node(),
			Labels: map[string]string{v1.LabelHostname: c.w.Node(), "parity.test/a": "b"}},
		Spec:   v1.NodeSpec{ProviderID: "parity://1"},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.36.3"}},
	}}}
	n := c.asNode(register).Node
	c.check(n.UID != "" && n.Status.NodeInfo.KubeletVersion == "v1.36.3", "%v", n)
	c.check(len(n.Spec.Taints) == 1 && n.Spec.Taints[0].Key == v1.TaintNodeNotReady &&
		n.Spec.Taints[0].Effect == v1.TaintEffectNoSchedule, "taints %v", n.Spec.Taints)
	c.nodeMustFail(world.KindExists, register)
	got := c.asNode(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	c.check(got.UID == n.UID, "%v", got)
}

func nodeStatusSubresource(c *cluster) {
	n := c.asNode(c.patchNode(true, `{"spec":{"unschedulable":true},"status":{"conditions":[`+
		`{"type":"Ready","status":"True"},{"type":"MemoryPressure","status":"False"}]}}`)).Node
	c.check(!n.Spec.Unschedulable && len(n.Status.Conditions) == 2, "%v", n)
	n = c.asNode(c.patchNode(true,
		`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)).Node
	c.check(len(n.Status.Conditions) == 2, "%v", n.Status.Conditions)
	n = c.asNode(c.patchNode(false, `{"metadata":{"annotations":{"a":"b"}},`+
		`"status":{"conditions":null}}`)).Node
	c.check(len(n.Status.Conditions) == 2 && n.Annotations["a"] == "b", "%v", n)
	c.nodeMustFail(world.KindInvalid, c.patchNode(false, `{"spec":{"providerID":"parity://2"}}`))
}

func nodeRestricted(c *cluster) {
	c.asNode(c.patchNode(false, `{"metadata":{"labels":{"parity.test/a":"c",`+
		`"kubernetes.io/os":"linux","node.kubernetes.io/x":"y"}}}`))
	for _, label := range []string{"node-restriction.kubernetes.io/a", "kubernetes.io/a", "a.k8s.io/b",
		"node-role.kubernetes.io/a"} {
		c.nodeMustFail(world.KindRefused, c.patchNode(false, `{"metadata":{"labels":{"`+label+`":"x"}}}`))
	}
	c.nodeMustFail(world.KindRefused,
		c.patchNode(false, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`))
	c.nodeMustFail(world.KindRefused, &world.DeleteObject{Resource: world.ResourceNodes,
		Name: c.w.Node()})
}

func otherNodesForbidden(c *cluster) {
	other := world.Object{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name}}}
	c.nodeMustFail(world.KindRefused, &world.CreateObject{Object: other})
	c.asAdmin(&world.CreateObject{Object: other})
	defer c.asAdmin(&world.DeleteObject{Resource: world.ResourceNodes, Name: c.name})
	c.nodeMustFail(world.KindRefused, &world.GetObject{Resource: world.ResourceNodes, Name: c.name})
	c.nodeMustFail(world.KindRefused, &world.PatchObject{Resource: world.ResourceNodes, Name: c.name,
		Status: true, Patch: json.RawMessage(`{"status":{"phase":"Running"}}`)})
}

func (c *cluster) newLease(namespace, name, holder, version string) world.Object {
	return world.Object{Lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(40)),
			RenewTime: &metav1.MicroTime{Time: c.w.Now()}}}}
}

func nodeLease(c *cluster) {
	const in = "kube-node-lease"
	name := c.w.Node()
	c.nodeMustFail(world.KindNotFound, &world.GetObject{Resource: world.ResourceLeases, Namespace: in,
		Name: name})
	made := c.asNode(&world.CreateObject{Object: c.newLease(in, name, name, "")}).Lease
	c.nodeMustFail(world.KindExists, &world.CreateObject{Object: c.newLease(in, name, name, "")})
	renewal := c.newLease(in, name, name, made.ResourceVersion)
	renewed := c.asNode(&world.UpdateObject{Object: renewal}).Lease
	c.check(renewed.ResourceVersion != made.ResourceVersion && renewed.Spec.RenewTime != nil &&
		renewed.Spec.RenewTime.Nanosecond()%1000 == 0, "%v", renewed)
	c.nodeMustFail(world.KindConflict,
		&world.UpdateObject{Object: c.newLease(in, name, name, made.ResourceVersion)})
	c.nodeMustFail(world.KindRefused,
		&world.CreateObject{Object: c.newLease("default", name, name, "")})
	c.nodeMustFail(world.KindRefused,
		&world.CreateObject{Object: c.newLease(in, "elsewhere", name, "")})
	short := c.newLease(in, name, name, renewed.ResourceVersion)
	short.Lease.Spec.LeaseDurationSeconds = new(int32(0))
	c.nodeMustFail(world.KindInvalid, &world.UpdateObject{Object: short})
}

func leaseNeedsVersion(c *cluster) {
	in := c.w.Namespace()
	c.asAdmin(&world.CreateObject{Object: c.newLease(in, c.name, "a", "")})
	c.adminMustFail(world.KindInvalid, &world.UpdateObject{Object: c.newLease(in, c.name, "b", "")})
	c.asAdmin(&world.DeleteObject{Resource: world.ResourceLeases, Namespace: in, Name: c.name})
}
