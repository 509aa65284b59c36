package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
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

// testPullSecrets pulls from a registry with a password: with the right one, with none, and with a
// wrong one that is corrected later.
func (c *clusterSuite) testPullSecrets(t *testing.T) {
	registry := startLockedRegistry(t, c.node)
	pod := func(name, secrets string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: town, labels: {app: puller}}
spec:
  terminationGracePeriodSeconds: 1
  imagePullSecrets: [%s]
  containers:
  - {name: main, image: %s/seedlet/sample:v1, imagePullPolicy: Always, args: [sleep]}
---
`, name, secrets, registry)
	}
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
	c.kubectl(t, "delete", "pods", "-l", "app=puller", patience)
	c.kubectl(t, "delete", "secret", "right", "late")
}
