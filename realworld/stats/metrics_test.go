package stats

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

// A pod without a cgroup has the runtime's metrics, merged with the samples of the same name.
// Samples of other pods, and those that do not fit their descriptors, are left out.
func TestMetricsOfTheRuntime(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1"), podOf("u-2", "box", "main", "c2")}
	keys := []string{"pod", "namespace", "container"}
	metric := func(name string, value uint64, labels ...string) *runtimeapi.Metric {
		return &runtimeapi.Metric{Name: name, Timestamp: 5_000_000, LabelValues: labels,
			MetricType: runtimeapi.MetricType_GAUGE, Value: n(value)}
	}
	b.runtime.metrics = func() ([]*runtimeapi.MetricDescriptor, []*runtimeapi.PodSandboxMetrics,
		error) {
		return []*runtimeapi.MetricDescriptor{
				{Name: "container_memory_rss", LabelKeys: keys},
				{Name: "container_own", Help: "a\nb", LabelKeys: append(keys, "x")},
				{Name: "container_last_seen", LabelKeys: keys}, {Name: "bad name", LabelKeys: keys},
				{Name: "container_bad_key", LabelKeys: []string{"pod", "namespace", "a-b"}},
				{Name: "container_twice", LabelKeys: []string{"pod", "namespace", "pod"}}, nil,
			}, []*runtimeapi.PodSandboxMetrics{nil, {
				Metrics: []*runtimeapi.Metric{nil, metric("container_own", 1, "box", "ns", "", "y"),
					metric("container_own", 2, "box", "ns", ""),
					metric("container_own", 3, "web", "ns", "main", "y"),
					metric("bad name", 4, "box", "ns", ""), metric("unknown", 5, "box", "ns", ""),
					metric("container_bad_key", 6, "box", "ns", ""),
					metric("container_twice", 7, "box", "ns", "box"),
					metric("container_last_seen", 8, "box", "ns", "")},
				ContainerMetrics: []*runtimeapi.ContainerMetrics{{Metrics: []*runtimeapi.Metric{
					metric("container_memory_rss", 9, "box", "ns", "main")}}},
			}}, nil
	}
	page := b.get("/metrics/cadvisor").Body.String()
	got := map[string]string{}
	for name, value := range series(t, page) {
		if strings.Contains(name, `pod="box"`) {
			got[name] = value
		}
	}
	want := map[string]string{
		`container_memory_rss{container="main",namespace="ns",pod="box"}`: "9 5",
		`container_own{container="",namespace="ns",pod="box",x="y"}`:      "1 5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Count(page, "# TYPE container_memory_rss ") != 1 ||
		!strings.Contains(page, "# HELP container_own a\\nb\n# TYPE container_own gauge\n") ||
		!strings.Contains(page, "container_scrape_error 0") {
		t.Error(page)
	}
	b.runtime.metrics = func() ([]*runtimeapi.MetricDescriptor, []*runtimeapi.PodSandboxMetrics,
		error) {
		return nil, nil, status.Error(codes.Unavailable, "away")
	}
	b.pass(sampleAgeMax)
	page = b.get("/metrics/cadvisor").Body.String()
	if !strings.Contains(page, "container_scrape_error 1") ||
		!strings.Contains(page, `container_memory_rss{container="main"`) {
		t.Error(page)
	}
}

// checkRuntimeMetrics requests the runtime's metrics of a pod as if its cgroup had not been found:
// containerd 2 has some, 1.6 has none, which is not a failure.
func checkRuntimeMetrics(t *testing.T, node *nodetest.Node, pod *v1.Pod, has bool) {
	s := New(Options{Runtime: node.Runtime()})
	defer s.Close()
	reported, err := s.requestRuntimeMetrics(t.Context(), []*v1.Pod{pod})
	if err != nil {
		t.Fatal(err)
	}
	memory := reported["container_memory_working_set_bytes"]
	if (memory != nil) != has || has && len(memory.samples) != 1 {
		t.Errorf("%d metrics, of memory %+v", len(reported), memory)
	}
}
