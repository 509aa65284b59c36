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

const trusting = `apiVersion: v1
kind: Pod
metadata: {name: trusting, namespace: town, labels: {app: trusting}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    args: [hold, WITNESS, trusting]
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

// trust mounts the cluster's trust bundles: one by its name, those of a signer, and one that there
// is not. What is added to them arrives.
func (c *town) trust(t *testing.T) {
	root, one, two := anchor(t, "root"), anchor(t, "one"), anchor(t, "two")
	c.apply(t, bundle("town-root", "", "# a comment\n"+root)+
		bundle("town.test:mesh:a", "town.test/mesh", one)+
		bundle("town.test:mesh:b", "town.test/mesh", one+two)+trusting)
	c.until(t, late, "the pod is ready", func() bool { return podReady(c.pod(t, "trusting")) })
	const rootPath, meshPath = "/trust/root.pem", "/trust/mesh/anchors.pem"
	const nonePath = "/trust/none.pem"
	pod := c.pod(t, "trusting")
	f := c.report(t, pod, rootPath, meshPath, nonePath)
	mesh := f.Paths[meshPath].Text
	if f.Paths[rootPath].Text != root || mesh != one+two && mesh != two+one {
		t.Errorf("the anchors are %+v", f.Paths)
	}
	if none := f.Paths[nonePath]; none.Text != "" || none.Problem != "" {
		t.Errorf("of a bundle that there is not there is %+v", none)
	}
	c.apply(t, bundle("town-root", "", root+two)+bundle("town-none", "", one))
	c.until(t, soon, "the change and the new bundle have arrived", func() bool {
		f := c.report(t, pod, rootPath, nonePath)
		got := f.Paths[rootPath].Text
		return (got == root+two || got == two+root) && f.Paths[nonePath].Text == one
	})
	c.kubectl(t, "delete", "pod", "trusting", "--wait=false")
}

// bundle is the manifest of a trust bundle.
func bundle(name, signer, text string) string {
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

// anchor is the certificate of an authority that is made for it.
func anchor(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
