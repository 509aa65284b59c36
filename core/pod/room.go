package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/admission"
)

// TakesRoom says whether what the pod asks for is not to be given to another one: it runs, or is to
// run, or may not have ended yet. Of a pod that is over at the API server everything had ended.
func (p *Pod) TakesRoom() bool {
	switch {
	case p.live() || !p.sandboxesDown():
		return true
	case p.Spec == nil:
		return false
	case p.Gone && p.Next != nil: // it comes back
		return true
	case terminal(p.Spec.Status.Phase):
		return !p.Observed
	}
	return p.Stage != Terminated
}

// MayBeOver says whether the pod may turn out in a moment to take no room any more: what an agent
// that has just started finds has to be looked at first, and what has ended has to be confirmed.
func (p *Pod) MayBeOver() bool {
	switch p.Stage {
	case Syncing:
		return p.Spec != nil && (!p.Observed || !p.Record.Read || p.awaitInspections() || p.completed())
	case Terminating:
		return !p.live() && !p.anyReady()
	}
	return false
}

// Claim is a pod that asks for what this one takes of the node: itself, or what its sandbox says if
// no source has told of it.
func (p *Pod) Claim() *v1.Pod {
	if p.Spec != nil {
		return p.Spec
	}
	claimed := &v1.Pod{}
	if s := p.current(); s != nil {
		claimed = admission.Claimed(s.Claim)
	}
	claimed.Namespace, claimed.Name, claimed.UID = p.Namespace, p.Name, types.UID(p.UID)
	return claimed
}
