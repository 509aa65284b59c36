package podcertificate

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The answers of signers, and what follows from the age of a certificate.

// The conditions of a request. A request has one of them at most, which never changes.
const (
	conditionIssued = certificatesv1beta1.PodCertificateRequestConditionTypeIssued
	conditionDenied = certificatesv1beta1.PodCertificateRequestConditionTypeDenied
	conditionFailed = certificatesv1beta1.PodCertificateRequestConditionTypeFailed
)

// applyAnswer applies what the watch says of the request. An object with the request's name that
// is not the one that was created is not believed: its author cannot make the agent install a chain
// without the key, or of a signer or for a pod that the author has chosen.
func (c *Certificate) applyAnswer(projection *v1.PodCertificateProjection, env *Env) {
	r := c.Request
	if r == nil || r.Name == "" || env.Requests == nil {
		return
	}
	now := env.Effects.Now()
	object, exists := env.Requests.Objects[r.fullName(env)]
	switch found := object.CertificateRequest; {
	case !exists:
		if r.isCreated() && env.Requests.Listed && env.Requests.Failing == nil &&
			!now.Before(c.lostAt(env)) {
			c.fail("PodCertificateRequest "+r.Name+" appears to have been deleted", now, backoffFirst)
			c.endRequest(env)
		}
	case !r.isIn(found, projection, env):
		c.fail("PodCertificateRequest "+r.Name+" was replaced by another one", now, renewalPause)
		env.Effects.Log(world.LevelWarning, "a request for a certificate was replaced by another one",
			"pod", env.Pod.Namespace+"/"+env.Pod.Name, "request", r.Name, "uid", string(found.UID))
		c.endRequest(env)
	default:
		r.UID = found.UID
		c.noteCreated(now)
		for i := range found.Status.Conditions {
			if c.applyCondition(found, &found.Status.Conditions[i], env) {
				return
			}
		}
	}
}

// isIn reports whether an object is the one that was created for the request. The answer to the
// creation has its UID. If that was lost, the object has to ask for what was sent.
func (r *Request) isIn(found *certificatesv1beta1.PodCertificateRequest,
	projection *v1.PodCertificateProjection, env *Env) bool {
	spec := &found.Spec
	switch {
	case !bytes.Equal(spec.StubPKCS10Request, r.Proof) || spec.SignerName != projection.SignerName ||
		spec.PodName != env.Pod.Name || spec.PodUID != env.Pod.UID ||
		spec.ServiceAccountName != env.Pod.Spec.ServiceAccountName ||
		string(spec.NodeName) != env.NodeName:
		return false
	case r.UID != "":
		return found.UID == r.UID
	}
	have, want := spec.MaxExpirationSeconds, projection.MaxExpirationSeconds
	return slices.Contains(r.Sent, Identity{spec.ServiceAccountUID, spec.NodeUID}) &&
		(have == want || have != nil && want != nil && *have == *want) &&
		maps.Equal(spec.UnverifiedUserAnnotations, projection.UserAnnotations)
}

// lostAt returns when the request counts as deleted, if it is not in the watch then.
func (c *Certificate) lostAt(env *Env) time.Time {
	return c.Request.CreatedAt.Add(lostAfter + env.Jitter(c.Request.Name, jitterMax))
}

// applyCondition applies a condition of the request, and reports whether it is final.
func (c *Certificate) applyCondition(found *certificatesv1beta1.PodCertificateRequest,
	condition *metav1.Condition, env *Env) bool {
	switch condition.Type {
	case conditionIssued:
		env.Effects.CountWork(len(found.Status.CertificateChain))
		issued, problem := c.Request.issued(found, env)
		if problem != "" {
			c.refuse(Refusal{conditionFailed, "InvalidAnswer", problem}, env)
			return true
		}
		c.Issued = issued
		c.endRequest(env)
		c.NotBefore = env.Effects.Now().Add(renewalPause)
	case conditionDenied, conditionFailed:
		c.refuse(Refusal{condition.Type, budget.CutMessage(condition.Reason),
			budget.CutMessage(condition.Message)}, env)
	default:
		return false
	}
	return true
}

// issued returns the certificate that a signer has issued, or why it is none. The server demands a
// chain for the key, and both dates (ValidatePodCertificateRequestStatusUpdate in
// pkg/apis/certificates/validation).
func (r *Request) issued(found *certificatesv1beta1.PodCertificateRequest,
	env *Env) (*Issued, string) {
	status := &found.Status
	if n := len(status.CertificateChain); n > budget.CertificateChainMax {
		return nil, fmt.Sprintf("the chain has %d bytes, and may have %d", n,
			budget.CertificateChainMax)
	}
	chain := certificatesOf(status.CertificateChain)
	if chain == "" || status.BeginRefreshAt == nil || status.NotAfter == nil {
		return nil, "it was issued without a certificate, beginRefreshAt or notAfter"
	}
	return &Issued{Request: r.Name, PrivateKey: r.PrivateKey, Chain: chain,
		RenewAt:  status.BeginRefreshAt.Time.UTC().Add(env.Jitter("renew/"+r.Name, jitterMax)),
		NotAfter: status.NotAfter.Time.UTC()}, ""
}

// certificatesOf returns the certificates of a chain, without any text and headers between them.
func certificatesOf(chain string) string {
	var b strings.Builder
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
		}
	}
	return b.String()
}

// refuse records that the signer gives no certificate. The kubelet gives the reason of the
// condition as the format of the Event, so that its message is garbled; here it is as intended.
func (c *Certificate) refuse(refusal Refusal, env *Env) {
	how := "was denied"
	if refusal.Type == conditionFailed {
		how = "failed"
	}
	env.RecordWarning(refusal.Type, fmt.Sprintf("PodCertificateRequest %s/%s %s, reason=%q, "+
		"message=%q", env.Pod.Namespace, c.Request.Name, how, refusal.Reason, refusal.Message))
	c.Issued, c.Refusal = nil, &refusal
	c.endRequest(env)
}

func (r *Refusal) participle() string {
	if r.Type == conditionDenied {
		return "denied"
	}
	return "failed"
}

// recordAge records Events about a certificate that should have been renewed, or has expired, once
// each, and returns when one is due.
func (c *Certificate) recordAge(env *Env) time.Time {
	issued := c.Issued
	if issued == nil {
		return time.Time{}
	}
	var wake time.Time
	check := func(recorded *bool, date time.Time, reason, message string) {
		switch {
		case *recorded:
		case env.Effects.Date().After(date):
			*recorded = true
			env.RecordWarning(reason, message)
		default: // a date that has just come is not past yet
			wake = timer.Soonest(wake, agentTime(date, env).Add(time.Second))
		}
	}
	check(&issued.IsOverdueRecorded, issued.RenewAt.Add(overdueFor), "CertificateOverdueForRefresh",
		"PodCertificate refresh overdue")
	check(&issued.IsExpiredRecorded, issued.NotAfter, "CertificateExpired", "PodCertificate expired")
	return wake
}

// The states of a source in the metric kubelet_podcertificate_states.
const (
	stateNotIssued = "not_yet_issued"
	stateFresh     = "fresh"
	stateOverdue   = "overdue_for_refresh"
	stateExpired   = "expired"
)

// VisitStates visits the sources of a pod whose certificate was planned, with its signer and its
// state at a date.
func (s *Set) VisitStates(pod *v1.Pod, date time.Time, visit func(signer, state string)) {
	forEachSource(pod, func(volume string, source int, projection *v1.PodCertificateProjection) {
		if c := s.find(volume, source); c != nil {
			visit(projection.SignerName, c.state(date))
		}
	})
}

func (c *Certificate) state(date time.Time) string {
	switch issued := c.Issued; {
	case c.Refusal != nil:
		return c.Refusal.participle()
	case issued == nil:
		return stateNotIssued
	case date.After(issued.NotAfter):
		return stateExpired
	case date.After(issued.RenewAt.Add(overdueFor)):
		return stateOverdue
	}
	return stateFresh
}
