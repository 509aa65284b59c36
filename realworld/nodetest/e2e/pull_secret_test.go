package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

const registryPassword = "open sesame"

// startLockedRegistry serves the images of the node's registry to a user with a password, until the
// test ends, and returns its address. containerd needs no configuration for it: it uses plain HTTP
// on loopback by itself if the server has no TLS.
func startLockedRegistry(t *testing.T, n *nodetest.Node) string {
	t.Helper()
	open, err := url.Parse(n.Registry().URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(open) }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user == "ali" && password == registryPassword {
				proxy.ServeHTTP(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="cave"`)
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED", "message": "wrong word"}]}`,
				http.StatusUnauthorized)
		}))
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// pullSecret returns the manifest of a Secret with a password for a registry.
func pullSecret(name, registry, password string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: town}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{"auths": {%q: {"username": "ali", "password": %q}}}'
---
`, name, registry, password)
}

// pullingPod returns the manifest of a pod with an image of a registry.
func pullingPod(registry, name, policy, secrets string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: town, labels: {app: puller}}
spec:
  terminationGracePeriodSeconds: 1
  imagePullSecrets: [%s]
  containers:
  - {name: main, image: %s/seedlet/sample:v1, imagePullPolicy: %s, args: [sleep]}
---
`, name, secrets, registry, policy)
}

// testPullSecrets pulls from a registry with a password: with the right one, with none, and with a
// wrong one that is corrected later.
func (c *clusterSuite) testPullSecrets(t *testing.T) {
	registry := startLockedRegistry(t, c.node)
	pod := func(name, secrets string) string { return pullingPod(registry, name, "Always", secrets) }
	c.apply(t, pullSecret("right", registry, registryPassword)+pullSecret("late", registry, "barley")+
		pod("trusted", "{name: right}")+pod("nameless", "")+pod("mistaken", "{name: late}"))
	c.waitUntil(t, "the pod with the right password runs", func() bool {
		return isPodReady(c.apiPod(t, "trusted"))
	})
	for name, cause := range map[string]string{"nameless": "no basic auth credentials",
		"mistaken": "401 Unauthorized"} {
		uid := c.apiPod(t, name).UID
		for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
			c.waitUntil(t, name+" was in "+reason+" for want of a password", func() bool {
				return slices.ContainsFunc(c.history.statesOf(uid), func(p *v1.Pod) bool {
					text := statusText(p)
					return strings.Contains(text, "main: waiting "+reason) &&
						strings.Contains(text, cause)
				})
			})
		}
		c.waitUntil(t, "an event says that the pull of "+name+" failed", func() bool {
			return strings.Contains(c.eventText(t, name), "Failed: Failed to pull image")
		})
	}
	c.apply(t, pullSecret("late", registry, registryPassword))
	c.waitUntil(t, "the pod runs once its password is right", func() bool {
		return isPodReady(c.apiPod(t, "mistaken"))
	})
	if p := c.apiPod(t, "nameless"); isPodReady(p) {
		t.Errorf("the pod without a password runs: %s", statusText(p))
	}
	c.testPrivateImage(t, registry)
	c.kubectl(t, "delete", "pods", "-l", "app=puller", patience)
	c.kubectl(t, "delete", "secret", "right", "late")
}

// testPrivateImage uses an image that is on the node since a pod has pulled it with a password:
// with the same secret it needs no pull, also by the next agent; without one it is not to be had.
func (c *clusterSuite) testPrivateImage(t *testing.T, registry string) {
	for _, agent := range []string{"first", "next"} {
		c.apply(t, pullingPod(registry, "owner-"+agent, "Never", "{name: right}")+
			pullingPod(registry, "stranger-"+agent, "IfNotPresent", "")+
			pullingPod(registry, "squatter-"+agent, "Never", ""))
		c.waitUntil(t, "a pod with the secret runs the image that is there", func() bool {
			return isPodReady(c.apiPod(t, "owner-"+agent))
		})
		for name, want := range map[string]string{"stranger-": "no basic auth credentials",
			"squatter-": "ErrImageNeverPull"} {
			c.waitUntil(t, name+agent+" does not get the image", func() bool {
				return strings.Contains(statusText(c.apiPod(t, name+agent)), want)
			})
		}
		if agent == "first" {
			c.agent.signalAndWait(t, syscall.SIGKILL)
			c.agent.start(t)
		}
	}
	for _, dir := range []string{"pulled", "pulling"} {
		c.waitUntil(t, "the directory "+dir+" has what it should", func() bool {
			files, err := filepath.Glob(filepath.Join(c.agent.rootDir, "image_manager", dir, "sha256-*"))
			return err == nil && len(files) > 0 == (dir == "pulled")
		})
	}
}
