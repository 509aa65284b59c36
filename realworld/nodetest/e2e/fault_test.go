package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// testAPIServerKilled kills the API server and then a container. The container is restarted
// meanwhile, the restart is reported when the API server is back, and all other pods go on running.
func (c *clusterSuite) testAPIServerKilled(t *testing.T) {
	before, killed := c.runningPods(t), c.apiPods(t, "shop")[1]
	if err := c.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	c.excused[killed.Name] = true
	c.signalContainer(t, onlyContainerID(killed.Status.ContainerStatuses), syscall.SIGKILL)
	c.eventually(t, "the killed container runs again", func() bool {
		return c.connections.lastRun(killed.Name+" 1").name != ""
	})
	time.Sleep(quietPeriod)
	if err := c.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitUntil(t, "the restart is reported", func() bool {
		p := c.apiPod(t, killed.Name)
		return isPodReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	c.waitUntil(t, "the watch reports states again", func() bool {
		return totalRestarts(c.history.lastState(killed.UID)) == 1
	})
	after := c.runningPods(t)
	delete(before, killed.Name)
	delete(after, killed.Name)
	c.checkUnchanged(t, before, after)
}

// runningPods returns the UID and the container ID of each running pod, by its name.
func (c *clusterSuite) runningPods(t *testing.T) map[string]string {
	t.Helper()
	pods := map[string]string{}
	for _, p := range c.apiPods(t, "") {
		if p.Status.Phase == v1.PodRunning {
			pods[p.Name] = fmt.Sprintf("%s %s", p.UID, onlyContainerID(p.Status.ContainerStatuses))
		}
	}
	return pods
}

// checkUnchanged compares two results of runningPods.
func (c *clusterSuite) checkUnchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("the pod and container of %s are %q, before %q", name, after[name],
				before[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d pods run, before %d", len(after), len(before))
	}
}

// agentKills is the number of kills of the agent on an idle node, and again during a rollout.
const agentKills = 12

// testAgentKilledAtRandom kills the agent again and again. The running containers stay the same.
func (c *clusterSuite) testAgentKilledAtRandom(t *testing.T) {
	before, statesBefore := c.runningPods(t), c.history.countStates()
	random := newRandom(t)
	for range agentKills {
		c.agent.signalAndWait(t, syscall.SIGKILL)
		c.agent.startProcess(t)
		time.Sleep(time.Duration(random.ExpFloat64() * float64(1500*time.Millisecond)))
	}
	c.agent.waitHealthy(t)
	time.Sleep(quietPeriod)
	c.checkUnchanged(t, before, c.runningPods(t))
	t.Logf("%d changes of pods were reported meanwhile", c.history.countStates()-statesBefore)
}

// testRolloutUnderKills rolls out another image of deployment shop while the agent is killed again
// and again. All other pods go on running.
func (c *clusterSuite) testRolloutUnderKills(t *testing.T) {
	if err := c.node.Registry().Publish(t.Context(), "seedlet/sample:v2"); err != nil {
		t.Fatal(err)
	}
	before := c.runningPods(t)
	// For testLocalStorageLimits: volumes are measured once a minute.
	c.apply(t, overLimitManifest)
	image := strings.TrimSuffix(c.agent.sampleImage, "v1") + "v2"
	random := newRandom(t)
	start := time.Now()
	c.kubectl(t, "set", "image", "deployment/shop", "main="+image)
	for range agentKills {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(1500*time.Millisecond)))
		c.agent.signalAndWait(t, syscall.SIGKILL)
		c.agent.startProcess(t)
	}
	c.kubectl(t, "rollout", "status", "deployment/shop", patience)
	c.waitUntil(t, "only the new pods are left", func() bool {
		return len(c.apiPods(t, "shop")) == shopReplicas
	})
	t.Logf("%d pods were replaced in %.1f s", shopReplicas, time.Since(start).Seconds())
	after := c.runningPods(t)
	for name := range before {
		if strings.HasPrefix(name, "shop-") && after[name] != "" {
			t.Errorf("%s was not replaced", name)
		}
	}
	isOther := func(name, _ string) bool { // the greedy ones run until testLocalStorageLimits
		return strings.HasPrefix(name, "shop-") || strings.HasPrefix(name, "greedy-")
	}
	maps.DeleteFunc(before, isOther)
	maps.DeleteFunc(after, isOther)
	c.checkUnchanged(t, before, after)
}

// newRandom returns a source of random numbers and logs its seed.
func newRandom(t *testing.T) *rand.Rand {
	seed := *churnSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("churn-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// testTaint cordons the node, which keeps pods without a toleration from it, and then taints it,
// which evicts them.
func (c *clusterSuite) testTaint(t *testing.T) {
	c.kubectl(t, "scale", "--replicas=2", "deployment/shop")
	c.waitUntil(t, "deployment shop has two pods", func() bool {
		return len(c.apiPods(t, "shop")) == 2
	})
	c.kubectl(t, "cordon", nodeName)
	c.apply(t, holderManifest("tolerant", "\n  tolerations: [{operator: Exists}]"))
	c.apply(t, holderManifest("stranger", ""))
	c.waitUntil(t, "only pod tolerant runs on the cordoned node", func() bool {
		stranger := c.apiPod(t, "stranger")
		return isPodReady(c.apiPod(t, "tolerant")) &&
			conditionStatus(stranger, v1.PodScheduled) == v1.ConditionFalse
	})
	c.kubectl(t, "uncordon", nodeName)
	c.waitUntil(t, "pod stranger runs on the uncordoned node", func() bool {
		return isPodReady(c.apiPod(t, "stranger"))
	})
	c.kubectl(t, "taint", "node", nodeName, "closed=yes:NoExecute")
	c.waitUntil(t, "only pod tolerant and the static pod run", func() bool {
		pods := c.runningPods(t)
		return len(pods) == 2 && pods["tolerant"] != "" && pods["statue-"+nodeName] != ""
	})
	c.kubectl(t, "taint", "node", nodeName, "closed-")
	c.kubectl(t, "rollout", "status", "deployment/shop", patience)
}
