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

// toldMetrics are metrics of the page for dashboards that the runtime has, by name. They are asked
// for only for the sake of pods that have no cgroup to be looked at, as those in virtual machines:
// their values are whole numbers, of seconds too, and containerd takes its time (ten pods a second,
// to spare itself).
type toldMetrics map[string]*toldFamily

type toldFamily struct {
	help    string
	gauge   bool
	samples []toldSample
}

type toldSample struct {
	labels []string // names and values
	value  float64
	millis int64
}

// metricName is what a metric or a label may be called; what a runtime calls otherwise is left out.
var metricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// runtimeMetrics asks the runtime for what it has of some pods. One that has no metrics is no
// failure.
func (s *Source) runtimeMetrics(ctx context.Context, pods []*v1.Pod) (toldMetrics, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RuntimeMax)
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
		if metricName.MatchString(d.GetName()) && !slices.ContainsFunc(d.LabelKeys,
			func(key string) bool { return !metricName.MatchString(key) }) {
			descriptors[d.Name] = d
		}
	}
	found := toldMetrics{}
	for _, pod := range answer.GetPodMetrics() {
		found.add(pod.GetMetrics(), descriptors, wanted)
		for _, c := range pod.GetContainerMetrics() {
			found.add(c.GetMetrics(), descriptors, wanted)
		}
	}
	return found, nil
}

// add takes metrics of pods that are wanted, if they are as they were described.
func (t toldMetrics) add(all []*runtimeapi.Metric,
	descriptors map[string]*runtimeapi.MetricDescriptor, wanted map[string]bool) {
	for _, m := range all {
		d := descriptors[m.GetName()]
		if d == nil || len(d.LabelKeys) != len(m.LabelValues) || m.Value == nil {
			continue
		}
		sample := toldSample{value: float64(m.Value.Value), millis: m.Timestamp / 1e6}
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
			t[m.Name] = &toldFamily{help: d.Help,
				gauge: m.MetricType == runtimeapi.MetricType_GAUGE}
		}
		t[m.Name].samples = append(t[m.Name].samples, sample)
	}
}

// told writes what the runtime tells of one metric.
func (p *page) told(f *toldFamily) {
	if f == nil {
		return
	}
	for _, sample := range f.samples {
		p.millis = sample.millis
		p.put(sample.value, sample.labels...)
	}
	p.millis = 0
}

// others writes what the runtime tells beside the page's own metrics.
func (p *page) others(told toldMetrics) {
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if !p.begun[name] {
			p.begin(name, told[name].help, told[name].gauge)
			p.told(told[name])
		}
	}
}
