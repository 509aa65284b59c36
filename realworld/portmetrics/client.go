package portmetrics

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// The metrics of client-go, which has one global registration for a process.
var (
	clientRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Requests to the API server, by status code.",
	}, []string{"code", "method", "host"})
	clientDurations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rest_client_request_duration_seconds",
		Help:    "Time that the API server took to respond to a request.",
		Buckets: []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60},
	}, []string{"verb", "host"})

	registerClientHooks = sync.OnceFunc(func() {
		metrics.Register(metrics.RegisterOpts{
			RequestResult: clientResult{}, RequestLatency: clientLatency{}})
	})
)

func registerClient(registry *prometheus.Registry) {
	registerClientHooks()
	registry.MustRegister(clientRequests, clientDurations)
}

type clientResult struct{}

func (clientResult) Increment(_ context.Context, code, method, host string) {
	clientRequests.WithLabelValues(code, method, host).Inc()
}

type clientLatency struct{}

func (clientLatency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	clientDurations.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}
