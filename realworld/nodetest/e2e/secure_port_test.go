package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/porttest"
)

// TestSecurePort tests the secure port of a node of a real cluster: its serving certificate, the
// authentication and authorization of its clients, and its paths behind the API server's proxy.
func TestSecurePort(t *testing.T) {
	t.Parallel()
	c := newClusterSuiteWithoutAgent(t, cluster.Options{Metrics: true})
	c.joinNode(t, "serverTLSBootstrap: true\n", "enableSystemLogQuery: true\n")
	address := c.securePortAddress(t)
	c.waitUntil(t, "a serving certificate is requested", func() bool {
		return len(c.servingCSRs(t)) == 1
	})
	if conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}); err == nil {
		_ = conn.Close()
		t.Error("a TLS handshake succeeds before the certificate is approved")
	}
	c.kubectl(t, "certificate", "approve", c.servingCSRs(t)[0])
	// The client verifies that the certificate is issued for the node's address by the CA of the
	// cluster.
	admin := c.httpClient(t, c.cluster.AdminKubeconfig(), "")
	var first *x509.Certificate
	c.waitUntil(t, "the agent serves with the certificate", func() bool {
		response, err := admin.Get("https://" + address + "/healthz")
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }() // only the status code matters
		first = response.TLS.PeerCertificates[0]
		return response.StatusCode == http.StatusOK
	})
	if first.Subject.CommonName != "system:node:"+nodeName {
		t.Errorf("the subject of the certificate is %s", first.Subject)
	}
	t.Run("the API server's proxy", c.testProxy)
	t.Run("authentication and authorization", c.testAuthorization)
	c.kubectl(t, "create", "namespace", testNamespace)
	c.kubectl(t, "wait", "--for=create", patience, "serviceaccount/default")
	t.Run("kubectl reaches containers", c.testContainerAccess)
	t.Run("kubectl", c.testKubectl)
	c.agent.signalAndWait(t, syscall.SIGTERM)
	c.agent.start(t)
	response, err := admin.Get("https://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // only the certificate matters
	if !response.TLS.PeerCertificates[0].Equal(first) || len(c.servingCSRs(t)) != 1 {
		t.Errorf("the certificate changed with a restart, requests %q", c.servingCSRs(t))
	}
}

// securePortAddress returns the address of the secure port, with the port that the Node has.
func (c *clusterSuite) securePortAddress(t *testing.T) string {
	t.Helper()
	var port string
	c.waitUntil(t, "the Node has the port of the agent", func() bool {
		out, err := c.cluster.Kubectl(t.Context(), "get", "node", nodeName, "-o",
			"jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
		port = out
		return err == nil && out != ""
	})
	return fmt.Sprintf("%s:%s", c.cluster.Address, port)
}

// servingCSRs returns the names of the requests for serving certificates.
func (c *clusterSuite) servingCSRs(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.kubectl(t, "get", "csr", "--field-selector",
		"spec.signerName=kubernetes.io/kubelet-serving", "-o", "jsonpath={.items[*].metadata.name}"))
}

// httpClient returns a client that trusts the CA of the cluster. It has the certificate of the
// kubeconfig. With the kubeconfig of the administrator and a token it has the token instead; the
// token "-" stands for none.
func (c *clusterSuite) httpClient(t *testing.T, kubeconfig, token string) *http.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if kubeconfig == c.cluster.AdminKubeconfig() && token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = strings.TrimSuffix(token, "-")
	}
	config.Timeout = porttest.Patience
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testProxy reads the paths of the secure port through the API server.
func (c *clusterSuite) testProxy(t *testing.T) {
	raw := func(path string) string {
		return c.kubectl(t, "get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy"+path)
	}
	for path, want := range map[string]string{
		"/healthz":          "ok",
		"/configz":          `{"kubeletconfig":{"kind":"KubeletConfiguration"`,
		"/metrics":          "seedlet_step_duration_seconds_count",
		"/statusz":          "1.36.3",
		"/flagz":            "hostname-override",
		"/debug/state":      "{",
		"/runningpods/":     `"kind":"PodList"`,
		"/stats/summary":    `"nodeName": "` + nodeName,
		"/metrics/resource": "node_cpu_usage_seconds_total",
		"/metrics/cadvisor": "machine_cpu_cores",
		"/metrics/probes":   "process_start_time_seconds",
		"/metrics/slis":     "kubernetes_healthcheck",
		"/debug/pprof/":     "goroutine",
	} {
		if out := raw(path); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in %.2000s", path, want, out)
		}
	}
	var pods v1.PodList
	if err := json.Unmarshal([]byte(raw("/pods")), &pods); err != nil || pods.Kind != "PodList" {
		t.Errorf("/pods is a %s, %v", pods.Kind, err)
	}
}

// testAuthorization makes requests without credentials, with wrong ones, and with credentials that
// allow some paths.
func (c *clusterSuite) testAuthorization(t *testing.T) {
	if err := c.cluster.Apply(t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{apiGroups: [""], resources: [nodes/metrics, nodes/healthz], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
`); err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(c.kubectl(t, "-n", "default", "create", "token", "default"))
	stranger, err := c.cluster.UserKubeconfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	const scraper = "system:serviceaccount:default:default"
	forbidden := func(user, verb, parts string) string {
		return fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])\n", user,
			verb, parts)
	}
	for _, test := range []struct {
		client, kubeconfig, token, path string
		code                            int
		text                            string
	}{
		{"no credentials", c.cluster.AdminKubeconfig(), "-", "/healthz", http.StatusUnauthorized,
			"Unauthorized"},
		{"an invalid token", c.cluster.AdminKubeconfig(), "x" + token, "/metrics",
			http.StatusUnauthorized,
			"Unauthorized"},
		{"a user without a role", stranger, "", "/pods", http.StatusForbidden,
			forbidden("stranger", "get", "pods proxy")},
		{"a scraper", c.cluster.AdminKubeconfig(), token, "/metrics", http.StatusOK, "# HELP"},
		{"a scraper", c.cluster.AdminKubeconfig(), token, "/healthz", http.StatusOK, "ok"},
		{"a scraper", c.cluster.AdminKubeconfig(), token, "/exec/a/b/c", http.StatusForbidden,
			forbidden(scraper, "create", "proxy")},
		{"a scraper", c.cluster.AdminKubeconfig(), token, "/configz", http.StatusForbidden,
			forbidden(scraper, "get", "configz proxy")},
	} {
		client := c.httpClient(t, test.kubeconfig, test.token)
		response, err := client.Get("https://" + c.securePortAddress(t) + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // read to the end
		if err != nil || response.StatusCode != test.code ||
			!strings.HasPrefix(string(body), test.text) {
			t.Errorf("%s at %s: %s %.200q, %v; want %d %q", test.client, test.path, response.Status,
				body, err, test.code, test.text)
		}
	}
}

// testContainerAccess reads logs and runs commands with kubectl, through the API server and the
// secure port.
func (c *clusterSuite) testContainerAccess(t *testing.T) {
	if err := c.cluster.Apply(t.Context(), strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: reporter, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: IMAGE, args: [report, --stay]}
`, "IMAGE", c.agent.sampleImage)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", patience, "pod/reporter")
	// The report is written after the pod is ready.
	for command, args := range map[string][]string{
		"logs": {"logs", "reporter"}, "exec": {"exec", "reporter", "--", "/sample", "report"},
	} {
		c.waitUntil(t, command+" returns the report", func() bool {
			return strings.Contains(c.kubectl(t, args...), `"host":"reporter"`)
		})
	}
	followed := make(chan string)
	go func() {
		out, _ := c.cluster.Kubectl(t.Context(), "-n", testNamespace, "logs", "-f", "reporter")
		followed <- out // after an error the report is missing
	}()
	if out, err := c.cluster.Kubectl(t.Context(), "-n", testNamespace, "exec", "reporter", "--",
		"/sample", "nonsense"); err == nil || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("a command that fails: %q, %v", out, err)
	}
	c.kubectl(t, "delete", "pod", "reporter")
	if out := <-followed; !strings.Contains(out, `"host":"reporter"`) {
		t.Errorf("the followed log is %.500s", out)
	}
}
