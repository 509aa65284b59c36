package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

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
	if !s.isReferenced(world.ResourceServiceAccounts, m.Namespace, m.ServiceAccount) {
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
	return s.audienceDenialReason(m, pod)
}

// audienceDenialReason returns why the node may not create a token for an audience. It has to be
// that of a volume of the pod or of its CSI driver, or one that the role of the node names.
func (s *Server) audienceDenialReason(m *world.CreateToken, pod *v1.Pod) string {
	audience := ""
	switch len(m.Spec.Audiences) {
	case 0:
	case 1:
		audience = m.Spec.Audiences[0]
	default:
		return "node may only request 0 or 1 audiences"
	}
	usesDriver := false
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		usesDriver = usesDriver || v.CSI != nil || v.PersistentVolumeClaim != nil ||
			v.Ephemeral != nil || v.Cinder != nil
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil && t.Audience == audience {
				return ""
			}
		}
	}
	for _, o := range s.Objects(world.ResourceCSIDrivers) {
		for _, request := range o.CSIDriver.Spec.TokenRequests {
			if usesDriver && request.Audience == audience {
				return ""
			}
		}
	}
	if slices.Contains(s.opts.TokenAudiences, audience) {
		return ""
	}
	return fmt.Sprintf("audience %q not found in pod spec volume, system:node:%s is not authorized "+
		"to request tokens for this audience", audience, s.opts.Node)
}

// checkAccount returns an error if a token is requested for a service account with a UID that does
// not exist, or not any more. One that is not named by its UID need not be an object.
func (s *Server) checkAccount(m *world.CreateToken) *world.Error {
	if m.UID == "" {
		return nil
	}
	o, err := s.find(m, key{world.ResourceServiceAccounts, m.Namespace, m.ServiceAccount})
	if err != nil {
		return err
	}
	if uid := string(o.ServiceAccount.UID); uid != m.UID {
		return world.Errorf(world.KindConflict, world.CallName(m), "the UID in the token request (%s) "+
			"does not match the UID of the service account (%s)", m.UID, uid)
	}
	return nil
}

// issued is a token that the server has issued for a service account with a UID.
type issued struct {
	namespace, account, uid, audience string
	pod                               v1.ObjectReference
	expires                           time.Time
}

// issue records a token for reviews.
func (s *Server) issue(made *world.TokenCreated, m *world.CreateToken) {
	if m.UID == "" {
		return
	}
	if s.issued == nil {
		s.issued = map[string]issued{}
	}
	ref := m.Spec.BoundObjectRef
	s.issued[made.Token] = issued{m.Namespace, m.ServiceAccount, m.UID,
		strings.Join(m.Spec.Audiences, ","), v1.ObjectReference{Name: ref.Name, UID: ref.UID},
		s.opts.Agenda.Now().Add(time.Duration(made.ExpirationSeconds) * time.Second)}
}

// ReviewToken reports whether a token that was requested for a service account with a UID is valid
// for an audience: until it expires, and while its service account and its pod exist.
func (s *Server) ReviewToken(token, audience string) bool {
	t, isIssued := s.issued[token]
	if !isIssued || t.audience != audience || !s.opts.Agenda.Now().Before(t.expires) {
		return false
	}
	account := s.Object(world.ResourceServiceAccounts, t.namespace, t.account).ServiceAccount
	pod := s.Object(world.ResourcePods, t.namespace, t.pod.Name).Pod
	return account != nil && string(account.UID) == t.uid && pod != nil && pod.UID == t.pod.UID
}

// createToken creates a token. All tokens are different.
func (s *Server) createToken(_ requester, m *world.CreateToken) (any, *world.Error) {
	if err := s.checkAccount(m); err != nil {
		return nil, err
	}
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
	s.issue(made, m)
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
