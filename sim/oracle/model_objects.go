package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// apiObjects is what the API server has of the node and its pods.
type apiObjects struct {
	pods            map[string]*v1.Pod // by namespace/name, those of the node
	node            *v1.Node
	nodeCreatedAt   time.Time              // since when the Node exists
	terminalPhases  map[string]v1.PodPhase // by UID of the object, also after its removal
	containerOwners map[string]podIdentity // by container ID, also after its removal
	leaseRenewedAt  time.Time              // by the agent
	leaseDate       time.Time              // that the agent has written then
	nodeStates      []nodeState            // all states that the Node has had
	statusIssuedAt  map[string]time.Time   // by namespace/name: the newest write of a pod's status
}

// podIdentity is the pod that a container was created for.
type podIdentity struct{ uid, fullName string }

func newAPIObjects() apiObjects {
	return apiObjects{pods: map[string]*v1.Pod{}, terminalPhases: map[string]v1.PodPhase{},
		containerOwners: map[string]podIdentity{}, statusIssuedAt: map[string]time.Time{}}
}

// applyObject updates the model with a write at the API server.
func (m *model) applyObject(f *truth.Fact) {
	o, after := &m.objects, &f.Write.After
	name := f.Write.Namespace + "/" + f.Write.Name
	switch f.Write.Resource {
	case api.ResourcePods:
		delete(o.pods, name)
		if after.Pod == nil {
			return
		}
		if after.Pod.Spec.NodeName == m.opts.NodeName {
			o.pods[name] = after.Pod
		}
		if p := m.pods[string(after.Pod.UID)]; p != nil {
			p.recordMetadata(after.Pod)
			p.recordReported(after.Pod, f.Time)
		}
		if phase := after.Pod.Status.Phase; isTerminalPhase(phase) {
			o.terminalPhases[string(after.Pod.UID)] = phase
			m.applyTerminalPhase(f, after.Pod)
		}
	case api.ResourceNodes:
		if f.Write.Name == m.opts.NodeName {
			if o.node == nil {
				o.nodeCreatedAt = f.Time
			}
			o.node = after.Node
			o.nodeStates = append(o.nodeStates, nodeState{f.Time, after.Node})
		}
	case api.ResourceSecrets:
		if after.Secret != nil {
			m.images.applySecret(after.Secret)
		}
	case api.ResourceServiceAccounts:
		if after.ServiceAccount != nil {
			m.images.applyAccount(after.ServiceAccount, m.opts.UserAnnotation)
		}
	case api.ResourceLeases:
		if f.Write.Incarnation > 0 && after.Lease != nil {
			o.leaseRenewedAt = f.Time
			if at := after.Lease.Spec.RenewTime; at != nil {
				o.leaseDate = at.Time
			}
		}
	}
}

// applyTerminalPhase records that a terminal phase of a pod was reported to the API server. The
// agent may reject a pod of which nothing has run, if it does not fit.
func (m *model) applyTerminalPhase(f *truth.Fact, object *v1.Pod) {
	p := m.pods[string(object.UID)]
	if p == nil || !p.terminalAt.IsZero() {
		return
	}
	p.terminalAt = f.Time
	if f.Write.Incarnation == 0 {
		p.externalPhase = object.Status.Phase
		return
	}
	p.preempted = isPreempted(object)
	p.rejected = isRejection(&object.Status) && p.firstStartedAt.IsZero() &&
		m.mayReject(p, object.Status.Reason, f.Time)
}

// podsOfObject returns the pods on the node that an object is about: the pod of its UID, or the
// static pods of the full name that it mirrors.
func (m *model) podsOfObject(object *v1.Pod) []*pod {
	if !isMirror(object) {
		if p := m.pods[string(object.UID)]; p != nil {
			return []*pod{p}
		}
		return nil
	}
	if full := m.fullNames[object.Namespace+"/"+object.Name]; full != nil {
		return full.pods
	}
	return nil
}

// isAgentStatus reports whether a fact is a status of a pod that the agent has written to the API
// server.
func isAgentStatus(f *truth.Fact) bool {
	return f.Kind == truth.ObjectUpdated && f.Write.Incarnation > 0 &&
		f.Write.Resource == api.ResourcePods
}
