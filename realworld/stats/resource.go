package stats

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resourceMetric is one of the numbers of /metrics/resource, by the names that metrics-server and
// dashboards know.
type resourceMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) resourceMetric {
	return resourceMetric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) resourceMetric {
	return resourceMetric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// The labels of containers and pods.
const (
	containerLabel = "container"
	podLabel       = "pod"
	namespaceLabel = "namespace"
)

var (
	nodeCPU = counter("node_cpu_usage_seconds_total",
		"How long the processors of the node have worked in all.")
	nodeMemory = gauge("node_memory_working_set_bytes", "The working set of the node.")
	nodeSwap   = gauge("node_swap_usage_bytes", "How much of its swap the node uses.")

	containerStart = gauge("container_start_time_seconds",
		"When the container was started, since the Unix epoch.",
		containerLabel, podLabel, namespaceLabel)
	containerCPU = counter("container_cpu_usage_seconds_total",
		"How long processors have worked for the container in all.",
		containerLabel, podLabel, namespaceLabel)
	containerMemory = gauge("container_memory_working_set_bytes",
		"The working set of the container.", containerLabel, podLabel, namespaceLabel)
	containerSwap = gauge("container_swap_usage_bytes", "How much swap the container uses.",
		containerLabel, podLabel, namespaceLabel)
	containerSwapLimit = gauge("container_swap_limit_bytes",
		"How much swap the container may use.", containerLabel, podLabel, namespaceLabel)

	podCPU = counter("pod_cpu_usage_seconds_total",
		"How long processors have worked for the pod in all.", podLabel, namespaceLabel)
	podMemory = gauge("pod_memory_working_set_bytes", "The working set of the pod.",
		podLabel, namespaceLabel)
	podSwap = gauge("pod_swap_usage_bytes", "How much swap the pod uses.", podLabel, namespaceLabel)

	scrapeError = gauge("resource_scrape_error",
		"Whether anything could not be had for this page: 1, else 0.")
)

func (s *Source) serveResource(w http.ResponseWriter, r *http.Request) {
	u, err := s.usage.get(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	page(w, r, resources{u})
}

// page serves what collectors have to say now.
func page(w http.ResponseWriter, r *http.Request, collectors ...prometheus.Collector) {
	scrape := prometheus.NewRegistry()
	for _, c := range collectors {
		if err := scrape.Register(c); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	promhttp.HandlerFor(scrape, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // one bad number must not hide all others
	}).ServeHTTP(w, r)
}

// resources is a prometheus.Collector for one scrape.
type resources struct{ *usage }

// Describe sends nothing: which containers there are is different each time.
func (resources) Describe(chan<- *prometheus.Desc) {}

// Collect sends all numbers, each with the time of its sample: only so can those who divide by
// time divide by the right one.
func (c resources) Collect(out chan<- prometheus.Metric) {
	failed := 0.0
	if c.err != nil {
		failed = 1
	}
	out <- prometheus.MustNewConstMetric(scrapeError.desc, scrapeError.kind, failed)
	to := told{out}
	to.cpu(nodeCPU, c.node.CPU)
	to.memory(nodeMemory, c.node.Memory)
	to.swap(nodeSwap, c.node.Swap)
	named := map[string]int{} // which pod has a name, of those that were replaced in place
	for i, pod := range c.pods {
		name := pod.PodRef.Namespace + "/" + pod.PodRef.Name
		if other, taken := named[name]; !taken || c.pods[other].StartTime.Before(&pod.StartTime) {
			named[name] = i
		}
	}
	for i, pod := range c.pods {
		if named[pod.PodRef.Namespace+"/"+pod.PodRef.Name] == i {
			to.pod(&pod)
		}
	}
}

// told is where metrics are sent to.
type told struct{ out chan<- prometheus.Metric }

func (t told) pod(p *statsapi.PodStats) {
	name, namespace := p.PodRef.Name, p.PodRef.Namespace
	for _, c := range p.Containers {
		if c.CPU == nil || c.Memory == nil {
			continue // metrics-server drops the whole pod for half a container
		}
		if c.StartTime.Unix() > 0 {
			// Without a time: it would be that of a sample long ago.
			t.out <- prometheus.MustNewConstMetric(containerStart.desc, containerStart.kind,
				float64(c.StartTime.UnixNano())/1e9, c.Name, name, namespace)
		}
		t.cpu(containerCPU, c.CPU, c.Name, name, namespace)
		t.memory(containerMemory, c.Memory, c.Name, name, namespace)
		t.swap(containerSwap, c.Swap, c.Name, name, namespace)
		if c.Swap != nil && c.Swap.SwapAvailableBytes != nil && c.Swap.SwapUsageBytes != nil {
			t.send(containerSwapLimit, c.Swap.Time.Time,
				float64(*c.Swap.SwapAvailableBytes+*c.Swap.SwapUsageBytes), c.Name, name, namespace)
		}
	}
	t.cpu(podCPU, p.CPU, name, namespace)
	t.memory(podMemory, p.Memory, name, namespace)
	t.swap(podSwap, p.Swap, name, namespace)
}

func (t told) cpu(m resourceMetric, cpu *statsapi.CPUStats, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		t.send(m, cpu.Time.Time, float64(*cpu.UsageCoreNanoSeconds)/1e9, labels...)
	}
}

func (t told) memory(m resourceMetric, memory *statsapi.MemoryStats, labels ...string) {
	if memory != nil && memory.WorkingSetBytes != nil {
		t.send(m, memory.Time.Time, float64(*memory.WorkingSetBytes), labels...)
	}
}

func (t told) swap(m resourceMetric, swap *statsapi.SwapStats, labels ...string) {
	if swap != nil && swap.SwapUsageBytes != nil {
		t.send(m, swap.Time.Time, float64(*swap.SwapUsageBytes), labels...)
	}
}

// send sends one number. A name that is no text is an error of the scrape, not its end.
func (t told) send(m resourceMetric, at time.Time, value float64, labels ...string) {
	metric, err := prometheus.NewConstMetric(m.desc, m.kind, value, labels...)
	if err != nil {
		t.out <- prometheus.NewInvalidMetric(m.desc, err)
		return
	}
	t.out <- prometheus.NewMetricWithTimestamp(at, metric)
}
