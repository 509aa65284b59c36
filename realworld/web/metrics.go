package web

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// scrape holds the metrics of one scrape, all read in one turn of the loop.
type scrape struct {
	core  []world.Metric
	loop  []world.Metric
	steps loop.Histogram
}

// metricsHandler serves the metrics of the core, the loop and the process in the text format of
// Prometheus. Every scrape requests the core's metrics again, so a series that the core no longer
// reports is absent from the next scrape.
func (p *Port) metricsHandler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	others := prometheus.Gatherers{process}
	if p.opts.Gatherer != nil {
		others = append(others, p.opts.Gatherer)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := p.request(w, r, func(id world.RequestID) any {
			return &world.MetricsRequest{Request: id}
		})
		if ok {
			counted := p.pending.metrics()
			if p.opts.ServerMetrics != nil {
				counted = append(counted, p.opts.ServerMetrics()...)
			}
			serveMetrics(w, r, scrapeCollector{answer.(scrape), counted}, others...)
		}
	})
}

// probesHandler serves the results of container probes.
func (p *Port) probesHandler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := p.request(w, r, func(id world.RequestID) any {
			return &world.MetricsRequest{Request: id, Probes: true}
		})
		if ok {
			serveMetrics(w, r, coreMetrics(answer.(scrape).core), processStartTime{process})
		}
	})
}

// serveMetrics writes the metrics of one scrape and of other gatherers. An invalid metric does not
// hide the others.
func serveMetrics(w http.ResponseWriter, r *http.Request, c prometheus.Collector,
	others ...prometheus.Gatherer) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	promhttp.HandlerFor(append(prometheus.Gatherers{registry}, others...),
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// processStartTime gathers process_start_time_seconds only: Prometheus detects by it that counters
// were reset.
type processStartTime struct{ process prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (o processStartTime) Gather() ([]*dto.MetricFamily, error) {
	all, err := o.process.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return f.GetName() != "process_start_time_seconds"
	}), err
}

// coreMetrics is a prometheus.Collector of the metrics that the core reported for one scrape.
type coreMetrics []world.Metric

// Describe sends nothing: the set of metrics is known only when they are collected.
func (t coreMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (t coreMetrics) Collect(out chan<- prometheus.Metric) {
	for _, m := range t {
		out <- prometheusMetric(m)
	}
}

// scrapeCollector is a prometheus.Collector of one scrape, probes excluded.
type scrapeCollector struct {
	scrape
	web []world.Metric
}

// Describe sends nothing: the set of metrics is known only when they are collected.
func (s scrapeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics.
func (s scrapeCollector) Collect(out chan<- prometheus.Metric) {
	for _, metrics := range [][]world.Metric{s.core, s.loop, s.web} {
		coreMetrics(metrics).Collect(out)
	}
	buckets := map[float64]uint64{}
	s.steps.Buckets(func(boundSeconds float64, cumulative uint64) {
		buckets[boundSeconds] = cumulative
	})
	out <- prometheus.MustNewConstHistogram(
		prometheus.NewDesc("seedlet_step_duration_seconds",
			"Duration of one step of the core.", nil, nil),
		s.steps.Count, s.steps.Sum.Seconds(), buckets)
}

// prometheusMetric converts a metric of the core. An invalid one becomes an error of the scrape.
func prometheusMetric(m world.Metric) prometheus.Metric {
	var labels, values []string
	for _, l := range m.Labels {
		labels, values = append(labels, l.Name), append(values, l.Value)
	}
	kind := prometheus.GaugeValue
	if m.Counter {
		kind = prometheus.CounterValue
	}
	desc := prometheus.NewDesc(m.Name, m.Help, labels, nil)
	if h := m.Histogram; h != nil {
		return prometheusHistogram(desc, h, values)
	}
	made, err := prometheus.NewConstMetric(desc, kind, m.Value, values...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}

func prometheusHistogram(desc *prometheus.Desc, h *world.Histogram,
	values []string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		buckets[bound] = h.Counts[i]
	}
	made, err := prometheus.NewConstHistogram(desc, h.Count, h.Sum, buckets, values...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}
