package web

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := p.ask(w, r, func(id world.RequestID) any {
			return &world.MetricsRequest{Request: id}
		})
		if !ok {
			return
		}
		scrape := prometheus.NewRegistry()
		scrape.MustRegister(scraped{answer.(numbers), p.pending.metrics()})
		promhttp.HandlerFor(prometheus.Gatherers{scrape, process}, promhttp.HandlerOpts{
			// One number that cannot be shown must not hide all others.
			ErrorHandling: promhttp.ContinueOnError,
		}).ServeHTTP(w, r)
	})
}

// scraped is a prometheus.Collector for one scrape.
type scraped struct {
	numbers
	web []world.Metric
}

// Describe sends nothing: which metrics there are, only the core knows.
func (s scraped) Describe(chan<- *prometheus.Desc) {}

// Collect sends all numbers.
func (s scraped) Collect(out chan<- prometheus.Metric) {
	for _, metrics := range [][]world.Metric{s.core, s.loop, s.web} {
		for _, m := range metrics {
			out <- metric(m)
		}
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
	made, err := prometheus.NewConstMetric(desc, kind, m.Value, values...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}
