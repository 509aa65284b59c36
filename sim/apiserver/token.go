package apiserver

import (
	"fmt"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// The limits of the requested lifetime of a token, and its default.
const (
	tokenLifetimeMin     = 10 * time.Minute
	tokenLifetimeMax     = time.Second << 32
	tokenLifetimeDefault = time.Hour
)

// tokenDenialReason returns why the node may not create a token. The token has to be bound to a pod
// of this node that uses the service account.
func (s *Server) tokenDenialReason(m *world.CreateToken) string {
	if !s.isReferenced(serviceAccounts, m.Namespace, m.ServiceAccount) {
		return fmt.Sprintf(noRelationship, s.opts.Node)
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
		return "" // authorize reports not found
	case pod.UID != ref.UID:
		return fmt.Sprintf("the UID in the bound object reference (%s) does not match the UID in "+
			"record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != s.opts.Node:
		return "node requested token bound to a pod scheduled on a different node"
	}
	return ""
}

// createToken creates a token. All tokens are different.
func (s *Server) createToken(_ requester, m *world.CreateToken) (any, *world.Error) {
	lifetime := tokenLifetimeDefault
	if e := m.Spec.ExpirationSeconds; e != nil {
		lifetime = time.Duration(*e) * time.Second
	}
	if lifetime < tokenLifetimeMin || lifetime > tokenLifetimeMax {
		return nil, world.Errorf(world.KindInvalid, world.CallName(m), "spec.expirationSeconds: "+
			"Invalid value: %d: may not specify a duration less than 10 minutes, or larger than "+
			"2^32 seconds", int64(lifetime/time.Second))
	}
	made := &world.TokenCreated{
		Token: fmt.Sprintf("token-%s-%s-%016x", m.Namespace, m.ServiceAccount, s.uids.Uint64()),

		ExpirationSeconds: int64(lifetime / time.Second),
	}
	if s.opts.Truth != nil {
		now := s.opts.Agenda.Now()
		fact := truth.Fact{Time: now, Kind: truth.TokenIssued, Token: made.Token,
			Expires: now.Add(lifetime), Audience: strings.Join(m.Spec.Audiences, ",")}
		if ref := m.Spec.BoundObjectRef; ref != nil {
			fact.PodUID, fact.PodNamespace, fact.PodName = string(ref.UID), m.Namespace, ref.Name
		}
		s.opts.Truth.Add(fact)
	}
	return made, nil
}
