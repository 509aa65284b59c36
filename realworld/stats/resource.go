package stats

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resourceMetric is a metric of /metrics/resource. Its name follows "node_", "container_" or
// "pod_", as metrics-server and dashboards expect.
type resourceMetric struct {
	name           string
	help           string // without its last word: node, container or pod
	gauge          bool   // otherwise a counter
	containersOnly bool   // exists for containers only
	// value returns the value and the time of its sample (zero for no timestamp); false if it is
	// unknown.
	value func(*consumer) (value float64, at time.Time, known bool)
}

// consumer is a node, pod or container that uses resources, with its labels.
type consumer struct {
	labels    []string
	startedAt metav1.Time
	cpu       *statsapi.CPUStats
	memory    *statsapi.MemoryStats
	swap      *statsapi.SwapStats
}

// Labels of containers and pods.
const (
	containerLabel = "container"
	podLabel       = "pod"
	namespaceLabel = "namespace"
)

// resourceMetrics are all metrics of /metrics/resource. Each carries the time of its sample, so
// that clients compute rates over the right interval.
var resourceMetrics = []resourceMetric{
	{"cpu_usage_seconds_total", "CPU time used, in seconds, by the ", false, false,
		func(c *consumer) (float64, time.Time, bool) {
			if c.cpu == nil || c.cpu.UsageCoreNanoSeconds == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.cpu.UsageCoreNanoSeconds) / nano, c.cpu.Time.Time, true
		}},
	{"memory_working_set_bytes", "Working set in bytes of the ", true,
		false, func(c *consumer) (float64, time.Time, bool) {
			if c.memory == nil || c.memory.WorkingSetBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.memory.WorkingSetBytes), c.memory.Time.Time, true
		}},
	{"start_time_seconds", "Start time in seconds since the Unix epoch of the ", true, true,
		func(c *consumer) (float64, time.Time, bool) { // a timestamp would be long past
			return float64(c.startedAt.UnixNano()) / nano, time.Time{}, c.startedAt.Unix() > 0
		}},
	{"swap_limit_bytes", "Limit of swap in bytes of the ", true, true,
		func(c *consumer) (float64, time.Time, bool) {
			if c.swap == nil || c.swap.SwapAvailableBytes == nil || c.swap.SwapUsageBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.swap.SwapAvailableBytes) + float64(*c.swap.SwapUsageBytes),
				c.swap.Time.Time, true
		}},
	{"swap_usage_bytes", "Swap used, in bytes, by the ", true, false,
		func(c *consumer) (float64, time.Time, bool) {
			if c.swap == nil || c.swap.SwapUsageBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.swap.SwapUsageBytes), c.swap.Time.Time, true
		}},
}

func (s *Source) serveResource(w http.ResponseWriter, r *http.Request) {
	u, err := s.usage.get(r.Context())
	if err != nil {
		respondUnavailable(w, err)
		return
	}
	p := newMetricsPage(w, r)
	defer p.close()
	pods, containers := consumers(u.podStats)
	node := consumer{cpu: u.nodeStats.CPU, memory: u.nodeStats.Memory, swap: u.nodeStats.Swap}
	p.writeResources("container", containers)
	p.writeResources("node", []consumer{node})
	p.writeResources("pod", pods)
	failed := 0.0
	if u.err != nil {
		failed = 1
	}
	p.startMetric("resource_scrape_error",
		"1 if a value of this page could not be measured, 0 otherwise.", true)
	p.writeSample(failed)
}

// writeResources writes the metrics of consumers.
func (p *metricsPage) writeResources(kind string, all []consumer) {
	for _, r := range resourceMetrics {
		if r.containersOnly && kind != "container" {
			continue
		}
		p.startMetric(kind+"_"+r.name, r.help+kind+".", r.gauge)
		for i := range all {
			if value, at, known := r.value(&all[i]); known {
				p.millis = 0
				if !at.IsZero() {
					p.millis = at.UnixMilli()
				}
				p.writeSample(value, all[i].labels...)
			}
		}
		p.millis = 0
	}
}

// consumers returns the pods and their containers. Of pods with the same full name only the one
// that started last is returned, because a page must not have a series twice.
func consumers(all []statsapi.PodStats) (pods, containers []consumer) {
	type name struct{ namespace, name string }
	named := map[name]int{}
	for i, pod := range all {
		key := name{pod.PodRef.Namespace, pod.PodRef.Name}
		if other, taken := named[key]; !taken || all[other].StartTime.Before(&pod.StartTime) {
			named[key] = i
		}
	}
	for i, pod := range all {
		if named[name{pod.PodRef.Namespace, pod.PodRef.Name}] != i {
			continue
		}
		labels := []string{namespaceLabel, pod.PodRef.Namespace, podLabel, pod.PodRef.Name}
		pods = append(pods, consumer{labels, pod.StartTime, pod.CPU, pod.Memory, pod.Swap})
		for _, c := range pod.Containers {
			if c.CPU == nil || c.Memory == nil {
				continue // metrics-server drops a whole pod if a container is incomplete
			}
			containers = append(containers, consumer{
				append([]string{containerLabel, c.Name}, labels...),
				c.StartTime, c.CPU, c.Memory, c.Swap})
		}
	}
	return pods, containers
}
