package parity

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/world"
)

// certificateCases are rules for requests for certificates of pods (KEP-4317).
var certificateCases = []apiCase{
	{"a node requests certificates for its own pods only", certificateRequestRules},
	{"the answer to a request for a certificate is final", certificateAnswers},
	{"a request is issued with a chain for its key, and with the dates of the chain", issuedRules},
}

// certificateKey is the key of the requests of the cases and of their signer.
var certificateKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte("k"), ed25519.SeedSize))

// newRequest returns the creation of a request for a pod of the case, which is created with it.
func (c *cluster) newRequest() *world.CreateObject {
	pod := c.asAdmin(c.newPod(func(p *v1.Pod) { p.Spec.ServiceAccountName = c.name })).Pod
	account := c.asAdmin(c.get(world.ResourceServiceAccounts, c.name)).ServiceAccount
	node := c.asAdmin(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, certificateKey)
	c.check(err == nil, "%v", err)
	r := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: c.meta(),
		Spec: certificatesv1beta1.PodCertificateRequestSpec{SignerName: "parity.test/signer",
			PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: account.Name,
			ServiceAccountUID: account.UID, NodeName: types.NodeName(c.w.Node()), NodeUID: node.UID,
			MaxExpirationSeconds: new(int32(3600)), StubPKCS10Request: der}}
	return &world.CreateObject{Object: world.Object{CertificateRequest: r}}
}

// changed returns a creation of a request with a change.
func changed(m *world.CreateObject,
	change func(*certificatesv1beta1.PodCertificateRequestSpec)) *world.CreateObject {
	r := m.Object.CertificateRequest.DeepCopy()
	change(&r.Spec)
	return &world.CreateObject{Object: world.Object{CertificateRequest: r}}
}

// createAccount creates the service account of the case.
func (c *cluster) createAccount() {
	c.asAdmin(&world.CreateObject{Object: world.Object{ServiceAccount: &v1.ServiceAccount{
		ObjectMeta: c.meta()}}})
	c.Cleanup(func() {
		_, _ = c.w.Admin(c.deleteObject(world.ResourceServiceAccounts, c.name, nil))
		_, _ = c.w.Admin(c.deleteObject(world.ResourcePodCertificateRequests, c.name, nil))
	})
}

func certificateRequestRules(c *cluster) {
	c.createAccount()
	w := c.watch(world.ResourcePodCertificateRequests, "", "")
	w.expect("listed")
	request := c.newRequest()
	type spec = certificatesv1beta1.PodCertificateRequestSpec
	for _, test := range []struct {
		kind   world.ErrorKind
		change func(*spec)
	}{
		{world.KindRefused, func(s *spec) { s.NodeName = "another-node" }},
		{world.KindInvalid, func(s *spec) { s.MaxExpirationSeconds = new(int32(60)) }},
	} {
		c.eventually("the request fails as "+string(test.kind), func() bool { // informers lag behind
			_, err := c.w.Call(changed(request, test.change))
			return err.Has(test.kind)
		})
	}
	for i, change := range []func(*spec){
		func(s *spec) { s.NodeUID = "x" }, func(s *spec) { s.PodUID = "x" },
		func(s *spec) { s.ServiceAccountUID = "x" },
	} {
		_, err := c.w.Call(changed(request, change))
		c.check(err != nil && !err.Has(world.KindRefused) && !err.Has(world.KindInvalid),
			"wrong UID %d: %v", i, err)
	}
	created := c.asNode(request).CertificateRequest
	c.check(created.UID != "" && len(created.Status.Conditions) == 0, "created %v", created)
	c.nodeMustFail(world.KindExists, request)
	w.expect("listed", "changed "+c.name)
	deletion := c.deleteObject(world.ResourcePodCertificateRequests, c.name, nil)
	c.nodeMustFail(world.KindRefused, deletion)
	c.nodeMustFail(world.KindRefused, c.answerRequest("Denied"))
	c.asAdmin(deletion)
	w.expect("listed", "changed "+c.name, "gone "+c.name)
}

// answerRequest returns a patch that gives the request of the case a condition.
func (c *cluster) answerRequest(condition string) *world.PatchObject {
	p := c.patch(world.ResourcePodCertificateRequests, `{"status":{"conditions":[{"type":%q,`+
		`"status":"True","reason":"Parity","message":"m","lastTransitionTime":`+
		`"2026-01-01T00:00:00Z"}]}}`, condition)
	p.Status = true
	return p
}

func certificateAnswers(c *cluster) {
	c.createAccount()
	request := c.newRequest()
	c.eventually("the request is created", func() bool {
		_, err := c.w.Call(request)
		return err == nil || err.Has(world.KindExists)
	})
	c.adminMustFail(world.KindInvalid, c.answerRequest("Issued")) // without a certificate
	c.adminMustFail(world.KindInvalid, c.answerRequest("Other"))
	denied := c.asAdmin(c.answerRequest("Denied")).CertificateRequest
	c.check(denied.Status.Conditions[0].Reason == "Parity", "%v", denied.Status)
	c.adminMustFail(world.KindInvalid, c.answerRequest("Failed"))
	read := c.asNode(c.get(world.ResourcePodCertificateRequests, c.name)).CertificateRequest
	c.check(strings.Contains(read.Status.Conditions[0].Type, "Denied") &&
		read.Status.Conditions[0].Status == metav1.ConditionTrue, "%v", read.Status)
}

// issue is what a signer answers: a leaf with a lifetime, and a status.
type issue struct {
	from     time.Time
	lifetime time.Duration
	key      crypto.PublicKey // of the leaf
	status   certificatesv1beta1.PodCertificateRequestStatus
}

// newIssue returns an answer that is valid for a while, and what a change makes of it: before the
// chain is made, the lifetime and key; then the status.
func (c *cluster) newIssue(now time.Time, before func(*issue), after func(*issue)) any {
	i := &issue{from: now, lifetime: time.Hour, key: certificateKey.Public()}
	if before != nil {
		before(i)
	}
	until := i.from.Add(i.lifetime)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: i.from, NotAfter: until}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: i.from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, i.key, certificateKey)
	c.check(err == nil, "%v", err)
	i.status = certificatesv1beta1.PodCertificateRequestStatus{
		CertificateChain: "text\n" + pemOf("CERTIFICATE", der),
		NotBefore:        &metav1.Time{Time: i.from}, NotAfter: &metav1.Time{Time: until},
		BeginRefreshAt: &metav1.Time{Time: i.from.Add(30 * time.Minute)},
		Conditions: []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Parity",
			LastTransitionTime: metav1.Time{Time: now}}}}
	if after != nil {
		after(i)
	}
	status, err := json.Marshal(map[string]any{"status": i.status})
	c.check(err == nil, "%v", err)
	return &world.PatchObject{Resource: world.ResourcePodCertificateRequests,
		Namespace: c.w.Namespace(), Name: c.name, Status: true, Patch: status}
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func issuedRules(c *cluster) {
	c.createAccount()
	creation := c.newRequest()
	c.eventually("the request is created", func() bool {
		_, err := c.w.Call(creation)
		return err == nil || err.Has(world.KindExists)
	})
	created := c.asAdmin(c.get(world.ResourcePodCertificateRequests, c.name)).CertificateRequest
	now := created.CreationTimestamp.Time.UTC() // by the server's clock
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte("o"), ed25519.SeedSize)).Public()
	for what, before := range map[string]func(*issue){ //ordered: each is refused by itself
		"another key":         func(i *issue) { i.key = other },
		"a long ago":          func(i *issue) { i.from = now.Add(-20 * time.Minute) },
		"in a while":          func(i *issue) { i.from = now.Add(20 * time.Minute) },
		"a short lifetime":    func(i *issue) { i.lifetime -= time.Second },
		"more than asked for": func(i *issue) { i.lifetime += time.Second },
	} {
		_, err := c.w.Admin(c.newIssue(now, before, nil))
		c.check(err.Has(world.KindInvalid), "issued for %s: %v", what, err)
	}
	later := func(t **metav1.Time, by time.Duration) { *t = &metav1.Time{Time: (*t).Add(by)} }
	for what, after := range map[string]func(*issue){ //ordered: each is refused by itself
		"another notBefore": func(i *issue) { later(&i.status.NotBefore, time.Second) },
		"another notAfter":  func(i *issue) { later(&i.status.NotAfter, -time.Second) },
		"no notBefore":      func(i *issue) { i.status.NotBefore = nil },
		"no notAfter":       func(i *issue) { i.status.NotAfter = nil },
		"no beginRefreshAt": func(i *issue) { i.status.BeginRefreshAt = nil },
		"an early refresh":  func(i *issue) { later(&i.status.BeginRefreshAt, -21*time.Minute) },
		"a late refresh":    func(i *issue) { later(&i.status.BeginRefreshAt, 21*time.Minute) },
		"no chain":          func(i *issue) { i.status.CertificateChain = "" },
		"a key in the chain": func(i *issue) {
			i.status.CertificateChain += pemOf("PRIVATE KEY", []byte("k"))
		},
		"an odd second one": func(i *issue) {
			i.status.CertificateChain += pemOf("CERTIFICATE", []byte("c"))
		},
		"a long chain": func(i *issue) {
			i.status.CertificateChain += strings.Repeat("x", 100<<10)
		},
		"no reason":            func(i *issue) { i.status.Conditions[0].Reason = "" },
		"a condition of False": func(i *issue) { i.status.Conditions[0].Status = metav1.ConditionFalse },
		"a denial with a chain": func(i *issue) {
			i.status.Conditions[0].Type = certificatesv1beta1.PodCertificateRequestConditionTypeDenied
		},
	} {
		_, err := c.w.Admin(c.newIssue(now, nil, after))
		c.check(err.Has(world.KindInvalid), "issued with %s: %v", what, err)
	}
	valid := func(i *issue) { i.status.CertificateChain += i.status.CertificateChain + "text" }
	issued := c.asAdmin(c.newIssue(now, nil, valid)).CertificateRequest
	c.check(len(issued.Status.Conditions) == 1, "issued: %v", issued.Status)
}
