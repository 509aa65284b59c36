package core

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/lease"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The Node object of this node, and its lease.

// nodeWatched is what is watched for it.
func (a *Agent) nodeWatched() world.Watched {
	return world.Watched{Resource: world.ResourceNodes, Name: a.state.Node.Name}
}

// nodeListed says whether it is known what the Node is, or that there is none: what is not known
// of it could not keep a pod away.
func (a *Agent) nodeListed() bool {
	_, known := a.state.Objects.One(world.ResourceNodes, "", a.state.Node.Name)
	return known
}

// ownNode is the node as the API server has it; nil if that is not known.
func (a *Agent) ownNode() *v1.Node {
	if o, _ := a.state.Objects.One(world.ResourceNodes, "", a.state.Node.Name); o != nil {
		return o.Node
	}
	return nil
}

// place is the node that pods are held against: as the API server has it or, if it is known to have
// none or there is no server, as it is registered; nil if nothing is known of it.
func (a *Agent) place() *v1.Node {
	if is := a.ownNode(); is != nil || a.state.API && !a.nodeListed() {
		return is
	}
	return a.state.OwnNode.Initial(&a.state.Boot)
}

// touchNode has the node looked at anew, if there is somebody to tell of it.
func (a *Agent) touchNode() {
	if a.state.API {
		a.touched.add(nodeobject.Owner)
		a.touched.add(lease.Owner)
	}
}

// nodeEnv is what the node is like. That it is unhealthy because no relist succeeds is remembered:
// the next one that does is news.
func (a *Agent) nodeEnv() *nodeobject.Env {
	s := &a.state
	health := s.Relist.Health(&s.Events, s.Last, s.Booted)
	s.Relist.Overdue = s.Relist.Overdue || health != ""
	return &nodeobject.Env{Boot: &s.Boot, Booted: s.Booted, Runtime: &s.Runtime, PLEG: health,
		Listed: !s.Relist.AsOf.IsZero(), Out: &a.out}
}

// nodeSeen hands what the watch has told to the node.
func (a *Agent) nodeSeen() {
	s := &a.state
	o, known := s.Objects.One(world.ResourceNodes, "", s.Node.Name)
	if !known {
		return
	}
	var is *v1.Node
	if o != nil {
		is = o.Node
	}
	s.OwnNode.Observed(is)
	a.touchNode()
	if s.Objects.Strategy.Heed(is) {
		for _, key := range s.Objects.ReadKeys() {
			a.touched.add(key)
		}
	}
}

// nodeAnswered takes an answer; the lease may have waited for there being a Node.
func (a *Agent) nodeAnswered(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	s.OwnNode.Answered(id, r, ev, &s.Boot, &a.out)
	a.touchNode()
}
