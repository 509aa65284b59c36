package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
)

// credentialPlugin is a plugin that knows one registry. It notes each request.
const credentialPlugin = `#!/bin/sh
cat >> "$NOTES"
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
"cacheKeyType": "Registry", "auth": {"%s": {"username": "ali", "password": "%s"}}}'
`

const credentialConfig = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: cave
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["%s"]
  defaultCacheDuration: 1h
  env: [{name: NOTES, value: "%s"}]
`

// TestNodeCredentials checks that a pod without secrets gets an image from a registry with a
// password: first by the node's Docker configuration, then by a plugin, which is asked once for two
// images of the registry.
func TestNodeCredentials(t *testing.T) {
	t.Parallel()
	s := &suite{node: nodetest.New(t, nodetest.V2)}
	s.agent = newAgent(t, s.node)
	docker, plugins := startLockedRegistry(t, s.node), startLockedRegistry(t, s.node)
	dir := filepath.Join(s.node.Dir, "credentials")
	notes := filepath.Join(dir, "notes")
	for path, text := range map[string]string{
		filepath.Join(s.agent.rootDir, "config.json"): fmt.Sprintf(
			`{"auths": {%q: {"username": "ali", "password": %q}}}`, docker, registryPassword),
		filepath.Join(dir, "bin", "cave"): fmt.Sprintf(credentialPlugin, plugins, registryPassword),
		filepath.Join(dir, "config.yaml"): fmt.Sprintf(credentialConfig, plugins, notes),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.agent.flags = []string{"--image-credential-provider-config=" + filepath.Join(dir, "config.yaml"),
		"--image-credential-provider-bin-dir=" + filepath.Join(dir, "bin")}
	s.agent.start(t)
	for _, pod := range []struct{ name, registry string }{{"docker", docker}, {"plugin", plugins},
		{"again", plugins}} {
		manifest := samplePodManifest(pod.name, "Never", 5, "sleep")
		s.agent.addManifest(t, pod.name, strings.ReplaceAll(manifest, "seedlet.dev/sample:v1",
			pod.registry+"/seedlet/sample:v1\n    imagePullPolicy: Always"))
		s.eventually(t, "the pod "+pod.name+" runs", func() bool {
			return s.newestContainer(t, pod.name, "main").GetState() == running
		})
	}
	asked, err := os.ReadFile(notes)
	if want := plugins + "/seedlet/sample\""; err != nil || strings.Count(string(asked), want) != 1 {
		t.Errorf("the plugin was asked %q, %v; want one request for %s", asked, err, want)
	}
	for _, pod := range []string{"docker", "plugin", "again"} {
		s.agent.removeManifest(t, pod)
	}
	s.eventually(t, "the pods are removed", func() bool { return len(s.sandboxLines(t, "")) == 0 })
	if code := s.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent exited with code %d", code)
	}
}

// tokenPlugin is a plugin that has credentials for those who have a token and say the word, an
// annotation of their service account. It notes each request.
const tokenPlugin = `#!/bin/sh
request=$(cat)
echo "$request" >> "$NOTES"
case $request in
*'"serviceAccountToken":"ey'*'"cave.example/word":"sesame"'*) ;;
*) echo "who is there?" >&2; exit 1;;
esac
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
"cacheKeyType": "Registry", "auth": {"%s": {"username": "ali", "password": "%s"}}}'
`

const tokenAttributes = `  tokenAttributes:
    serviceAccountTokenAudience: cave
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [cave.example/word]
`

// tokenObjects are service accounts of which one knows the word, and the permission of nodes to
// request tokens for the audience.
const tokenObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: robber, namespace: town, annotations: {cave.example/word: sesame}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: town}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cave-tokens}
rules: [{apiGroups: [""], resources: [cave], verbs: [request-serviceaccounts-token-audience]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cave-tokens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cave-tokens}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
---
`

// TestTokensForPlugins checks that a pod without secrets gets an image from a registry with a
// password by a plugin that is given a token of its service account (KEP-4412), and that the image
// is then there for the pods of this service account, also for the next agent, and for no others.
func TestTokensForPlugins(t *testing.T) {
	c := newClusterSuiteWithoutAgent(t, cluster.Options{})
	registry := startLockedRegistry(t, c.node)
	dir := filepath.Join(c.node.Dir, "credentials")
	notes, config := filepath.Join(dir, "notes"), filepath.Join(dir, "config.yaml")
	for path, text := range map[string]string{
		filepath.Join(dir, "bin", "cave"): fmt.Sprintf(tokenPlugin, registry, registryPassword),

		config: fmt.Sprintf(credentialConfig, registry, notes) + tokenAttributes,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.joinNodeWith(t, []string{"--image-credential-provider-config=" + config,
		"--image-credential-provider-bin-dir=" + filepath.Join(dir, "bin")})
	pod := func(name, account, policy string) {
		text := strings.Replace(pullingPod(registry, name, policy, ""), "spec:\n",
			"spec:\n  automountServiceAccountToken: false\n  serviceAccountName: "+account+"\n", 1)
		if err := c.cluster.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(name string) {
		c.waitUntil(t, "the pod "+name+" runs", func() bool { return isPodReady(c.apiPod(t, name)) })
	}
	c.kubectl(t, "create", "namespace", testNamespace)
	if err := c.cluster.Apply(t.Context(), tokenObjects); err != nil {
		t.Fatal(err)
	}
	pod("first", "robber", "IfNotPresent")
	runs("first")
	pod("second", "robber", "Never")
	runs("second")
	pod("stranger", "stranger", "IfNotPresent")
	c.waitUntil(t, "the stranger does not get the image", func() bool {
		return strings.Contains(statusText(c.apiPod(t, "stranger")), "no basic auth credentials")
	})
	c.agent.signalAndWait(t, syscall.SIGKILL)
	c.agent.start(t)
	pod("third", "robber", "Never")
	runs("third")
	c.checkPluginRequest(t, notes, registry+"/seedlet/sample", "robber", c.apiPod(t, "first"))
	c.kubectl(t, "delete", "pods", "-l", "app=puller", patience)
	if code := c.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent exited with code %d", code)
	}
}

// checkPluginRequest checks that a plugin was asked once for an image, with a token of a service
// account that is bound to a pod, and that neither the log nor the records have the token.
func (c *clusterSuite) checkPluginRequest(t *testing.T, notes, image, account string, pod *v1.Pod) {
	t.Helper()
	text, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	var asked pluginapi.CredentialProviderRequest
	if err := json.Unmarshal(text, &asked); err != nil || asked.Image != image ||
		len(asked.ServiceAccountAnnotations) != 1 {
		t.Fatalf("the plugin was asked %q, %v; want one request for %s", text, err, image)
	}
	parts := strings.Split(asked.ServiceAccountToken, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	var claims struct {
		Audience   []string `json:"aud"`
		Subject    string   `json:"sub"`
		Kubernetes struct {
			Pod struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	bound := claims.Kubernetes.Pod
	if err != nil || !slices.Equal(claims.Audience, []string{"cave"}) ||
		claims.Subject != "system:serviceaccount:town:"+account || bound.Name != pod.Name ||
		bound.UID != string(pod.UID) {
		t.Errorf("the token is %s, %v", payload, err)
	}
	log, err := os.ReadFile(c.agent.logFile)
	if err != nil || strings.Contains(string(log), asked.ServiceAccountToken) {
		t.Errorf("the log has the token, or cannot be read: %v", err)
	}
	records, err := filepath.Glob(filepath.Join(c.agent.rootDir, "image_manager", "pulled",
		"sha256-*"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records %q, %v", records, err)
	}
	record, err := os.ReadFile(records[0])
	if err != nil || !strings.Contains(string(record), `"kubernetesServiceAccounts":[{`) ||
		!strings.Contains(string(record), `"name":"`+account+`"`) {
		t.Errorf("the record is %s, %v", record, err)
	}
}
