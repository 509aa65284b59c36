package sim

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"math/rand/v2"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The controllers of the cluster that act on requests for certificates of pods: the signers of the
// plan, the garbage collector, and the cleaner, which deletes old requests whatever their answer is
// (pkg/controller/certificates/cleaner).

const (
	signerPeriod     = 200 * time.Millisecond
	requestAgeMax    = 15 * time.Minute
	certificateValid = time.Hour
	// A certificate is valid since a while before it is issued, so it is soon due.
	certificateBackdated = 4 * time.Minute
	renewalEarliest      = 10 * time.Minute // from the beginning of its validity
	renewalSpread        = 2 * time.Minute
)

// signers is the state of these controllers.
type signers struct {
	rng     *rand.Rand
	key     ed25519.PrivateKey // of all authorities
	serial  int64
	proof   []byte               // the request of a user, for a key that is none of a pod
	plans   map[string]signing   // by the UID of a request
	answers map[signingKey]int64 // how many requests of a pod a signer has seen
}

// signing is what happens to a request, and when.
type signing struct {
	at     time.Time
	answer string // SignerSilent: nothing
	delete bool
	// replace is set if a user puts another request into its place.
	replace bool
	signer  *plan.Signer // nil: no signer has this name
}

type signingKey struct{ podUID, signer string }

// startSigners starts the controllers, if a plan has signers.
func (r *run) startSigners() {
	if len(r.plan.Signers) == 0 {
		return
	}
	rng := wire.Stream(r.plan.Seed, "signers")
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(rng.Uint32())
	}
	r.signers = signers{rng: rng, key: ed25519.NewKeyFromSeed(seed), plans: map[string]signing{},
		answers: map[signingKey]int64{}}
	proof, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, r.signers.key)
	if err != nil {
		panic("sim: cannot make a request of a user: " + err.Error())
	}
	r.signers.proof = proof
	var reconcile func()
	reconcile = func() {
		for _, o := range r.server.Objects(world.ResourcePodCertificateRequests) {
			r.answerRequest(o.CertificateRequest)
		}
		r.agenda.After(signerPeriod, reconcile)
	}
	r.agenda.After(signerPeriod, reconcile)
}

// answerRequest takes what step is due for a request.
func (r *run) answerRequest(request *certificatesv1beta1.PodCertificateRequest) {
	now, uid := r.agenda.Now(), string(request.UID)
	pod := r.server.Object(world.ResourcePods, request.Namespace, request.Spec.PodName).Pod
	next, isPlanned := r.signers.plans[uid]
	if !isPlanned {
		next = r.planAnswer(request)
		r.signers.plans[uid] = next
	}
	deleteBy := ""
	switch {
	case pod == nil || pod.UID != request.Spec.PodUID:
		deleteBy = "garbage collector"
	case now.Sub(request.CreationTimestamp.Time) > requestAgeMax:
		deleteBy = "cleaner"
	case now.Before(next.at) || len(request.Status.Conditions) > 0,
		next.signer != nil && next.signer.IsAway(plan.Duration(now.Sub(plan.Start))):
		return
	case next.delete, next.replace:
		deleteBy = "somebody"
	}
	if deleteBy != "" {
		r.adminWrite(deleteBy, &world.DeleteObject{Resource: world.ResourcePodCertificateRequests,
			Namespace: request.Namespace, Name: request.Name, UID: uid})
		if next.replace && deleteBy == "somebody" {
			r.replaceRequest(request)
		}
		return
	}
	r.sign(request, next.answer)
}

// replaceRequest creates another request in the place of one that was deleted, for the same pod, by
// which a user would give the pod a certificate for a key of his own.
func (r *run) replaceRequest(request *certificatesv1beta1.PodCertificateRequest) {
	other := &certificatesv1beta1.PodCertificateRequest{Spec: *request.Spec.DeepCopy()}
	other.Namespace, other.Name = request.Namespace, request.Name
	other.OwnerReferences = request.OwnerReferences
	other.Spec.StubPKCS10Request = r.signers.proof
	r.adminWrite("somebody", &world.CreateObject{Object: world.Object{CertificateRequest: other}})
}

// planAnswer draws what happens to a request.
func (r *run) planAnswer(request *certificatesv1beta1.PodCertificateRequest) signing {
	s := &r.signers
	key := signingKey{string(request.Spec.PodUID), request.Spec.SignerName}
	s.answers[key]++
	for i := range r.plan.Signers {
		signer := &r.plan.Signers[i]
		if signer.Name == request.Spec.SignerName {
			delay := time.Duration(s.rng.Int64N(int64(signer.Within) + 1))
			drawn := signing{at: r.agenda.Now().Add(delay), answer: signer.AnswerTo(s.answers[key] == 1),
				delete: s.rng.Float64() < signer.Deleted, signer: signer}
			drawn.replace = signer.Replaced > 0 && !bytes.Equal(request.Spec.StubPKCS10Request, s.proof) &&
				s.rng.Float64() < signer.Replaced
			return drawn
		}
	}
	return signing{answer: plan.SignerSilent}
}

// sign gives a request its answer.
func (r *run) sign(request *certificatesv1beta1.PodCertificateRequest, answer string) {
	if answer == plan.SignerSilent {
		return
	}
	now := metav1.NewTime(r.agenda.Now().Truncate(time.Second))
	status := certificatesv1beta1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{
		Type: answer, Status: metav1.ConditionTrue, Reason: "Planned", Message: "100% by the plan",
		LastTransitionTime: now}}}
	if answer == plan.SignerIssues {
		from := now.Add(-certificateBackdated)
		renew := from.Add(renewalEarliest + time.Duration(r.signers.rng.Int64N(int64(renewalSpread))))
		status.NotBefore, status.NotAfter = &metav1.Time{Time: from},
			&metav1.Time{Time: from.Add(certificateValid)}
		status.BeginRefreshAt = &metav1.Time{Time: renew.Truncate(time.Second).Add(time.Second)}
		status.CertificateChain = r.issueChain(request, from)
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		panic("sim: cannot encode an answer to a request: " + err.Error())
	}
	r.adminWrite("signer", &world.PatchObject{Resource: world.ResourcePodCertificateRequests,
		Namespace: request.Namespace, Name: request.Name, Status: true, Patch: patch})
}

// issueChain returns a certificate for a request and that of its authority, with a text before
// each, as some tools write it.
func (r *run) issueChain(request *certificatesv1beta1.PodCertificateRequest,
	from time.Time) string {
	parsed, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil {
		panic("sim: the server has accepted a request that is none: " + err.Error())
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from,
		NotAfter: from.Add(certificateValid), IsCA: true, BasicConstraintsValid: true}
	r.signers.serial++
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1 + r.signers.serial), NotBefore: from,
		NotAfter: from.Add(certificateValid), DNSNames: []string{string(request.Spec.PodUID)}}
	chain := ""
	for _, c := range []struct {
		template *x509.Certificate
		public   any
	}{{leaf, parsed.PublicKey}, {authority, r.signers.key.Public()}} {
		// Without a source of randomness the signature follows from the key.
		der, err := x509.CreateCertificate(nil, c.template, authority, c.public, r.signers.key)
		if err != nil {
			panic("sim: cannot issue a certificate: " + err.Error())
		}
		chain += "a certificate:\n" +
			string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return chain
}
