package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/lease"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/op"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/core/statuswriter"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The Node of this node at the API server, and its lease.

// nodeWatch selects the Node of this node.
func (a *Agent) nodeWatch() world.WatchTarget {
	return world.WatchTarget{Resource: world.ResourceNodes, Name: a.state.Node.Name}
}

// hasListedNode reports whether the Node is known, or known not to exist. Before that pods cannot
// be checked against its labels and taints.
func (a *Agent) hasListedNode() bool {
	_, known := a.state.Objects.Get(world.ResourceNodes, "", a.state.Node.Name)
	return known
}

// watchedNodeUID returns the UID of the Node by its watch; empty if that knows of none.
func (a *Agent) watchedNodeUID() types.UID {
	o, _ := a.state.Objects.Get(world.ResourceNodes, "", a.state.Node.Name)
	if o == nil || o.Node == nil {
		return ""
	}
	return o.Node.UID
}

// nodeObject returns the Node as the API server has it, by the newest of what its watch has
// reported and what requests were answered with; nil if there is none, or before the watch has
// reported whether there is one.
func (a *Agent) nodeObject() *v1.Node {
	n := &a.state.NodeObject
	switch o, known := a.state.Objects.Get(world.ResourceNodes, "", a.state.Node.Name); {
	case known && n.Object != nil && (n.ObjectKnown || o != nil):
		return n.Object // no older than that of the watch
	case o != nil:
		return o.Node
	}
	return nil
}

// admissionNode returns the Node that pods are checked against: the object of the API server; if it
// does not exist, or there is no API server, the object that the agent registers; nil before that
// is known.
func (a *Agent) admissionNode() *v1.Node {
	if node := a.nodeObject(); node != nil || a.state.HasAPIServer && !a.hasListedNode() {
		return node
	}
	return a.state.NodeObject.InitialObject(&a.state.Boot)
}

// planNode plans the Node, or one of the kinds of Events about it.
func (a *Agent) planNode(key timer.Key) time.Time {
	s := &a.state
	switch key {
	case nodeobject.OOMOwner:
		return s.OOMs.Plan(s.Node.Name, &a.effects)
	case nodeobject.CertificatesOwner:
		s.Certificates.Plan(s.Node.Name, &a.effects)
		return time.Time{}
	}
	return s.NodeObject.Plan(a.nodeEnv())
}

// enqueueNode enqueues the Node and its lease, if there is an API server.
func (a *Agent) enqueueNode() {
	if a.state.HasAPIServer {
		a.queue.enqueue(nodeobject.Owner)
		a.queue.enqueue(lease.Owner)
	}
}

// planLease plans the lease, and has the Node read that it waits for.
func (a *Agent) planLease() time.Time {
	s := &a.state
	wake := s.Lease.Plan(&s.NodeObject, &a.effects)
	if s.Lease.AwaitsNode() {
		a.queue.enqueue(nodeobject.Owner)
	}
	return wake
}

// nodeEnv returns what the Node's status is made from. A relist that is overdue is noted, because
// the next one that succeeds changes the status.
func (a *Agent) nodeEnv() *nodeobject.Env {
	s := &a.state
	problem := s.Relist.Health(&s.EventStream, s.Now, s.BootedAt)
	s.Relist.Overdue = s.Relist.Overdue || problem != ""
	env := &nodeobject.Env{Boot: &s.Boot, Booted: s.BootedAt, Runtime: &s.Runtime,
		PLEGProblem: problem, Relisted: !s.Relist.AsOf.IsZero(), Effects: &a.effects}
	a.adoptPressure()
	env.Pressure, env.PressureUnknown = s.Eviction.Pressure, s.Eviction.Undecided()
	if s.Shutdown.UnderWay() {
		env.Shutdown = shutdown.NodeProblem
	}
	a.addCSIToNode(env)
	return env
}

// updateNodeObject handles a change of the Node at the API server.
func (a *Agent) updateNodeObject() {
	s := &a.state
	o, known := s.Objects.Get(world.ResourceNodes, "", s.Node.Name)
	if !known {
		return
	}
	var node *v1.Node
	if o != nil {
		node = o.Node
		s.Lease.NodeObserved()
	}
	s.NodeObject.Observe(node, a.effects.NextID(), a.effects.Now())
	a.applyNodeObject()
	a.updateCSIOfNode()
	a.enqueueNode()
	if s.Objects.Strategy.ObserveNode(node) {
		for _, key := range s.Objects.ReadKeys() {
			a.queue.enqueue(key)
		}
	}
}

// handleNodeCompletion handles the completion of an operation on the Node. The lease may wait for
// the Node to exist.
func (a *Agent) handleNodeCompletion(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	answered, failures := s.NodeObject.Answered, s.NodeObject.ReadFailures
	if driver := nodeobject.RefusedDriver(r, ev); driver != "" {
		s.CSI.RefuseMetadata(driver, ev.Err.Message, a.csiEnv())
	}
	if driver := nodeobject.DriverOf(r); driver != "" && ev.Err == nil {
		s.CSI.AcceptMetadata(driver)
	}
	s.NodeObject.HandleCompletion(id, r, ev, &s.Boot, &a.effects)
	if s.NodeObject.UID() != "" {
		s.Lease.NodeObserved()
	}
	a.applyNodeObject()
	a.updateCSIOfNode()
	a.enqueueNode()
	switch {
	case s.NodeObject.Answered != answered && a.isNodeAwaited():
		a.retryAdmission()
	case failures == 0 && s.NodeObject.ReadFailures > 0: // the waiting pods say what they wait for
		for _, uid := range slices.Sorted(maps.Keys(a.waiting.awaitingNode)) {
			a.queue.enqueue(statuswriter.Key(uid))
		}
	}
}

// applyNodeObject applies what others set in the Node: the addresses that a cloud provider knows,
// and the range of the node's pods, which the runtime gets.
func (a *Agent) applyNodeObject() {
	a.updateHostIPs()
	node := a.state.NodeObject.Object
	if node != nil && a.state.Runtime.PodCIDR.Want(strings.Join(node.Spec.PodCIDRs, ",")) {
		a.queue.enqueue(runtime.CIDROwner)
	}
}
