package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
