package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bundleCount is the number of sources of the pod that has certificates, beside the one with two
// files. Each is renewed within five minutes after beginRefreshAt, by chance, so the first of them
// is soon: within a minute in 97 of 100 runs.
const bundleCount = 15

// certifiedPod returns the manifest of a pod with a volume of certificates. The first source has
// the key and the chain in two files, the others have both in one.
func certifiedPod(name, signer string, bundles int) string {
	var sources strings.Builder
	for i := range bundles {
		fmt.Fprintf(&sources, "      - podCertificate: {signerName: %s, keyType: ED25519, "+
			"credentialBundlePath: %s, maxExpirationSeconds: 3600}\n", signer, bundleName(i))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: town, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    args: [hold, RECORDER, %[1]s]
    volumeMounts: [{name: identity, mountPath: /identity}]
  volumes:
  - name: identity
    projected:
      sources:
      - podCertificate: {signerName: %[2]s, keyType: ECDSAP256, keyPath: key.pem,
          certificateChainPath: chain.pem, maxExpirationSeconds: 3600}
%[3]s---
`, name, signer, sources.String())
}

func bundleName(i int) string { return fmt.Sprintf("bundle/%d.pem", i) }

// testCertificatesIssued creates a pod with certificates (KEP-4317), and one whose request is
// denied, which has an Event. testCertificatesRenewed goes on with the first of them, once it had
// the time.
func (c *clusterSuite) testCertificatesIssued(t *testing.T, signer *podSigner) {
	c.apply(t, certifiedPod("certified", issuingSigner, bundleCount)+
		certifiedPod("unwanted", denyingSigner, 0))
	c.waitUntil(t, "the pod with certificates is ready", func() bool {
		return isPodReady(c.apiPod(t, "certified"))
	})
	c.readCertificates(t, signer)
	if n := len(signer.requestsOf(t, "certified")); n != bundleCount+1 {
		t.Errorf("%d requests for %d sources", n, bundleCount+1)
	}
	for _, want := range []string{
		`Denied: PodCertificateRequest town/`, `was denied, reason="Closed", message="the town is full"`,
		`FailedMount: `, `PodCertificateRequest was permanently denied: reason="Closed" ` +
			`message="the town is full"`,
	} {
		c.waitUntil(t, "the events of the denied pod have "+want, func() bool {
			return strings.Contains(c.eventText(t, "unwanted"), want)
		})
	}
	if n := len(signer.requestsOf(t, "unwanted")); n != 1 {
		t.Errorf("the pod that was denied made %d requests", n)
	}
	c.kubectl(t, "delete", "pod", "unwanted", "--wait=false")
	signer.checkProblems(t)
}

// testCertificatesRenewed waits until the agent renews a certificate: five minutes, of which the
// parts since testCertificatesIssued have taken half. None of them restarts the agent, which would
// make requests: those that do come later. The file of the running container is replaced, and the
// container is not restarted, by that nor by a kill of the agent.
func (c *clusterSuite) testCertificatesRenewed(t *testing.T, signer *podSigner) {
	container := onlyContainerID(c.apiPod(t, "certified").Status.ContainerStatuses)
	requests := signer.requestsOf(t, "certified")
	due := requests[0].Status.BeginRefreshAt.Time
	for i := range requests[:bundleCount+1] {
		if at := requests[i].Status.BeginRefreshAt.Time; at.Before(due) {
			due = at
		}
	}
	t.Logf("the first certificate is due in %.0f s", time.Until(due).Seconds())
	time.Sleep(time.Until(due))
	c.waitUntil(t, "a certificate is renewed", func() bool {
		requests = signer.requestsOf(t, "certified")
		return len(requests) > bundleCount+1
	})
	renewal := &requests[bundleCount+1]
	if renewal.CreationTimestamp.Time.Before(due) {
		t.Errorf("it is renewed at %v, due at %v", renewal.CreationTimestamp, due)
	}
	c.waitUntil(t, "its file is replaced", func() bool {
		return slices.Contains(slices.Collect(maps.Values(c.readCertificates(t, signer))),
			signer.chainOf(t, renewal.Name))
	})
	c.checkKeysLost(t, signer)
	pod := c.apiPod(t, "certified")
	if now := onlyContainerID(pod.Status.ContainerStatuses); now != container ||
		totalRestarts(pod) != 0 {
		t.Errorf("the container is %s after %d restarts, want %s", now, totalRestarts(pod), container)
	}
	c.kubectl(t, "delete", "pod", "certified", patience)
	signer.checkProblems(t)
}

// checkKeysLost kills the agent, which has the keys in its memory only. It makes one request for
// each source, and the files stay as they are until the signer answers.
func (c *clusterSuite) checkKeysLost(t *testing.T, signer *podSigner) {
	signer.isOnHold.Store(true)
	c.agent.signalAndWait(t, syscall.SIGKILL)
	before := c.readCertificates(t, signer)
	earlier := len(signer.requestsOf(t, "certified"))
	c.agent.start(t)
	c.waitUntil(t, "all certificates are requested again", func() bool {
		return len(signer.requestsOf(t, "certified")) >= earlier+bundleCount+1
	})
	time.Sleep(quietPeriod)
	if n := len(signer.requestsOf(t, "certified")) - earlier; n != bundleCount+1 {
		t.Errorf("%d requests for %d sources after a kill of the agent", n, bundleCount+1)
	}
	if now := c.readCertificates(t, signer); !maps.Equal(now, before) {
		t.Errorf("the files have changed without an answer of the signer: %v, before %v", now, before)
	}
	signer.isOnHold.Store(false)
	c.waitUntil(t, "all files are replaced", func() bool {
		now := c.readCertificates(t, signer)
		for path, chain := range before {
			if now[path] == chain {
				return false
			}
		}
		return true
	})
}

// readCertificates returns the chains in the files of the pod with certificates, by their paths. It
// checks that each leaf is for the key beside it, and was issued for the pod by the signer.
func (c *clusterSuite) readCertificates(t *testing.T, signer *podSigner) map[string]string {
	t.Helper()
	const dir, keyPath, chainPath = "/identity/", "/identity/key.pem", "/identity/chain.pem"
	paths := []string{keyPath, chainPath}
	for i := range bundleCount {
		paths = append(paths, dir+bundleName(i))
	}
	texts := map[string]string{}
	found := c.runReport(t, c.apiPod(t, "certified"), paths...).Paths
	for path, file := range found {
		texts[path] = file.Text
	}
	again := c.runReport(t, c.apiPod(t, "certified"), keyPath).Paths[keyPath].Text
	if again != texts[keyPath] { // both files were replaced between the two
		return c.readCertificates(t, signer)
	}
	texts[chainPath] = texts[keyPath] + texts[chainPath]
	delete(texts, keyPath)
	for path, text := range texts { //ordered: each is checked by itself
		chain, err := signer.verify(text, "certified")
		if err != nil {
			t.Fatalf("%s: %v\n%+v", path, err, found)
		}
		texts[path] = chain
	}
	return texts
}

// verify checks a credential bundle of a pod, and returns the chain in it.
func (s *podSigner) verify(bundle, pod string) (string, error) {
	if !strings.HasPrefix(bundle, "-----BEGIN PRIVATE KEY-----") {
		return "", errors.New("it does not begin with a private key")
	}
	pair, err := tls.X509KeyPair([]byte(bundle), []byte(bundle)) // an error if they do not match
	if err != nil {
		return "", err
	}
	intermediates, chain := x509.NewCertPool(), ""
	for i, der := range pair.Certificate {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		chain += string(text)
		if i > 0 {
			intermediates.AppendCertsFromPEM(text)
		}
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: podCertificateName(pod), Roots: s.roots,
		Intermediates: intermediates})
	return chain, err
}
