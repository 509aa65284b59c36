package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The controllers of the cluster, as far as a node feels them, and what the judges are told of
// what others want.

// controlPeriod is how often the controllers look at the node, as the node lifecycle controller
// does; leaseMax is how old its lease may be until it counts as gone; orphanMax is how long pods
// are left alone whose Node is missing (upstream's pod garbage collector).
const (
	controlPeriod = 5 * time.Second
	leaseMax      = 40 * time.Second
	orphanMax     = 40 * time.Second
)

// controllers is what the controllers remember.
type controllers struct {
	missing   time.Time // since when there is no Node
	unseen    time.Time // since when the node counts as gone
	evictedAt time.Time
}

// control begins to look at the node again and again.
func (r *run) control() {
	var again func()
	again = func() {
		r.lookAtNode()
		r.agenda.After(controlPeriod, again)
	}
	r.agenda.After(controlPeriod, again)
}

func (r *run) lookAtNode() {
	now := r.agenda.Now()
	node := r.server.Object(world.ResourceNodes, "", nodeName).Node
	r.collect(node)
	if node == nil {
		if r.controllers.missing.IsZero() {
			r.controllers.missing = now
		}
		if now.Sub(r.controllers.missing) > orphanMax {
			r.evict("pod garbage collector", new(int64))
		}
		return
	}
	r.controllers.missing = time.Time{}
	if r.plan.Node.EvictAfter > 0 {
		r.judgeLease(node, now)
	}
}

// collect removes what belongs to a Node that is not there any more.
func (r *run) collect(node *v1.Node) {
	for _, o := range append(r.server.Objects(world.ResourcePods),
		r.server.Objects(world.ResourceLeases)...) {
		resource, meta := o.Get()
		for _, owner := range meta.GetOwnerReferences() {
			if owner.Kind == "Node" && (node == nil || owner.UID != node.UID) {
				r.admin("garbage collector", &world.DeleteObject{Resource: resource,
					Namespace: meta.GetNamespace(), Name: meta.GetName(),
					UID: string(meta.GetUID())})
			}
		}
	}
}

// judgeLease calls a node gone whose lease is old, and evicts its pods in the end. One that is
// back, and says that it is ready, is as before.
func (r *run) judgeLease(node *v1.Node, now time.Time) {
	c := &r.controllers
	renewed := node.CreationTimestamp.Time
	if l := r.server.Object(world.ResourceLeases, v1.NamespaceNodeLease, nodeName).Lease; l != nil &&
		l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	if now.Sub(renewed) <= leaseMax {
		if !c.unseen.IsZero() && isReady(node) {
			c.unseen = time.Time{}
			r.patchNode(false, `{"spec":{"taints":[{"$patch":"replace"}]}}`)
		}
		return
	}
	if c.unseen.IsZero() {
		c.unseen = now
		r.callGone(node, now)
	}
	if now.Sub(c.unseen) > time.Duration(r.plan.Node.EvictAfter) && now.Sub(c.evictedAt) > leaseMax {
		c.evictedAt = now
		r.evict("taint eviction", nil)
	}
}

// tainted says whether no pod is to be on the node.
func (r *run) tainted() bool {
	node := r.server.Object(world.ResourceNodes, "", nodeName).Node
	return node != nil && slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute
	})
}

func isReady(node *v1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// callGone says of a node that nobody knows how it is, and of its pods that they are not ready.
func (r *run) callGone(node *v1.Node, now time.Time) {
	at, err := json.Marshal(now.UTC().Format(time.RFC3339))
	if err != nil {
		panic(err)
	}
	for _, c := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure,
		v1.NodeDiskPressure, v1.NodePIDPressure} {
		r.patchNode(true, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"Unknown",`+
			`"reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",`+
			`"lastTransitionTime":%s}]}}`, c, at))
	}
	r.patchNode(false, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute",`+
		`"timeAdded":%s}]}}`, v1.TaintNodeUnreachable, at))
	for _, o := range r.server.Objects(world.ResourcePods) {
		if o.Pod.Spec.NodeName != node.Name {
			continue
		}
		r.admin("node lifecycle", &world.PatchObject{Resource: world.ResourcePods,
			Namespace: o.Pod.Namespace, Name: o.Pod.Name, Status: true,
			Patch: json.RawMessage(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready",`+
				`"status":"False","lastTransitionTime":%s}]}}`, at))})
	}
}

func (r *run) patchNode(status bool, patch string) {
	r.admin("node lifecycle", &world.PatchObject{Resource: world.ResourceNodes, Name: nodeName,
		Status: status, Patch: json.RawMessage(patch)})
}

// evict removes the pods of the node.
func (r *run) evict(by string, grace *int64) {
	for _, o := range r.server.Objects(world.ResourcePods) {
		if o.Pod.Spec.NodeName == nodeName && !mirror.Is(o.Pod) &&
			(o.Pod.DeletionTimestamp == nil || grace != nil) {
			r.admin(by, &world.DeleteObject{Resource: world.ResourcePods,
				Namespace: o.Pod.Namespace, Name: o.Pod.Name, UID: string(o.Pod.UID),
				GracePeriodSeconds: grace})
		}
	}
}

// tellBound tells the judges what the API server wants of the node. A pod that is marked is not
// wanted any more.
func (r *run) tellBound(f truth.Fact) {
	if f.Write == nil || f.Write.Resource != world.ResourcePods {
		return
	}
	before, after := f.Write.Before.Pod, f.Write.After.Pod
	switch is, was := wantsBound(after), wantsBound(before); {
	case is && !was:
		r.prompt.want(after.Name, f.Time)
		r.panel.Wanted(f.Time, after)
	case is && before.Generation != after.Generation:
		r.panel.Wanted(f.Time, after)
	case was && !is:
		r.panel.Unwanted(f.Time, string(before.UID))
	}
	if after != nil && after.DeletionGracePeriodSeconds != nil && !mirror.Is(after) {
		r.panel.Hastened(string(after.UID),
			time.Duration(*after.DeletionGracePeriodSeconds)*time.Second)
	}
	if after == nil && before.DeletionGracePeriodSeconds != nil &&
		*before.DeletionGracePeriodSeconds == 0 && f.Write.Life == 0 && !mirror.Is(before) {
		r.panel.Hastened(string(before.UID), 0)
	}
}

// wantsBound says whether a pod of the API server is to run on the node.
func wantsBound(p *v1.Pod) bool {
	return p != nil && p.Spec.NodeName == nodeName && !mirror.Is(p) && p.DeletionTimestamp == nil
}
