package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

const trustBundlePod = `apiVersion: v1
kind: Pod
metadata: {name: trusting, namespace: town, labels: {app: trusting}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    args: [hold, RECORDER, trusting]
    volumeMounts: [{name: trust, mountPath: /trust}]
  volumes:
  - name: trust
    projected:
      sources:
      - {clusterTrustBundle: {name: town-root, path: root.pem}}
      - clusterTrustBundle:
          signerName: town.test/mesh
          labelSelector: {matchLabels: {live: "yes"}}
          path: mesh/anchors.pem
      - {clusterTrustBundle: {name: town-none, path: none.pem, optional: true}}
`

// testTrustBundles mounts ClusterTrustBundles: one by its name, those of a signer, and an optional
// one that does not exist. Changes and new bundles arrive in the volume.
func (c *clusterSuite) testTrustBundles(t *testing.T) {
	root, one, two := newTrustAnchor(t, "root"), newTrustAnchor(t, "one"), newTrustAnchor(t, "two")
	c.apply(t, trustBundleManifest("town-root", "", "# a comment\n"+root)+
		trustBundleManifest("town.test:mesh:a", "town.test/mesh", one)+
		trustBundleManifest("town.test:mesh:b", "town.test/mesh", one+two)+trustBundlePod)
	c.waitUntil(t, "the pod is ready", func() bool {
		return isPodReady(c.apiPod(t, "trusting"))
	})
	const rootPath, meshPath = "/trust/root.pem", "/trust/mesh/anchors.pem"
	const nonePath = "/trust/none.pem"
	pod := c.apiPod(t, "trusting")
	r := c.runReport(t, pod, rootPath, meshPath, nonePath)
	mesh := r.Paths[meshPath].Text
	if r.Paths[rootPath].Text != root || mesh != one+two && mesh != two+one {
		t.Errorf("the anchors are %+v", r.Paths)
	}
	if none := r.Paths[nonePath]; none.Text != "" || none.Problem != "" {
		t.Errorf("the file of the missing bundle is %+v, want an empty one", none)
	}
	c.apply(t, trustBundleManifest("town-root", "", root+two)+
		trustBundleManifest("town-none", "", one))
	c.waitUntil(t, "the change and the new bundle have arrived", func() bool {
		r := c.runReport(t, pod, rootPath, nonePath)
		got := r.Paths[rootPath].Text
		return (got == root+two || got == two+root) && r.Paths[nonePath].Text == one
	})
	c.kubectl(t, "delete", "pod", "trusting", "--wait=false")
}

// trustBundleManifest returns the manifest of a ClusterTrustBundle.
func trustBundleManifest(name, signer, text string) string {
	indented := strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ")
	return fmt.Sprintf(`apiVersion: certificates.k8s.io/v1beta1
kind: ClusterTrustBundle
metadata: {name: %q, labels: {live: "yes"}}
spec:
  signerName: %q
  trustBundle: |
    %s
---
`, name, signer, indented)
}

// newTrustAnchor returns the certificate of a new CA in PEM form.
func newTrustAnchor(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
