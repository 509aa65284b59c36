package core

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// probeKinds are the kinds of probes of a container.
var probeKinds = []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness}

// listProbeMetrics returns the metrics of the probes of all pods. Only here, and in addVolumeStats,
// the number of metrics grows with the number of pods, and with what their authors write. So it is
// bounded: pods with the most probes are cut first, and of such a pod the first ones of its spec
// are kept.
func (a *Agent) listProbeMetrics() []world.Metric {
	counts := make([]int, 0, len(a.podUIDs))
	for _, uid := range a.podUIDs {
		counts = append(counts, len(a.state.Metrics.forPod(uid).Probes))
	}
	ofPod := shareEqually(counts, budget.ProbeMetricsMax)
	var durations, totals metricList
	for _, uid := range a.podUIDs {
		left := ofPod
		p, t := a.state.Pods[uid], a.state.Metrics.forPod(uid)
		for container := range specContainers(p) {
			if left == 0 {
				break
			}
			for _, kind := range probeKinds {
				if counted := t.Probes[probeKey(container, kind)]; counted != nil && left > 0 {
					left--
					a.addProbeMetrics(&durations, &totals, p, container, kind, counted)
				}
			}
		}
	}
	return append(durations, totals...)
}

// addProbeMetrics adds the metrics of one probe.
func (a *Agent) addProbeMetrics(durations, totals *metricList, p *pod.Pod, container string,
	kind probe.Kind, counted *ProbeMetrics) {
	for _, result := range []struct {
		word string
		n    uint64
	}{{"successful", counted.Successful}, {"failed", counted.Failed},
		{"unknown", counted.Unknown}} {
		if result.n > 0 {
			totals.addCounter("prober_probe_total", "Results of probes, by kind and result.", result.n,
				"probe_type", string(kind), "result", result.word, "container", container,
				"pod", p.Name, "namespace", p.Namespace, "pod_uid", p.UID)
		}
	}
	if a.podUIDsByName[p.FullName()][0] == p.UID { // one pod per name: there is no label for the UID
		durations.addHistogram("prober_probe_duration_seconds", "Duration of probes that did not fail.",
			&counted.Duration, defaultBounds, "probe_type", string(kind), "container", container,
			"pod", p.Name, "namespace", p.Namespace)
	}
}

// specContainers yields the names of the containers of a pod that may have probes.
func specContainers(p *pod.Pod) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if p.Spec == nil {
			return
		}
		spec := &p.Spec.Spec
		for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(list[i].Name) {
					return
				}
			}
		}
	}
}

// shareEqually returns how many each may have of the most that there are together, so that those
// who have more get equal parts of what the others leave.
func shareEqually(counts []int, most int) int {
	slices.Sort(counts)
	largest := 0
	for i, n := range counts {
		if share := most / (len(counts) - i); n > share {
			return share
		}
		most -= n
		largest = n
	}
	return largest
}
