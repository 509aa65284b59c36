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

// serverKilled kills the API server. What ends meanwhile is told afterwards; all else goes on.
func (c *town) serverKilled(t *testing.T) {
	before, victim := c.lives(t), c.pods(t, "shop")[1]
	if err := c.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	c.excused[victim.Name] = true
	c.signal(t, idOf(victim.Status.ContainerStatuses), syscall.SIGKILL)
	c.eventually(t, soon, "its container runs again", func() bool {
		return c.held.last(victim.Name+" 1").name != ""
	})
	time.Sleep(quiet)
	if err := c.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.until(t, soon, "the restart is told", func() bool {
		p := c.pod(t, victim.Name)
		return podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	c.until(t, late, "the watch sees again", func() bool {
		return restartsOf(c.seen.last(victim.UID)) == 1
	})
	after := c.lives(t)
	delete(before, victim.Name)
	delete(after, victim.Name)
	c.unchanged(t, before, after)
}

// lives are the pods and the containers that run now.
func (c *town) lives(t *testing.T) map[string]string {
	t.Helper()
	lives := map[string]string{}
	for _, p := range c.pods(t, "") {
		if p.Status.Phase == v1.PodRunning {
			lives[p.Name] = fmt.Sprintf("%s %s", p.UID, idOf(p.Status.ContainerStatuses))
		}
	}
	return lives
}

func (c *town) unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s is %q, it was %q", name, after[name], before[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d pods run, there were %d", len(after), len(before))
	}
}

// killings are how often the agent is killed, while nothing happens and while much does.
const killings = 12

// agentKilledAtRandom kills the agent again and again. Nothing that runs may take notice.
func (c *town) agentKilledAtRandom(t *testing.T) {
	before, told := c.lives(t), c.seen.changes()
	random := seeded(t)
	for range killings {
		c.agent.signal(t, syscall.SIGKILL)
		c.agent.launch(t)
		time.Sleep(time.Duration(random.ExpFloat64() * float64(1500*time.Millisecond)))
	}
	c.agent.well(t)
	time.Sleep(quiet)
	c.unchanged(t, before, c.lives(t))
	t.Logf("%d changes of statuses were told for it", c.seen.changes()-told)
}

// rollOver replaces all pods of the shop by others, while the agent is killed again and again.
func (c *town) rollOver(t *testing.T) {
	if err := c.node.Registry().Publish(t.Context(), "seedlet/sample:v2"); err != nil {
		t.Fatal(err)
	}
	before := c.lives(t)
	c.apply(t, greedy) // it is not measured before a minute is over
	image := strings.TrimSuffix(c.agent.image, "v1") + "v2"
	random := seeded(t)
	start := time.Now()
	c.kubectl(t, "set", "image", "deployment/shop", "main="+image)
	for range killings {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(1500*time.Millisecond)))
		c.agent.signal(t, syscall.SIGKILL)
		c.agent.launch(t)
	}
	c.kubectl(t, "rollout", "status", "deployment/shop", "--timeout=180s")
	c.until(t, late, "only the new pods are left", func() bool {
		return len(c.pods(t, "shop")) == shopPods
	})
	t.Logf("%d pods were replaced in %.1f s", shopPods, time.Since(start).Seconds())
	after := c.lives(t)
	for name := range before {
		if strings.HasPrefix(name, "shop-") && after[name] != "" {
			t.Errorf("%s was not replaced", name)
		}
	}
	gone := func(name, _ string) bool { return strings.HasPrefix(name, "shop-") }
	maps.DeleteFunc(before, gone)
	maps.DeleteFunc(after, gone)
	c.unchanged(t, before, after)
}

// seeded is a source of random numbers, whose seed is told.
func seeded(t *testing.T) *rand.Rand {
	seed := *churnSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("churn-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// taint keeps new pods from the node, and then ends those that do not tolerate it.
func (c *town) taint(t *testing.T) {
	c.kubectl(t, "scale", "--replicas=2", "deployment/shop")
	c.until(t, late, "the shop has two pods", func() bool { return len(c.pods(t, "shop")) == 2 })
	c.kubectl(t, "cordon", nodeName)
	c.apply(t, holder("tolerant", "\n  tolerations: [{operator: Exists}]"))
	c.apply(t, holder("stranger", ""))
	c.until(t, late, "only who tolerates it runs on a closed node", func() bool {
		stranger := c.pod(t, "stranger")
		return podReady(c.pod(t, "tolerant")) &&
			condition(stranger, v1.PodScheduled) == v1.ConditionFalse
	})
	c.kubectl(t, "uncordon", nodeName)
	c.until(t, late, "the other runs on an open node", func() bool {
		return podReady(c.pod(t, "stranger"))
	})
	c.kubectl(t, "taint", "node", nodeName, "closed=yes:NoExecute")
	c.until(t, late, "nobody else runs", func() bool {
		lives := c.lives(t)
		return len(lives) == 2 && lives["tolerant"] != "" && lives["statue-"+nodeName] != ""
	})
	c.kubectl(t, "taint", "node", nodeName, "closed-")
	c.kubectl(t, "rollout", "status", "deployment/shop", "--timeout=120s")
}
