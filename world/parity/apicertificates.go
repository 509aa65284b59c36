package parity

import (
	"encoding/base64"
	"strings"

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
}

// proof is a PKCS#10 request of an Ed25519 key, which does not exist any more.
const proof = "MH8wMwIBADAAMCowBQYDK2VwAyEAUzDNbIAXzSsoQRLlYPVJA2ukxvC/Vq2L" +
	"9j9GRX2MsoSgADAFBgMrZXADQQDiCzr3ZqRkpiZ1RoubKJ9fe6Ctdd4UWK6d" +
	"ERQLwgRerELQa1G3eRnOXI/lCSpZI7Wwc5UndGA7F6TD3vox6MYM"

// newRequest returns the creation of a request for a pod of the case, which is created with it.
func (c *cluster) newRequest() *world.CreateObject {
	pod := c.asAdmin(c.newPod(func(p *v1.Pod) { p.Spec.ServiceAccountName = c.name })).Pod
	account := c.asAdmin(c.get(world.ResourceServiceAccounts, c.name)).ServiceAccount
	node := c.asAdmin(&world.GetObject{Resource: world.ResourceNodes, Name: c.w.Node()}).Node
	der, err := base64.StdEncoding.DecodeString(proof)
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
