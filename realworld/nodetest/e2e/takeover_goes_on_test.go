package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkLogsAndExec checks that logs of containers of either program can be read, and that commands
// are executed in them.
func (c *takeOverSuite) checkLogsAndExec(t *testing.T, text string) {
	t.Helper()
	if log := c.kubectl(t, "logs", "checked", "-c", "main"); !strings.Contains(log, "serving") {
		t.Errorf("%s: the log of an earlier container is %q", text, log)
	}
	c.kubectl(t, "exec", "plain", "--", "/sample", "say", text)
	c.waitUntil(t, "the log has what a command wrote", func() bool {
		return strings.Contains(c.kubectl(t, "logs", "plain"), text)
	})
}

// checkGoesOn changes what the program before has started: the scale of a Deployment, a pod that is
// deleted, and the image in a manifest. The agent leaves a pod of its own for the kubelet.
func (c *takeOverSuite) checkGoesOn(t *testing.T, name string) {
	t.Helper()
	victim, replicas, byAgent := "hooked", 5, c.program == c.seedlet
	if !byAgent {
		victim, replicas = "late", 2
	}
	c.kubectl(t, "scale", fmt.Sprintf("--replicas=%d", replicas), "deployment/shop")
	c.checkDeletion(t, name, victim)
	c.checkImageChange(t, name, fmt.Sprintf("seedlet/statue:v%d", replicas))
	if byAgent {
		spec := strings.ReplaceAll(takeOverPods["hooked"], "hooked", "late")
		err := c.cluster.Apply(t.Context(), c.manifest(fmt.Sprintf("apiVersion: v1\nkind: Pod\n"+
			"metadata: {name: late, namespace: town}\nspec:\n  terminationGracePeriodSeconds: %d%s",
			hookTime, spec)))
		if err != nil {
			t.Fatal(err)
		}
		c.waitUntil(t, "the pod late is ready", func() bool { return isPodReady(c.apiPod(t, "late")) })
	}
	c.waitUntil(t, "the Deployment is scaled", func() bool {
		return len(c.apiPods(t, "shop")) == replicas
	})
	c.waitSettled(t, 0)
}

// hookTime is the grace period, in seconds, of the pods with a preStop hook: on a busy machine it
// may take ten of them.
const hookTime = 60

// checkDeletion deletes a pod with a preStop hook, which leaves nothing.
func (c *takeOverSuite) checkDeletion(t *testing.T, name, victim string) {
	t.Helper()
	uid := string(c.apiPod(t, victim).UID)
	c.kubectl(t, "delete", "pod", victim, patience)
	if _, err := os.Stat(filepath.Join(c.marksDir(), victim)); err != nil {
		t.Errorf("%s: the preStop hook of %s has not run: %v", name, victim, err)
	}
	c.waitUntil(t, "nothing is left of the pod "+victim, func() bool {
		left := c.leftDirectories(t, uid)
		for _, line := range append(c.cgroupLines(t), c.mountLines(t)...) {
			if strings.Contains(line, uid) {
				left = append(left, line)
			}
		}
		return len(left) == 0
	})
}

// checkImageChange changes the image in the manifest of a static pod: the pod runs once with it.
func (c *takeOverSuite) checkImageChange(t *testing.T, name, image string) {
	t.Helper()
	if err := c.node.Registry().Publish(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	const static = "statue"
	before, runs := c.apiPod(t, static+"-"+nodeName), c.countRuns(static)
	c.agent.addManifest(t, static, strings.ReplaceAll(c.manifest(takeOverStatics[static]),
		c.agent.sampleImage, c.node.Registry().Address+"/"+image))
	c.waitUntil(t, "the static pod has the image "+image, func() bool {
		p := c.apiPod(t, static+"-"+nodeName)
		return isPodReady(p) && p.UID != before.UID && strings.HasSuffix(
			containerStatus(p, "main").Image, image) && c.countRuns(static) > runs
	})
	after := c.apiPod(t, static+"-"+nodeName)
	if got := c.countRuns(static) - runs; got != 1 || totalRestarts(after) != 0 {
		t.Errorf("%s: the static pod has run %d times with the image, %+v", name, got,
			after.Status.ContainerStatuses)
	}
	c.waitUntil(t, "nothing is left of the static pod before", func() bool {
		return len(c.leftDirectories(t, before.Annotations[hashAnnotation])) == 0
	})
}

// leftDirectories returns what is left of a pod below the root directory and, if the agent runs, of
// its logs, which a kubelet removes a minute later.
func (c *takeOverSuite) leftDirectories(t *testing.T, uid string) []string {
	t.Helper()
	return slices.DeleteFunc(c.agent.podDirectories(t, uid), func(path string) bool {
		return c.program != c.seedlet && !strings.HasPrefix(path, c.agent.rootDir)
	})
}

// hashAnnotation has the UID of a static pod.
const hashAnnotation = "kubernetes.io/config.hash"

// countRuns returns how often containers have connected by a name.
func (c *takeOverSuite) countRuns(name string) (n int) {
	for _, r := range c.connections.allRuns() {
		if strings.HasPrefix(r.name, name+" ") {
			n++
		}
	}
	return n
}
