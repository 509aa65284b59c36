package apiserver

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"seedlet.dev/world"
)

// Requests of the node for certificates of its pods (KEP-4317): what NodeRestriction demands of
// them (admitPodCertificateRequest), and what a server accepts as a request and as an answer
// (pkg/apis/certificates/validation).

const (
	certificateLifetimeMin = time.Hour
	certificateLifetimeMax = 91 * 24 * time.Hour
	renewalMargin          = 10 * time.Minute // from both ends of the lifetime
	issuedWithin           = 5 * time.Minute  // of the beginning of the lifetime
	chainBytesMax          = 100 << 10
)

// certificateDenial returns why the node may not create a request. What may be different once the
// server's caches are newer is an error of another kind than a refusal.
func (s *Server) certificateDenial(m *world.CreateObject) *world.Error {
	r, spec := m.Object.CertificateRequest, &m.Object.CertificateRequest.Spec
	fail := func(kind world.ErrorKind, format string, args ...any) *world.Error {
		return world.Errorf(kind, world.CallName(m), "PodCertificateRequest: "+format, args...)
	}
	if string(spec.NodeName) != s.opts.Node {
		return fail(world.KindRefused, "spec.nodeName=%q is not the requesting node", spec.NodeName)
	}
	node := s.Object(world.ResourceNodes, "", s.opts.Node).Node
	pod := s.Object(world.ResourcePods, r.Namespace, spec.PodName).Pod
	account := s.Object(world.ResourceServiceAccounts, r.Namespace, spec.ServiceAccountName)
	switch {
	case node == nil || pod == nil:
		return fail(world.KindNotFound, "its node or its pod does not exist")
	case node.UID != spec.NodeUID:
		return fail(world.KindInternal, "spec.nodeUID is not that of the node")
	case pod.UID != spec.PodUID:
		return fail(world.KindInternal, "spec.podUID is not that of the pod")
	case pod.Spec.NodeName != s.opts.Node:
		return fail(world.KindRefused, "its pod does not run on the requesting node")
	case pod.Annotations[v1.MirrorPodAnnotationKey] != "":
		return fail(world.KindRefused, "its pod is a mirror pod")
	case pod.Spec.ServiceAccountName != spec.ServiceAccountName:
		return fail(world.KindRefused, "spec.serviceAccountName is not that of the pod")
	case account.ServiceAccount == nil:
		return fail(world.KindNotFound, "its service account does not exist")
	case account.ServiceAccount.UID != spec.ServiceAccountUID:
		return fail(world.KindInternal, "spec.serviceAccountUID is not that of the service account")
	}
	return nil
}

// validateCertificateRequest returns why a new request is invalid.
func validateCertificateRequest(r *certificatesv1beta1.PodCertificateRequest) string {
	spec := &r.Spec
	request, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
	switch {
	case spec.PodName == "" || spec.PodUID == "" || spec.NodeUID == "" || spec.SignerName == "" ||
		spec.ServiceAccountName == "" || spec.ServiceAccountUID == "":
		return "spec: Invalid value: must not be empty"
	case spec.MaxExpirationSeconds == nil:
		return "spec.maxExpirationSeconds: Required value: must be set"
	case lifetimeMax(r) < certificateLifetimeMin || lifetimeMax(r) > certificateLifetimeMax:
		return fmt.Sprintf("spec.maxExpirationSeconds: Invalid value: %d: must be in the range "+
			"[3600, 7862400]", *spec.MaxExpirationSeconds)
	case err != nil || request.CheckSignature() != nil:
		return "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"
	}
	return ""
}

// answers are the conditions that a request can have.
var answers = []string{certificatesv1beta1.PodCertificateRequestConditionTypeIssued,
	certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
	certificatesv1beta1.PodCertificateRequestConditionTypeFailed}

func lifetimeMax(r *certificatesv1beta1.PodCertificateRequest) time.Duration {
	return time.Duration(*r.Spec.MaxExpirationSeconds) * time.Second
}

// validateCertificateAnswer returns why a status is no answer to a request at a time.
func validateCertificateAnswer(r, old *certificatesv1beta1.PodCertificateRequest,
	now time.Time) string {
	status := &r.Status
	if invalid := validation.ValidateConditions(status.Conditions,
		field.NewPath("status", "conditions")); len(invalid) > 0 {
		return invalid.ToAggregate().Error()
	}
	switch {
	case len(old.Status.Conditions) > 0:
		if !equality.Semantic.DeepEqual(status, &old.Status) {
			return "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or " +
				"failed"
		}
		return ""
	case len(status.Conditions) != 1:
		return "status: Invalid value: want one condition"
	case !slices.Contains(answers, status.Conditions[0].Type):
		return "status.conditions[0].type: Unsupported value"
	case status.Conditions[0].Status != metav1.ConditionTrue:
		return "status.conditions[0].status: Unsupported value"
	case status.Conditions[0].Type == certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r, now)
	case status.CertificateChain != "" || status.NotBefore != nil || status.NotAfter != nil ||
		status.BeginRefreshAt != nil:
		return "status: Invalid value: non-condition status fields must be empty"
	}
	return ""
}

// validateIssued returns why a request was not issued as it has to be.
func validateIssued(r *certificatesv1beta1.PodCertificateRequest, now time.Time) string {
	status := &r.Status
	leaf, invalid := validateChain(status.CertificateChain)
	if invalid != "" {
		return "status.certificateChain: Invalid value: " + invalid
	}
	if status.NotBefore == nil || status.NotAfter == nil || status.BeginRefreshAt == nil {
		return "status: Required value: all timestamps must be set"
	}
	request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		panic("apiserver: a request was accepted that is none: " + err.Error())
	}
	from, until, renew := status.NotBefore.Time, status.NotAfter.Time, status.BeginRefreshAt.Time
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case !leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(request.PublicKey):
		return "status.certificateChain: Invalid value: not issued to the requested public key"
	case !leaf.NotBefore.Equal(from) || !leaf.NotAfter.Equal(until):
		return "status: Invalid value: timestamps differ from those of the leaf certificate"
	case from.Sub(now).Abs() > issuedWithin:
		return "status.notBefore: Invalid value: must be set to within 5 minutes of the current time"
	case lifetime < certificateLifetimeMin || lifetime > lifetimeMax(r):
		return "status.certificateChain: Invalid value: leaf certificate lifetime"
	case renew.Before(from.Add(renewalMargin)), renew.After(until.Add(-renewalMargin)):
		return "status.beginRefreshAt: Invalid value: must be in the range " +
			"[notBefore+10min, notAfter-10min]"
	}
	return ""
}

// validateChain returns the first certificate of a chain, or why the chain is none.
func validateChain(text string) (leaf *x509.Certificate, invalid string) {
	if len(text) > chainBytesMax {
		return nil, fmt.Sprintf("may not be more than %d bytes", chainBytesMax)
	}
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, "must consist entirely of CERTIFICATE PEM blocks"
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, "certificate does not parse as valid X.509"
		}
		if leaf == nil {
			leaf = certificate
		}
	}
	if leaf == nil {
		return nil, "must contain at least one certificate"
	}
	return leaf, ""
}
