package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/volumestats"
	"seedlet.dev/world"
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

// The usage of claims on /metrics is bounded in the same way.
func TestVolumeMetricsAreBounded(t *testing.T) {
	n := bootWithPods(nil)
	stats := &n.agent.state.VolumeStats
	stats.Pods = map[string]*volumestats.Pod{}
	for pod := range 110 {
		volumes := map[string]*volumestats.Volume{}
		claims := budget.VolumesMax
		if pod%2 > 0 {
			claims = 3
		}
		for i := range claims {
			volumes[fmt.Sprint("v", i)] = &volumestats.Volume{Claim: fmt.Sprintf("c-%d-%d", pod, i),
				Latest: &world.CSIVolumeStats{CapacityBytes: 1}}
		}
		volumes["none"] = &volumestats.Volume{Latest: &world.CSIVolumeStats{CapacityBytes: 1}}
		stats.Pods[fmt.Sprint("u", pod)] = &volumestats.Pod{Namespace: "ns", Volumes: volumes}
	}
	of, all := map[string]int{}, 0
	for _, m := range n.agent.listMetrics() {
		if m.Name == "kubelet_volume_stats_capacity_bytes" {
			of[strings.Split(m.Labels[1].Value, "-")[1]]++
			all++
		}
	}
	if all > budget.VolumeMetricsMax || all < budget.VolumeMetricsMax-110 {
		t.Errorf("the usage of %d claims, want at most %d", all, budget.VolumeMetricsMax)
	}
	if of["0"] != of["108"] || of["1"] != 3 || of["109"] != 3 {
		t.Errorf("claims of two large and two small pods: %d, %d, %d, %d", of["0"], of["108"], of["1"],
			of["109"])
	}
}
