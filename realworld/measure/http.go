package measure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type httpNumbers struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
}

func newHTTP() httpNumbers {
	labels := []string{"method", "path", "server_type", "long_running"}
	return httpNumbers{
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

// ServerType says which server of the agent a request has come to.
type ServerType string

// The servers, in the kubelet's words.
const (
	ReadOnly  ServerType = "readonly"
	ReadWrite ServerType = "readwrite"
)

// Handler counts the requests to a handler. It leaves the response writer as it is.
func (n *Numbers) Handler(server ServerType, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pageOf(r.URL.Path)
		long := strconv.FormatBool(slices.Contains(longRunning, page))
		labels := []string{methodOf(r.Method), page, string(server), long}
		n.http.requests.WithLabelValues(labels...).Inc()
		inFlight := n.http.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		began := time.Now()
		defer func() { // also when the handler aborts
			inFlight.Dec()
			n.http.durations.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		handler.ServeHTTP(w, r)
	})
}

// other is what is not in a list: clients may ask for whatever they like.
const other = "other"

// pages are the paths that are told apart, by their first element.
var pages = []string{
	"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs",
	"metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "pods", "portForward",
	"run", "runningpods", "stats", "statusz",
}

// longRunning are those that last as long as the client likes.
var longRunning = []string{"attach", "debug", "exec", "portForward"}

var methods = []string{http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead,
	http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace}

func pageOf(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if second, _, _ := strings.Cut(rest, "/"); first == "metrics" && second != "" {
		first += "/" + second
	}
	return listed(pages, first)
}

func methodOf(method string) string { return listed(methods, method) }

func listed(list []string, word string) string {
	if slices.Contains(list, word) {
		return word
	}
	return other
}
