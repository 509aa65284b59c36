package stats

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resource is one of the numbers of /metrics/resource, by the name that metrics-server and
// dashboards know, after "node_", "container_" or "pod_".
type resource struct {
	name, help string // of something
	gauge      bool   // else it is a counter
	container  bool   // only containers have it
	// of is the number and the time of its sample; zero if it needs none. False: it is not known.
	of func(*consumer) (value float64, at time.Time, known bool)
}

// consumer is what uses resources, and the labels that say who it is.
type consumer struct {
	labels []string
	began  metav1.Time
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	swap   *statsapi.SwapStats
}

// The labels of containers and pods.
const (
	containerLabel = "container"
	podLabel       = "pod"
	namespaceLabel = "namespace"
)

// resources are all of them. Each has the time of its sample: only so can those who divide by time
// divide by the right one.
var resources = []resource{
	{"cpu_usage_seconds_total", "How long processors have worked in all, for the ", false, false,
		func(c *consumer) (float64, time.Time, bool) {
			if c.cpu == nil || c.cpu.UsageCoreNanoSeconds == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.cpu.UsageCoreNanoSeconds) / nano, c.cpu.Time.Time, true
		}},
	{"memory_working_set_bytes", "Memory that is used but for old pages of files, by the ", true,
		false, func(c *consumer) (float64, time.Time, bool) {
			if c.memory == nil || c.memory.WorkingSetBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.memory.WorkingSetBytes), c.memory.Time.Time, true
		}},
	{"start_time_seconds", "When it was started, since the Unix epoch: the ", true, true,
		func(c *consumer) (float64, time.Time, bool) { // its time would be that of long ago
			return float64(c.began.UnixNano()) / nano, time.Time{}, c.began.Unix() > 0
		}},
	{"swap_limit_bytes", "Swap that may be used, by the ", true, true,
		func(c *consumer) (float64, time.Time, bool) {
			if c.swap == nil || c.swap.SwapAvailableBytes == nil || c.swap.SwapUsageBytes == nil {
				return 0, time.Time{}, false
			}
			return float64(*c.swap.SwapAvailableBytes) + float64(*c.swap.SwapUsageBytes),
				c.swap.Time.Time, true
		}},
	{"swap_usage_bytes", "Swap that is used, by the ", true, false,
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
		unavailable(w, err)
		return
	}
	p := newPage(w, r)
	defer p.end()
	pods, containers := consumers(u.pods)
	node := consumer{cpu: u.node.CPU, memory: u.node.Memory, swap: u.node.Swap}
	p.resources("container", containers)
	p.resources("node", []consumer{node})
	p.resources("pod", pods)
	failed := 0.0
	if u.err != nil {
		failed = 1
	}
	p.begin("resource_scrape_error",
		"Whether anything could not be had for this page: 1, else 0.", true)
	p.put(failed)
}

// resources writes what some use.
func (p *page) resources(whose string, all []consumer) {
	for _, r := range resources {
		if r.container && whose != "container" {
			continue
		}
		p.begin(whose+"_"+r.name, r.help+whose+".", r.gauge)
		for i := range all {
			if value, at, known := r.of(&all[i]); known {
				p.millis = 0
				if !at.IsZero() {
					p.millis = at.UnixMilli()
				}
				p.put(value, all[i].labels...)
			}
		}
		p.millis = 0
	}
}

// consumers are the pods and their containers. Of pods of one name, one of which has replaced the
// other, the one that began last is shown: twice the same series is no page.
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
				continue // metrics-server drops the whole pod for half a container
			}
			containers = append(containers, consumer{
				append([]string{containerLabel, c.Name}, labels...),
				c.StartTime, c.CPU, c.Memory, c.Swap})
		}
	}
	return pods, containers
}
