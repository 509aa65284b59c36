package apiserver

import (
	"fmt"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The ends of what may be asked of a token's life, and what it is if nobody asks.
const (
	tokenLeast   = 10 * time.Minute
	tokenMost    = time.Second << 32
	tokenDefault = time.Hour
)

// forbidsToken says why the node may not ask for a token: it has to be bound to a pod that is on
// this node and runs as that account.
func (s *Server) forbidsToken(m *world.CreateToken) string {
	if !s.refers(serviceAccounts, m.Namespace, m.ServiceAccount) {
		return fmt.Sprintf(anything, s.opts.Node)
	}
	ref := m.Spec.BoundObjectRef
	if ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name == "" {
		return "node requested token not bound to a pod"
	}
	pod := s.Object(world.ResourcePods, m.Namespace, ref.Name).Pod
	switch {
	case ref.UID == "":
		return "node requested token with a pod binding without a uid"
	case pod == nil:
		return "" // it is not found
	case pod.UID != ref.UID:
		return fmt.Sprintf("the UID in the bound object reference (%s) does not match the UID in "+
			"record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != s.opts.Node:
		return "node requested token bound to a pod scheduled on a different node"
	}
	return ""
}

// token makes a token. No two are alike.
func (s *Server) token(_ author, m *world.CreateToken) (any, *world.Error) {
	life := tokenDefault
	if e := m.Spec.ExpirationSeconds; e != nil {
		life = time.Duration(*e) * time.Second
	}
	if life < tokenLeast || life > tokenMost {
		return nil, world.Errorf(world.KindInvalid, world.Call(m), "spec.expirationSeconds: "+
			"Invalid value: %d: may not specify a duration less than 10 minutes, or larger than "+
			"2^32 seconds", int64(life/time.Second))
	}
	made := &world.TokenCreated{
		Token:   fmt.Sprintf("token-%s-%s-%016x", m.Namespace, m.ServiceAccount, s.uids.Uint64()),
		Expires: s.now().Add(life),
	}
	if s.opts.Truth != nil {
		s.opts.Truth.Add(truth.Fact{Time: s.opts.Agenda.Now(), Kind: truth.TokenMade,
			Token: made.Token, Expires: made.Expires})
	}
	return made, nil
}
