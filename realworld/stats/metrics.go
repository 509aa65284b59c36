package stats

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeMetricFamilies are metrics of /metrics/cadvisor that the runtime reports, by name. They
// are requested only for pods without a cgroup, as those in virtual machines: their values are
// whole numbers, seconds included, and containerd limits itself to ten pods a second.
type runtimeMetricFamilies map[string]*runtimeMetricFamily

type runtimeMetricFamily struct {
	help    string
	gauge   bool
	samples []runtimeMetricSample
}

type runtimeMetricSample struct {
	labels []string // names and values
	value  float64
	millis int64
}

// validMetricName matches valid names of metrics and labels. Metrics of the runtime with other
// names are left out.
var validMetricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// requestRuntimeMetrics requests the runtime's metrics of some pods. A runtime without metrics is
// not a failure.
func (s *Source) requestRuntimeMetrics(ctx context.Context, pods []*v1.Pod) (runtimeMetricFamilies,
	error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RuntimeTimeout)
	defer cancel()
	described, err := s.opts.Runtime.ListMetricDescriptors(ctx,
		&runtimeapi.ListMetricDescriptorsRequest{})
	if status.Code(err) == codes.Unimplemented || err == nil && len(described.Descriptors) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the runtime what metrics it has: %w", err)
	}
	answer, err := s.opts.Runtime.ListPodSandboxMetrics(ctx,
		&runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the runtime for metrics: %w", err)
	}
	wanted := map[string]bool{}
	for _, pod := range pods {
		wanted[pod.Namespace+"/"+pod.Name] = true
	}
	descriptors := map[string]*runtimeapi.MetricDescriptor{}
	for _, d := range described.Descriptors {
		if validMetricName.MatchString(d.GetName()) && !slices.ContainsFunc(d.LabelKeys,
			func(key string) bool { return !validMetricName.MatchString(key) }) {
			descriptors[d.Name] = d
		}
	}
	found := runtimeMetricFamilies{}
	for _, pod := range answer.GetPodMetrics() {
		found.add(pod.GetMetrics(), descriptors, wanted)
		for _, c := range pod.GetContainerMetrics() {
			found.add(c.GetMetrics(), descriptors, wanted)
		}
	}
	return found, nil
}

// add adds the metrics of the given pods. Samples that do not fit their descriptors are left out.
func (t runtimeMetricFamilies) add(all []*runtimeapi.Metric,
	descriptors map[string]*runtimeapi.MetricDescriptor, wanted map[string]bool) {
	for _, m := range all {
		d := descriptors[m.GetName()]
		if d == nil || len(d.LabelKeys) != len(m.LabelValues) || m.Value == nil {
			continue
		}
		sample := runtimeMetricSample{value: float64(m.Value.Value), millis: m.Timestamp / 1e6}
		labels := map[string]string{}
		for i, key := range d.LabelKeys {
			labels[key] = m.LabelValues[i]
			sample.labels = append(sample.labels, key, m.LabelValues[i])
		}
		if !wanted[labels[namespaceLabel]+"/"+labels[podLabel]] ||
			len(labels) != len(d.LabelKeys) {
			continue
		}
		if t[m.Name] == nil {
			t[m.Name] = &runtimeMetricFamily{help: d.Help,
				gauge: m.MetricType == runtimeapi.MetricType_GAUGE}
		}
		t[m.Name].samples = append(t[m.Name].samples, sample)
	}
}

// writeRuntimeMetric writes the runtime's samples of one metric.
func (p *metricsPage) writeRuntimeMetric(f *runtimeMetricFamily) {
	if f == nil {
		return
	}
	for _, sample := range f.samples {
		p.millis = sample.millis
		p.writeSample(sample.value, sample.labels...)
	}
	p.millis = 0
}

// writeOtherRuntimeMetrics writes the runtime's metrics that the page does not have otherwise.
func (p *metricsPage) writeOtherRuntimeMetrics(reported runtimeMetricFamilies) {
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if !p.started[name] {
			p.startMetric(name, reported[name].help, reported[name].gauge)
			p.writeRuntimeMetric(reported[name])
		}
	}
}
