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
)

// TestSecurePort is about who gets in at the secure port of a node of a real cluster, by what
// certificate it is known there, and what the API server's proxy shows of it.
func TestSecurePort(t *testing.T) {
	c := foundTown(t, cluster.Options{Metrics: true})
	c.join(t, "serverTLSBootstrap: true\n", "enableSystemLogQuery: true\n")
	address := c.secure(t)
	c.until(t, late, "a serving certificate is asked for", func() bool {
		return len(c.requests(t)) == 1
	})
	if conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}); err == nil {
		_ = conn.Close()
		t.Error("a handshake before the certificate is approved")
	}
	c.kubectl(t, "certificate", "approve", c.requests(t)[0])
	// The certificate is for the node's address, by the authority of the cluster.
	admin := c.caller(t, c.cluster.Admin(), "")
	var first *x509.Certificate
	c.until(t, late, "there is a certificate", func() bool {
		answer, err := admin.Get("https://" + address + "/healthz")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }() // the code says it all
		first = answer.TLS.PeerCertificates[0]
		return answer.StatusCode == http.StatusOK
	})
	if first.Subject.CommonName != "system:node:"+nodeName {
		t.Errorf("the node is %s", first.Subject)
	}
	t.Run("the proxy", c.proxied)
	t.Run("who gets in", c.callers)
	c.kubectl(t, "create", "namespace", townNamespace)
	c.kubectl(t, "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	t.Run("kubectl reaches containers", c.containers)
	t.Run("kubectl alone", c.kubectlAlone)
	c.agent.signal(t, syscall.SIGTERM)
	c.agent.start(t)
	answer, err := admin.Get("https://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // nothing of it is wanted
	if !answer.TLS.PeerCertificates[0].Equal(first) || len(c.requests(t)) != 1 {
		t.Errorf("another certificate after a restart, requests %q", c.requests(t))
	}
}

// secure is where the API server finds the secure port, by the Node.
func (c *town) secure(t *testing.T) string {
	t.Helper()
	var port string
	c.until(t, late, "the Node says where its port is", func() bool {
		out, err := c.cluster.Kubectl(t.Context(), "get", "node", nodeName, "-o",
			"jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
		port = out
		return err == nil && out != ""
	})
	return fmt.Sprintf("%s:%s", c.cluster.Address, port)
}

// requests are those for serving certificates.
func (c *town) requests(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.kubectl(t, "get", "csr", "--field-selector",
		"spec.signerName=kubernetes.io/kubelet-serving", "-o", "jsonpath={.items[*].metadata.name}"))
}

// caller is a client with the certificate of a kubeconfig, or else with a token, that knows the
// authority of the cluster.
func (c *town) caller(t *testing.T, kubeconfig, token string) *http.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if kubeconfig == c.cluster.Admin() && token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = strings.TrimSuffix(token, "-")
	}
	config.Timeout = soon
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *town) proxied(t *testing.T) {
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
		"/debug/pprof/":     "goroutine",
	} {
		if out := raw(path); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in %.2000s", path, want, out)
		}
	}
	var pods v1.PodList
	if err := json.Unmarshal([]byte(raw("/pods")), &pods); err != nil || pods.Kind != "PodList" {
		t.Errorf("%s, %v", pods.Kind, err)
	}
}

// callers come in with what they have, or do not.
func (c *town) callers(t *testing.T) {
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
	forbidden := func(user, parts string) string {
		return fmt.Sprintf("Forbidden (user=%s, verb=get, resource=nodes, subresource(s)=[%s])\n", user,
			parts)
	}
	for _, is := range []struct {
		who, kubeconfig, token, path string
		code                         int
		text                         string
	}{
		{"nobody", c.cluster.Admin(), "-", "/healthz", http.StatusUnauthorized, "Unauthorized"},
		{"a liar", c.cluster.Admin(), "x" + token, "/metrics", http.StatusUnauthorized,
			"Unauthorized"},
		{"a stranger", stranger, "", "/pods", http.StatusForbidden,
			forbidden("stranger", "pods proxy")},
		{"a scraper", c.cluster.Admin(), token, "/metrics", http.StatusOK, "# HELP"},
		{"a scraper", c.cluster.Admin(), token, "/healthz", http.StatusOK, "ok"},
		{"a scraper", c.cluster.Admin(), token, "/exec/a/b/c", http.StatusForbidden,
			forbidden(scraper, "proxy")},
		{"a scraper", c.cluster.Admin(), token, "/configz", http.StatusForbidden,
			forbidden(scraper, "configz proxy")},
	} {
		answer, err := c.caller(t, is.kubeconfig, is.token).Get("https://" + c.secure(t) + is.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // read to the end
		if err != nil || answer.StatusCode != is.code || !strings.HasPrefix(string(body), is.text) {
			t.Errorf("%s at %s: %s %.200q, %v; want %d %q", is.who, is.path, answer.Status, body, err,
				is.code, is.text)
		}
	}
}

// containers are reached by kubectl, through the API server and the secure port.
func (c *town) containers(t *testing.T) {
	if err := c.cluster.Apply(t.Context(), strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: reporter, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: IMAGE, args: [report, --stay]}
`, "IMAGE", c.agent.image)); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "pod/reporter")
	for what, args := range map[string][]string{
		"logs": {"logs", "reporter"}, "exec": {"exec", "reporter", "--", "/sample", "report"},
	} {
		c.until(t, soon, what, func() bool { // it is ready before it has written
			return strings.Contains(c.kubectl(t, args...), `"host":"reporter"`)
		})
	}
	followed := make(chan string)
	go func() {
		out, _ := c.cluster.Kubectl(t.Context(), "-n", townNamespace, "logs", "-f", "reporter")
		followed <- out // what went wrong is seen by what is missing
	}()
	if out, err := c.cluster.Kubectl(t.Context(), "-n", townNamespace, "exec", "reporter", "--",
		"/sample", "nonsense"); err == nil || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("a command that fails: %q, %v", out, err)
	}
	c.kubectl(t, "delete", "pod", "reporter")
	if out := <-followed; !strings.Contains(out, `"host":"reporter"`) {
		t.Errorf("followed: %.500s", out)
	}
}
