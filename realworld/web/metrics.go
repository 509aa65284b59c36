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

// numbers are what one scrape shows, all taken at one moment of the loop.
type numbers struct {
	core  []world.Metric
	loop  []world.Metric
	steps loop.Histogram
}

// metricsHandler serves the numbers of the core and the loop, and those of the process, in the
// text format of Prometheus. The core is asked by each scrape anew; what it
// no longer reports is gone from the next.
func (p *Port) metricsHandler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	others := prometheus.Gatherers{process}
	if p.opts.Measured != nil {
		others = append(others, p.opts.Measured)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := p.ask(w, r, func(id world.RequestID) any {
			return &world.MetricsRequest{Request: id}
		})
		if ok {
			counted := p.pending.metrics()
			if p.opts.Counted != nil {
				counted = append(counted, p.opts.Counted()...)
			}
			serveNumbers(w, r, scraped{answer.(numbers), counted}, others...)
		}
	})
}

// probesHandler serves what came of the probes of containers.
func (p *Port) probesHandler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := p.ask(w, r, func(id world.RequestID) any {
			return &world.MetricsRequest{Request: id, Probes: true}
		})
		if ok {
			serveNumbers(w, r, told(answer.(numbers).core), onlyStart{process})
		}
	})
}

// serveNumbers answers with the numbers of one scrape and those that others keep. One that cannot
// be shown must not hide all others.
func serveNumbers(w http.ResponseWriter, r *http.Request, c prometheus.Collector,
	others ...prometheus.Gatherer) {
	scrape := prometheus.NewRegistry()
	scrape.MustRegister(c)
	promhttp.HandlerFor(append(prometheus.Gatherers{scrape}, others...),
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// onlyStart is when the process was started, by which counters are known to have begun anew.
type onlyStart struct{ process prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (o onlyStart) Gather() ([]*dto.MetricFamily, error) {
	all, err := o.process.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return f.GetName() != "process_start_time_seconds"
	}), err
}

// told is a prometheus.Collector of what the core has told for one scrape.
type told []world.Metric

// Describe sends nothing: which metrics there are, only the core knows.
func (t told) Describe(chan<- *prometheus.Desc) {}

// Collect sends all numbers.
func (t told) Collect(out chan<- prometheus.Metric) {
	for _, m := range t {
		out <- metric(m)
	}
}

// scraped is a prometheus.Collector for one scrape of all that is not of probes.
type scraped struct {
	numbers
	web []world.Metric
}

// Describe sends nothing: which metrics there are, only the core knows.
func (s scraped) Describe(chan<- *prometheus.Desc) {}

// Collect sends all numbers.
func (s scraped) Collect(out chan<- prometheus.Metric) {
	for _, metrics := range [][]world.Metric{s.core, s.loop, s.web} {
		told(metrics).Collect(out)
	}
	buckets := map[float64]uint64{}
	s.steps.Buckets(func(boundSeconds float64, cumulative uint64) {
		buckets[boundSeconds] = cumulative
	})
	out <- prometheus.MustNewConstHistogram(
		prometheus.NewDesc("seedlet_step_duration_seconds",
			"How long the core takes for one step.", nil, nil),
		s.steps.Count, s.steps.Sum.Seconds(), buckets)
}

// metric makes one number of the core one of Prometheus. A bad one is an error of the scrape.
func metric(m world.Metric) prometheus.Metric {
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
		return histogram(desc, h, values)
	}
	made, err := prometheus.NewConstMetric(desc, kind, m.Value, values...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}

func histogram(desc *prometheus.Desc, h *world.Histogram, values []string) prometheus.Metric {
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
