package e2e

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1beta1"
)

// The signers of podSigner.
const (
	issuingSigner = "town.test/issues"
	denyingSigner = "town.test/denies"
)

// The API server accepts these times of a certificate at the earliest: it is valid since at most
// five minutes, for an hour at least, and is renewed ten minutes from its beginning or later. So it
// is due five minutes after it was issued. A quarter of a minute is for a busy machine.
const (
	podCertificateBackdated = 4*time.Minute + 45*time.Second
	podCertificateLifetime  = time.Hour
	podCertificateRenewal   = 10 * time.Minute
)

// podSigner answers PodCertificateRequests: it issues those of one signer and denies those of
// another one.
type podSigner struct {
	roots        *x509.CertPool
	intermediate *x509.Certificate
	key          crypto.Signer // of the intermediate
	isOnHold     atomic.Bool   // answers nothing
	requests     certificatesclient.PodCertificateRequestInterface
	mu           sync.Mutex
	problems     []string // what it was asked for and cannot do
	nextSerial   int64
}

// newPodSigner starts a signer that runs until the test ends.
func newPodSigner(t *testing.T, api kubernetes.Interface) *podSigner {
	t.Helper()
	s := &podSigner{roots: x509.NewCertPool(),
		requests: api.CertificatesV1beta1().PodCertificateRequests(testNamespace)}
	rootKey, root := s.newAuthority(t, "root", nil, nil)
	s.roots.AddCert(root)
	s.key, s.intermediate = s.newAuthority(t, "intermediate", root, rootKey)
	go s.run(t.Context())
	return s
}

// newAuthority returns the key and certificate of a new CA. Without a parent it is a root.
func (s *podSigner) newAuthority(t *testing.T, name string, parent *x509.Certificate,
	parentKey crypto.Signer) (crypto.Signer, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: s.serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, certificate
}

func (s *podSigner) serial() *big.Int {
	s.nextSerial++
	return big.NewInt(s.nextSerial)
}

// run answers the requests that have no answer, as long as the test runs. It lists them, which goes
// on by itself when the API server was killed.
func (s *podSigner) run(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		list, err := s.requests.List(ctx, metav1.ListOptions{})
		if err != nil || s.isOnHold.Load() {
			continue // a part of the test kills the API server
		}
		for i := range list.Items {
			if request := &list.Items[i]; len(request.Status.Conditions) == 0 {
				s.answer(ctx, request)
			}
		}
	}
}

// answer answers a request.
func (s *podSigner) answer(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) {
	condition := metav1.Condition{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Welcome",
		LastTransitionTime: metav1.Now()}
	switch r.Spec.SignerName {
	case denyingSigner:
		condition.Type, condition.Reason, condition.Message = "Denied", "Closed", "the town is full"
	case issuingSigner:
		if err := s.issue(r); err != nil {
			s.note(r, err)
			return
		}
	default:
		return
	}
	r.Status.Conditions = []metav1.Condition{condition}
	_, err := s.requests.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		s.note(r, err)
	}
}

// issue sets the certificate of a request. It is for the key that has signed the proof.
func (s *podSigner) issue(r *certificatesv1beta1.PodCertificateRequest) error {
	proof, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	if err := proof.CheckSignature(); err != nil {
		return err
	}
	from := time.Now().Add(-podCertificateBackdated).UTC().Truncate(time.Second)
	until := from.Add(podCertificateLifetime)
	leaf := &x509.Certificate{SerialNumber: s.serial(), NotBefore: from, NotAfter: until,
		Subject:  pkix.Name{CommonName: r.Spec.ServiceAccountName},
		DNSNames: []string{podCertificateName(r.Spec.PodName)}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.intermediate, proof.PublicKey, s.key)
	if err != nil {
		return err
	}
	for _, certificate := range [][]byte{der, s.intermediate.Raw} {
		r.Status.CertificateChain += string(pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	}
	r.Status.NotBefore, r.Status.NotAfter = &metav1.Time{Time: from}, &metav1.Time{Time: until}
	r.Status.BeginRefreshAt = &metav1.Time{Time: from.Add(podCertificateRenewal)}
	return nil
}

// podCertificateName returns the DNS name in the certificates of a pod.
func podCertificateName(pod string) string { return pod + ".town.test" }

func (s *podSigner) note(r *certificatesv1beta1.PodCertificateRequest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf("%s of %s: %v", r.Name, r.Spec.PodName, err))
}

// checkProblems checks that the signer could answer all requests.
func (s *podSigner) checkProblems(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, problem := range s.problems {
		t.Error(problem)
	}
}

// requestsOf returns the requests of a pod, the oldest first.
func (s *podSigner) requestsOf(t *testing.T,
	pod string) []certificatesv1beta1.PodCertificateRequest {
	t.Helper()
	list, err := s.requests.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(list.Items, func(r certificatesv1beta1.PodCertificateRequest) bool {
		return r.Spec.PodName != pod
	})
	slices.SortFunc(found, func(x, y certificatesv1beta1.PodCertificateRequest) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	})
	return found
}

// chainOf returns the chain that was issued for a request; empty while there is none.
func (s *podSigner) chainOf(t *testing.T, name string) string {
	t.Helper()
	request, err := s.requests.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.CertificateChain
}
