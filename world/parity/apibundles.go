package parity

import (
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// bundleCases are rules for ClusterTrustBundles.
var bundleCases = []apiCase{
	{"a node can read all trust bundles and change none", bundlesAreReadOnlyForNodes},
	{"a trust bundle must contain certificates and be named after its signer", invalidBundles},
}

// Certificates of two authorities. Their private keys do not exist.
const (
	anchorA = `-----BEGIN CERTIFICATE-----
MIIBMDCB46ADAgECAhRvsrjcUgVK7Q7GWjYRa+GtrMQ3STAFBgMrZXAwDTELMAkG
A1UEAwwCYTEwIBcNMjYxMTIxMTM1MDM0WhgPMjEyNjEwMjgxMzUwMzRaMA0xCzAJ
BgNVBAMMAmExMCowBQYDK2VwAyEA6sGL51Lc3MxGMccQ8iAxHGug0koQJ/aM7nK9
QTl8VZqjUzBRMB0GA1UdDgQWBBRaiWHVvBHKoXIkZnzTRC5bls0OdDAfBgNVHSME
GDAWgBRaiWHVvBHKoXIkZnzTRC5bls0OdDAPBgNVHRMBAf8EBTADAQH/MAUGAytl
cANBABTApNgu2JP2nrWIUXzMCr0T5Vx6eiFwoe098Ipzq1EzdOVF2Kk1a0pAUdWu
uWj/IqzW96Tz/qnM4++Kz6JZ4AE=
-----END CERTIFICATE-----
`
	anchorB = `-----BEGIN CERTIFICATE-----
MIIBMDCB46ADAgECAhQMzWY7S24i9hJQWOyHaLUuqRXk4TAFBgMrZXAwDTELMAkG
A1UEAwwCYTIwIBcNMjYxMTIxMTM1MDM0WhgPMjEyNjEwMjgxMzUwMzRaMA0xCzAJ
BgNVBAMMAmEyMCowBQYDK2VwAyEAqsdFSotdXDsJhDjP6rpA7UXsv8+4M8a/t/ym
ziv892ujUzBRMB0GA1UdDgQWBBQct6y8kPSpds0RGDStYUICmBne4zAfBgNVHSME
GDAWgBQct6y8kPSpds0RGDStYUICmBne4zAPBgNVHRMBAf8EBTADAQH/MAUGAytl
cANBAEzM8jxehdme7sBK9kXqhjJSeOdUMdY4pEpCVV+6peBr17tW7Mu2U2Q4K/96
gBhvokkca9bxfl2+OO+p6LZILQE=
-----END CERTIFICATE-----
`
)

func trustBundle(name, signer, text string) *world.CreateObject {
	return &world.CreateObject{Object: world.Object{
		TrustBundle: &certificatesv1beta1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1beta1.ClusterTrustBundleSpec{
				SignerName: signer, TrustBundle: text}}}}
}

// patchBundle returns a patch of a trust bundle.
func (c *cluster) patchBundle(name, patch string, args ...any) *world.PatchObject {
	p := c.patch(world.ResourceTrustBundles, patch, args...)
	p.Namespace, p.Name = "", name
	return p
}

func (c *cluster) deleteBundle(name string) {
	deletion := c.deleteObject(world.ResourceTrustBundles, name, nil)
	deletion.Namespace = ""
	c.asAdmin(deletion)
}

func bundlesAreReadOnlyForNodes(c *cluster) {
	signers := "parity.test:" + c.name + ":a"
	w := c.watch(world.ResourceTrustBundles, "", "")
	w.expect("listed")
	c.asAdmin(trustBundle(c.name, "", anchorA))
	c.asAdmin(trustBundle(signers, "parity.test/"+c.name, anchorA+"\n"+anchorB))
	w.expect("listed", "changed "+c.name, "changed "+signers)
	c.asAdmin(c.patchBundle(c.name, `{"spec":{"trustBundle":%q}}`, anchorB))
	w.expect("listed", "changed "+c.name, "changed "+signers, "changed "+c.name)
	again := c.watch(world.ResourceTrustBundles, "", signers)
	again.expect("listed " + signers)
	read := &world.GetObject{Resource: world.ResourceTrustBundles, Name: c.name}
	bundle := c.asNode(read).TrustBundle
	c.check(bundle.Spec.TrustBundle == anchorB && bundle.Spec.SignerName == "", "read %v", bundle)
	c.nodeMustFail(world.KindRefused, c.patchBundle(c.name, `{"spec":{"trustBundle":%q}}`, anchorA))
	c.nodeMustFail(world.KindRefused, trustBundle(c.name+"-b", "", anchorA))
	c.deleteBundle(c.name)
	c.deleteBundle(signers)
	again.expect("listed "+signers, "gone "+signers)
}

func invalidBundles(c *cluster) {
	signer := "parity.test/" + c.name
	for _, bad := range []*world.CreateObject{
		trustBundle(c.name, "", ""), trustBundle(c.name, "", "no certificate"),
		trustBundle(c.name, "", anchorA+anchorA), trustBundle(c.name, signer, anchorA),
		trustBundle("parity.test:"+c.name+":a", "", anchorA),
	} {
		c.adminMustFail(world.KindInvalid, bad)
	}
	c.asAdmin(trustBundle(c.name, "", "# a comment\n"+anchorA))
	c.adminMustFail(world.KindInvalid, c.patchBundle(c.name, `{"spec":{"signerName":%q}}`, signer))
	c.adminMustFail(world.KindInvalid, c.patchBundle(c.name, `{"spec":{"trustBundle":"none"}}`))
	c.deleteBundle(c.name)
}
