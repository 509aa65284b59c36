package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"seedlet.dev/core/tally"
	"seedlet.dev/world"
)

// What the core shows of its numbers. The names, labels and buckets that begin with kubelet_ and
// prober_ are those of the kubelet, for dashboards; docs/metrics.md is the list of all.

// The kubelet's buckets.
var (
	defaultBounds  = tally.Seconds(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	podStartBounds = tally.Seconds(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300,
		360, 480, 600, 900, 1200, 1800, 2700, 3600)
	imagePullBounds = tally.Seconds(1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900,
		1200, 1800, 2700, 3600)
)

// sizes are the kubelet's classes of images, by what they are larger than, in MiB.
var sizes = []struct {
	above int64
	label string
}{
	{102400, "GT100GB"}, {61440, "60GB-100GB"}, {40960, "40GB-60GB"}, {30720, "30GB-40GB"},
	{20480, "20GB-30GB"}, {10240, "10GB-20GB"}, {5120, "5GB-10GB"}, {1024, "1GB-5GB"},
	{500, "500MB-1GB"}, {100, "100MB-500MB"}, {10, "10MB-100MB"}, {0, "0-10MB"},
}

// sizeOf is the class of an image of a size that is known if it is not zero.
func sizeOf(bytes int64) string {
	for _, s := range sizes {
		if bytes > s.above<<20 {
			return s.label
		}
	}
	return "N/A"
}

// metricList is metrics in the making.
type metricList []world.Metric

// labels makes labels of name, value, name, value.
func labels(pairs []string) []world.Label {
	var made []world.Label
	for i := 0; i < len(pairs); i += 2 {
		made = append(made, world.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return made
}

func (m *metricList) gauge(name, help string, v int, pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Value: float64(v), Labels: labels(pairs)})
}

func (m *metricList) counter(name, help string, v uint64, pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Counter: true, Value: float64(v),
		Labels: labels(pairs)})
}

func (m *metricList) histogram(name, help string, h *tally.Histogram, bounds tally.Bounds,
	pairs ...string) {
	*m = append(*m, world.Metric{Name: name, Help: help, Histogram: h.Shown(bounds),
		Labels: labels(pairs)})
}

// counters are one metric for each word that was counted. A word is the values of the labels,
// with a space between them.
func (m *metricList) counters(name, help string, c tally.Counters, names ...string) {
	for _, word := range c.Words() {
		var pairs []string
		for i, value := range strings.SplitN(word, " ", len(names)) {
			pairs = append(pairs, names[i], value)
		}
		m.counter(name, help, c[word], pairs...)
	}
}

func (m *metricList) histograms(name, help string, h tally.Histograms, bounds tally.Bounds,
	label string) {
	for _, word := range h.Words() {
		m.histogram(name, help, h[word], bounds, label, word)
	}
}

// metrics are the agent's counters, and every bound with what it bounds.
func (a *Agent) metrics() []world.Metric {
	var m metricList
	a.ownMetrics(&m)
	a.podMetrics(&m)
	a.startMetrics(&m)
	a.relistMetrics(&m)
	slices.SortStableFunc(m, func(x, y world.Metric) int { return cmp.Compare(x.Name, y.Name) })
	return m
}

// podMetrics are of the pods that there are.
func (a *Agent) podMetrics(m *metricList) {
	const running, desired, active = "kubelet_running_containers", "kubelet_desired_pods",
		"kubelet_active_pods"
	s, all := &a.state, &a.state.Tally.Total
	m.gauge("kubelet_node_name", "One, for the name of the node.", 1, "node", s.Node.Name)
	m.gauge("kubelet_running_pods", "Pods that have a running sandbox.", all.Running)
	help := "Containers that the runtime has, by their state."
	m.gauge(running, help, all.Created, "container_state", "created")
	m.gauge(running, help, all.Runs, "container_state", "running")
	m.gauge(running, help, all.Unknown, "container_state", "unknown")
	m.gauge(running, help, all.Exited, "container_state", "exited")
	help = "Pods that are to run here; static is true for those of manifests."
	m.gauge(desired, help, len(s.Bound), "static", "")
	m.gauge(desired, help, all.Static+len(s.Refused), "static", "true")
	help = "Pods that take room of the node; static is true for those of manifests."
	m.gauge(active, help, all.Active, "static", "")
	m.gauge(active, help, all.ActiveStatic, "static", "true")
	m.gauge("kubelet_mirror_pods", "Mirrors of static pods at the API server.", len(s.Mirrored))
	m.gauge("kubelet_managed_ephemeral_containers", "Ephemeral containers of pods.", all.Ephemeral)
}

// startMetrics are of what was begun, and how long it took.
func (a *Agent) startMetrics(m *metricList) {
	t := &a.state.Tally
	m.counter("kubelet_started_pods_total", "Sandboxes that were asked for.", t.PodsStarted)
	m.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made.",
		t.PodsFailed)
	m.counters("kubelet_started_containers_total", "Attempts to start a container.", t.Started,
		"container_type")
	m.counters("kubelet_started_containers_errors_total",
		"Attempts to start a container that failed, by what failed.", t.Failed, "container_type",
		"code")
	m.counters("kubelet_restarted_pods_total",
		"Pods that were removed and made again with one UID.", t.PodsRestarted, "static")
	m.counter("kubelet_orphaned_runtime_pods_total",
		"Pods that were found in the runtime before a source told of them.", t.Orphans)
	m.counters("kubelet_admission_rejections_total", "Pods that were rejected.", t.Rejected,
		"reason")
	m.counters("kubelet_preemptions", "Pods that were ended to make room for a critical one.",
		t.Preempted, "preemption_signal")
	m.counters("kubelet_evictions", "Pods that were ended because of what they or others use.",
		t.Evicted, "eviction_signal")
	m.histogram("kubelet_pod_start_duration_seconds",
		"Time from when the agent sees a pod to when it is Running.", &t.PodStart, podStartBounds)
	m.histogram("kubelet_pod_start_total_duration_seconds", "Time from the creation of a pod to "+
		"when all its containers are seen to run at the API server.", &t.PodStartTotal,
		podStartBounds)
	m.histogram("kubelet_pod_start_sli_duration_seconds", "Time from the creation of a "+
		"stateless pod to when all its containers are seen to run at the API server, without that "+
		"for pulling images and for init containers.", &t.PodStartSLI, podStartBounds)
	m.histogram("kubelet_pod_worker_start_duration_seconds",
		"Time from when the agent sees a pod to the first operation for it.", &t.WorkStart,
		defaultBounds)
	m.histograms("kubelet_pod_worker_duration_seconds",
		"Time for which operations for a pod follow each other without a break.", t.Work,
		defaultBounds, "operation_type")
	m.histograms("kubelet_image_pull_duration_seconds",
		"Time that a pull of an image took that succeeded, by the size of the image.", t.Pulls,
		imagePullBounds, "image_size_in_bytes")
}

// relistMetrics are of the looks at the runtime.
func (a *Agent) relistMetrics(m *metricList) {
	s := &a.state
	m.histogram("kubelet_pleg_relist_duration_seconds", "Time that a relist took.",
		&s.Tally.Relist, defaultBounds)
	m.histogram("kubelet_pleg_relist_interval_seconds",
		"Time from the beginning of a relist to that of the next.", &s.Tally.RelistInterval,
		defaultBounds)
	var seen int
	if !s.Relist.AsOf.IsZero() {
		seen = int(s.Relist.AsOf.Unix())
	}
	m.gauge("kubelet_pleg_last_seen_seconds",
		"Unix time at which the newest relist that succeeded began; zero before there is one.", seen)
}

// probeMetrics are of the probes of all pods. It is the one answer that has something of each.
func (a *Agent) probeMetrics() []world.Metric {
	var m metricList
	const total, took = "prober_probe_total", "prober_probe_duration_seconds"
	for _, uid := range a.uids {
		p, t := a.state.Pods[uid], a.state.Tally.of(uid)
		for _, key := range slices.Sorted(maps.Keys(t.Probes)) {
			its := t.Probes[key]
			container, kind, _ := strings.Cut(key, " ")
			for _, result := range []struct {
				word string
				n    uint64
			}{{"successful", its.Good}, {"failed", its.Bad}, {"unknown", its.Unknown}} {
				if result.n > 0 {
					m.counter(total, "Answers to probes, by what they meant.", result.n,
						"probe_type", kind, "result", result.word, "container", container,
						"pod", p.Name, "namespace", p.Namespace, "pod_uid", uid)
				}
			}
			if a.names[p.FullName()][0] == uid { // it is told without the UID: of one pod only
				m.histogram(took, "Time that probes took which did not fail.", &its.Took,
					defaultBounds, "probe_type", kind, "container", container, "pod", p.Name,
					"namespace", p.Namespace)
			}
		}
	}
	slices.SortStableFunc(m, func(x, y world.Metric) int { return cmp.Compare(x.Name, y.Name) })
	return m
}
