package portmetrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type httpMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
}

func newHTTP() httpMetrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	return httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Requests to the HTTP API."}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds",
			Help: "Time that it took to serve a request to the HTTP API."}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests",
			Help: "Requests to the HTTP API that are being served."}, labels),
	}
}

// ServerType is the agent's server that received a request.
type ServerType string

// The servers, with the kubelet's names.
const (
	ReadOnly  ServerType = "readonly"
	ReadWrite ServerType = "readwrite"
)

// Handler counts the requests to a handler. It does not wrap the response writer.
func (n *Metrics) Handler(server ServerType, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pageLabel(r.URL.Path)
		isLongRunning := strconv.FormatBool(slices.Contains(longRunning, page))
		labels := []string{methodLabel(r.Method), page, string(server), isLongRunning}
		n.http.requests.WithLabelValues(labels...).Inc()
		inFlight := n.http.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		started := time.Now()
		defer func() { // also when the handler aborts
			inFlight.Dec()
			n.http.durations.WithLabelValues(labels...).Observe(time.Since(started).Seconds())
		}()
		handler.ServeHTTP(w, r)
	})
}

// other is the label value of all values that are not listed, because clients may send any.
const other = "other"

// pages are the paths that have a label value of their own, by their first element.
var pages = []string{
	"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs",
	"metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "pods", "portForward",
	"run", "runningpods", "stats", "statusz",
}

// longRunning are the pages whose requests last as long as the client wants.
var longRunning = []string{"attach", "debug", "exec", "portForward"}

var methods = []string{http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead,
	http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace}

func pageLabel(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if second, _, _ := strings.Cut(rest, "/"); first == "metrics" && second != "" {
		first += "/" + second
	}
	return listedOrOther(pages, first)
}

func methodLabel(method string) string { return listedOrOther(methods, method) }

func listedOrOther(list []string, word string) string {
	if slices.Contains(list, word) {
		return word
	}
	return other
}
