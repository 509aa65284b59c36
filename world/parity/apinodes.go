package parity

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// nodeCases are about the Node and its lease.
var nodeCases = []apiCase{
	{"the status of a node and the rest are changed each by itself", nodeStatus},
	{"a node sets no labels that others rely on, and no taints", nodeRestricted},
	{"a node sees and touches no other", otherNodes},
	{"a node has one lease", lease},
}

// onNode is a patch of the Node.
func (c *cluster) onNode(status bool, patch string) *world.PatchObject {
	return &world.PatchObject{Resource: world.ResourceNodes, Name: c.w.Node(), Status: status,
		Patch: json.RawMessage(patch)}
}

func registers(c *cluster) {
	// The mirror of a static pod waits for the Node.
	early := c.pod(func(p *v1.Pod) {
		p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node",
			Name: c.w.Node(), UID: "00000000-0000-4000-8000-000000000000", Controller: new(true)}}
	})
	c.nodeFails(world.KindNotFound, early)
	c.nodeFails(world.KindNotFound, &world.GetObject{Resource: world.ResourceNodes,
		Name: c.w.Node()})
	register := &world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.w.Node(),
			Labels: map[string]string{v1.LabelHostname: c.w.Node(), "parity.test/a": "b"}},
		Spec:   v1.NodeSpec{ProviderID: "parity://1"},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.36.3"}},
	}}}
	n := c.node(register).Node
	c.check(n.UID != "" && n.Status.NodeInfo.KubeletVersion == "v1.36.3", "%v", n)
	c.check(len(n.Spec.Taints) == 1 && n.Spec.Taints[0].Key == v1.TaintNodeNotReady &&
		n.Spec.Taints[0].Effect == v1.TaintEffectNoSchedule, "taints %v", n.Spec.Taints)
	c.nodeFails(world.KindExists, register)
	got := c.node(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	c.check(got.UID == n.UID, "%v", got)
}

func nodeStatus(c *cluster) {
	n := c.node(c.onNode(true, `{"spec":{"unschedulable":true},"status":{"conditions":[`+
		`{"type":"Ready","status":"True"},{"type":"MemoryPressure","status":"False"}]}}`)).Node
	c.check(!n.Spec.Unschedulable && len(n.Status.Conditions) == 2, "%v", n)
	n = c.node(c.onNode(true, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)).Node
	c.check(len(n.Status.Conditions) == 2, "%v", n.Status.Conditions)
	n = c.node(c.onNode(false, `{"metadata":{"annotations":{"a":"b"}},`+
		`"status":{"conditions":null}}`)).Node
	c.check(len(n.Status.Conditions) == 2 && n.Annotations["a"] == "b", "%v", n)
	c.nodeFails(world.KindInvalid, c.onNode(false, `{"spec":{"providerID":"parity://2"}}`))
}

func nodeRestricted(c *cluster) {
	c.node(c.onNode(false, `{"metadata":{"labels":{"parity.test/a":"c","kubernetes.io/os":"linux",`+
		`"node.kubernetes.io/x":"y"}}}`))
	for _, label := range []string{"node-restriction.kubernetes.io/a", "kubernetes.io/a", "a.k8s.io/b",
		"node-role.kubernetes.io/a"} {
		c.nodeFails(world.KindRefused, c.onNode(false, `{"metadata":{"labels":{"`+label+`":"x"}}}`))
	}
	c.nodeFails(world.KindRefused,
		c.onNode(false, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`))
	c.nodeFails(world.KindRefused, &world.DeleteObject{Resource: world.ResourceNodes,
		Name: c.w.Node()})
}

func otherNodes(c *cluster) {
	other := world.Object{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name}}}
	c.nodeFails(world.KindRefused, &world.CreateObject{Object: other})
	c.admin(&world.CreateObject{Object: other})
	defer c.admin(&world.DeleteObject{Resource: world.ResourceNodes, Name: c.name})
	c.nodeFails(world.KindRefused, &world.GetObject{Resource: world.ResourceNodes, Name: c.name})
	c.nodeFails(world.KindRefused, &world.PatchObject{Resource: world.ResourceNodes, Name: c.name,
		Status: true, Patch: json.RawMessage(`{"status":{"phase":"Running"}}`)})
}

func (c *cluster) lease(namespace, name, holder, version string) world.Object {
	return world.Object{Lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(40)),
			RenewTime: &metav1.MicroTime{Time: c.w.Now()}}}}
}

func lease(c *cluster) {
	const in = "kube-node-lease"
	name := c.w.Node()
	c.nodeFails(world.KindNotFound, &world.GetObject{Resource: world.ResourceLeases, Namespace: in,
		Name: name})
	made := c.node(&world.CreateObject{Object: c.lease(in, name, name, "")}).Lease
	c.nodeFails(world.KindExists, &world.CreateObject{Object: c.lease(in, name, name, "")})
	renewed := c.node(&world.UpdateObject{Object: c.lease(in, name, name, made.ResourceVersion)}).Lease
	c.check(renewed.ResourceVersion != made.ResourceVersion && renewed.Spec.RenewTime != nil &&
		renewed.Spec.RenewTime.Nanosecond()%1000 == 0, "%v", renewed)
	c.nodeFails(world.KindConflict,
		&world.UpdateObject{Object: c.lease(in, name, name, made.ResourceVersion)})
	c.nodeFails(world.KindRefused, &world.CreateObject{Object: c.lease("default", name, name, "")})
	c.nodeFails(world.KindRefused, &world.CreateObject{Object: c.lease(in, "elsewhere", name, "")})
	short := c.lease(in, name, name, renewed.ResourceVersion)
	short.Lease.Spec.LeaseDurationSeconds = new(int32(0))
	c.nodeFails(world.KindInvalid, &world.UpdateObject{Object: short})
}

func leaseVersion(c *cluster) {
	in := c.w.Namespace()
	c.admin(&world.CreateObject{Object: c.lease(in, c.name, "a", "")})
	c.adminFails(world.KindInvalid, &world.UpdateObject{Object: c.lease(in, c.name, "b", "")})
	c.admin(&world.DeleteObject{Resource: world.ResourceLeases, Namespace: in, Name: c.name})
}
