package core

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/pod"
)

// withProbes adds pods to an agent, each with so many containers, all probes of which have had
// every result.
func withProbes(a *Agent, pods, containers int) {
	for range pods {
		uid := fmt.Sprint("u", len(a.podUIDs))
		p := pod.New(podOf("p-"+uid, uid, func(s *v1.PodSpec) {
			s.Containers = containersOf("c", containers)
		}), nil, true, true, a.state.Now)
		a.addPod(p)
		counted := a.state.Metrics.forPod(uid)
		counted.Probes = map[string]*ProbeMetrics{}
		for container := range specContainers(p) {
			for _, kind := range probeKinds {
				m := &ProbeMetrics{Successful: 1, Failed: 1, Unknown: 1}
				m.Duration.Observe(defaultBounds, time.Second)
				counted.Probes[probeKey(container, kind)] = m
			}
		}
	}
}

// The page of probes is bounded: pods with many probes leave room for all of those with few, and
// have equal parts of the rest.
func TestProbeMetricsAreBounded(t *testing.T) {
	n := bootWithPods(nil)
	withProbes(n.agent, 60, budget.ContainersMax)
	withProbes(n.agent, 50, 2)
	all := n.agent.listProbeMetrics()
	perProbe := 4 // three results and the duration
	if len(all) > perProbe*budget.ProbeMetricsMax || len(all) < perProbe*(budget.ProbeMetricsMax-60) {
		t.Errorf("%d metrics of at most %d probes", len(all), budget.ProbeMetricsMax)
	}
	of := map[string]int{}
	for _, m := range all {
		for _, label := range m.Labels {
			if label.Name == "pod" {
				of[label.Value]++
			}
		}
	}
	if of["p-u0"] != of["p-u59"] || of["p-u60"] != perProbe*6 || of["p-u109"] != perProbe*6 {
		t.Errorf("metrics of two large and two small pods: %d, %d, %d, %d", of["p-u0"], of["p-u59"],
			of["p-u60"], of["p-u109"])
	}
}

func TestShareEqually(t *testing.T) {
	for _, c := range []struct {
		counts []int
		most   int
		want   int
	}{
		{nil, 10, 0}, {[]int{3, 4}, 10, 4}, {[]int{5, 5}, 10, 5}, {[]int{9, 1}, 10, 9},
		{[]int{20, 1, 20}, 10, 4}, {[]int{20, 20, 20}, 2, 0},
	} {
		if got := shareEqually(c.counts, c.most); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.counts, c.most, got, c.want)
		}
	}
}
