package parity

import (
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// bundleCases are about bundles of trust anchors.
var bundleCases = []apiCase{
	{"a node sees every trust bundle, and changes none", bundlesSeen},
	{"a trust bundle holds certificates, and is called after its signer", badBundles},
}

// Two authorities; their keys are nowhere.
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

// onBundle is a patch that gives a bundle another text.
func (c *cluster) onBundle(name, patch string, args ...any) *world.PatchObject {
	p := c.change(world.ResourceTrustBundles, patch, args...)
	p.Namespace, p.Name = "", name
	return p
}

func (c *cluster) dropBundle(name string) {
	drop := c.deletion(world.ResourceTrustBundles, name, nil)
	drop.Namespace = ""
	c.admin(drop)
}

func bundlesSeen(c *cluster) {
	signers := "parity.test:" + c.name + ":a"
	w := c.watch(world.ResourceTrustBundles, "", "")
	w.tells("listed")
	c.admin(trustBundle(c.name, "", anchorA))
	c.admin(trustBundle(signers, "parity.test/"+c.name, anchorA+"\n"+anchorB))
	w.tells("listed", "changed "+c.name, "changed "+signers)
	c.admin(c.onBundle(c.name, `{"spec":{"trustBundle":%q}}`, anchorB))
	w.tells("listed", "changed "+c.name, "changed "+signers, "changed "+c.name)
	again := c.watch(world.ResourceTrustBundles, "", signers)
	again.tells("listed " + signers)
	read := &world.GetObject{Resource: world.ResourceTrustBundles, Name: c.name}
	is := c.node(read).TrustBundle
	c.check(is.Spec.TrustBundle == anchorB && is.Spec.SignerName == "", "read %v", is)
	c.nodeFails(world.KindRefused, c.onBundle(c.name, `{"spec":{"trustBundle":%q}}`, anchorA))
	c.nodeFails(world.KindRefused, trustBundle(c.name+"-b", "", anchorA))
	c.dropBundle(c.name)
	c.dropBundle(signers)
	again.tells("listed "+signers, "gone "+signers)
}

func badBundles(c *cluster) {
	signer := "parity.test/" + c.name
	for _, bad := range []*world.CreateObject{
		trustBundle(c.name, "", ""), trustBundle(c.name, "", "no certificate"),
		trustBundle(c.name, "", anchorA+anchorA), trustBundle(c.name, signer, anchorA),
		trustBundle("parity.test:"+c.name+":a", "", anchorA),
	} {
		c.adminFails(world.KindInvalid, bad)
	}
	c.admin(trustBundle(c.name, "", "# a comment\n"+anchorA))
	c.adminFails(world.KindInvalid, c.onBundle(c.name, `{"spec":{"signerName":%q}}`, signer))
	c.adminFails(world.KindInvalid, c.onBundle(c.name, `{"spec":{"trustBundle":"none"}}`))
	c.dropBundle(c.name)
}
