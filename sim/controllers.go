package sim

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The timing of the controllers of the cluster, with upstream's defaults.
const (
	nodeMonitorPeriod = 5 * time.Second  // of the node lifecycle controller
	leaseAgeMax       = 40 * time.Second // until it marks the node as unreachable
	orphanAgeMax      = 40 * time.Second // until the pod garbage collector deletes pods without Node
)

// controllers is the state of the cluster's controllers that act on the node and its pods.
type controllers struct {
	nodeMissingSince time.Time // zero: the Node exists
	unreachableSince time.Time // zero: the node is reachable
	evictedAt        time.Time
}

// startControllers starts the periodic check of the node.
func (r *run) startControllers() {
	var check func()
	check = func() {
		r.checkNode()
		r.agenda.After(nodeMonitorPeriod, check)
	}
	r.agenda.After(nodeMonitorPeriod, check)
}

func (r *run) checkNode() {
	now := r.agenda.Now()
	node := r.server.Object(world.ResourceNodes, "", plan.NodeName).Node
	r.collectGarbage(node)
	if node == nil {
		if r.controllers.nodeMissingSince.IsZero() {
			r.controllers.nodeMissingSince = now
		}
		if now.Sub(r.controllers.nodeMissingSince) > orphanAgeMax {
			r.evictPods("pod garbage collector", new(int64))
		}
		return
	}
	r.controllers.nodeMissingSince = time.Time{}
	if r.plan.Node.EvictAfter > 0 {
		r.checkLease(node, now)
	}
}

// collectGarbage deletes the pods and leases that are owned by a Node that no longer exists.
func (r *run) collectGarbage(node *v1.Node) {
	for _, o := range append(r.server.Objects(world.ResourcePods),
		r.server.Objects(world.ResourceLeases)...) {
		resource, meta := o.Meta()
		for _, owner := range meta.GetOwnerReferences() {
			if owner.Kind == "Node" && (node == nil || owner.UID != node.UID) {
				r.adminWrite("garbage collector", &world.DeleteObject{Resource: resource,
					Namespace: meta.GetNamespace(), Name: meta.GetName(),
					UID: string(meta.GetUID())})
			}
		}
	}
}

// checkLease marks a node with an expired lease as unreachable, and evicts its pods after a while.
// When the lease is renewed and the node is ready again the taint is removed.
func (r *run) checkLease(node *v1.Node, now time.Time) {
	c := &r.controllers
	renewed := node.CreationTimestamp.Time
	lease := r.server.Object(world.ResourceLeases, v1.NamespaceNodeLease, plan.NodeName).Lease
	if lease != nil && lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	if now.Sub(renewed) <= leaseAgeMax {
		if !c.unreachableSince.IsZero() && isNodeReady(node) {
			c.unreachableSince = time.Time{}
			r.patchNode(false, `{"spec":{"taints":[{"$patch":"replace"}]}}`)
		}
		return
	}
	if c.unreachableSince.IsZero() {
		c.unreachableSince = now
		r.markUnreachable(node, now)
	}
	if now.Sub(c.unreachableSince) > time.Duration(r.plan.Node.EvictAfter) &&
		now.Sub(c.evictedAt) > leaseAgeMax {
		c.evictedAt = now
		r.evictPods("taint eviction", nil)
	}
}

func isNodeReady(node *v1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// markUnreachable sets the conditions of a node to Unknown, taints it, and sets its pods to not
// ready.
func (r *run) markUnreachable(node *v1.Node, now time.Time) {
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
		r.adminWrite("node lifecycle", &world.PatchObject{Resource: world.ResourcePods,
			Namespace: o.Pod.Namespace, Name: o.Pod.Name, Status: true,
			Patch: json.RawMessage(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready",`+
				`"status":"False","lastTransitionTime":%s}]}}`, at))})
	}
}

func (r *run) patchNode(status bool, patch string) {
	r.adminWrite("node lifecycle", &world.PatchObject{Resource: world.ResourceNodes,
		Name: plan.NodeName, Status: status, Patch: json.RawMessage(patch)})
}

// evictPods deletes the pods of the node, with their own grace periods if grace is nil.
func (r *run) evictPods(by string, grace *int64) {
	for _, o := range r.server.Objects(world.ResourcePods) {
		if o.Pod.Spec.NodeName == plan.NodeName && !mirror.IsMirror(o.Pod) &&
			(o.Pod.DeletionTimestamp == nil || grace != nil) {
			r.adminWrite(by, &world.DeleteObject{Resource: world.ResourcePods,
				Namespace: o.Pod.Namespace, Name: o.Pod.Name, UID: string(o.Pod.UID),
				GracePeriodSeconds: grace})
		}
	}
}

// observePodWrite subscribes to the truth: it reports to the oracles which pods of the API server
// are desired on the node, and with what grace period they are deleted.
func (r *run) observePodWrite(f truth.Fact) {
	if f.Write == nil || f.Write.Resource != world.ResourcePods {
		return
	}
	before, after := f.Write.Before.Pod, f.Write.After.Pod
	switch desired, wasDesired := isDesired(after), isDesired(before); {
	case desired && !wasDesired:
		r.startTimes.setDesired(after.Name, f.Time)
		r.oracles.PodDesired(f.Time, after)
		r.marks.PodDesired(f.Time, after)
	case desired && before.Generation != after.Generation:
		r.oracles.PodDesired(f.Time, after)
		r.marks.PodDesired(f.Time, after)
	case wasDesired && !desired:
		r.oracles.PodNoLongerDesired(f.Time, string(before.UID))
		r.marks.PodNoLongerDesired(f.Time, string(before.UID))
	}
	if after != nil && after.DeletionGracePeriodSeconds != nil && !mirror.IsMirror(after) {
		r.oracles.GracePeriodShortened(string(after.UID),
			time.Duration(*after.DeletionGracePeriodSeconds)*time.Second)
	}
	if after == nil && before.DeletionGracePeriodSeconds != nil &&
		*before.DeletionGracePeriodSeconds == 0 && f.Write.Incarnation == 0 && !mirror.IsMirror(before) {
		r.oracles.GracePeriodShortened(string(before.UID), 0)
	}
}

// isDesired reports whether a pod of the API server is to run on the node. A pod that is marked for
// deletion is not desired.
func isDesired(p *v1.Pod) bool {
	return p != nil && p.Spec.NodeName == plan.NodeName && !mirror.IsMirror(p) &&
		p.DeletionTimestamp == nil
}
