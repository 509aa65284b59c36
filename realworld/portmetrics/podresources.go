package portmetrics

import (
	"context"
	"path"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// podResourceMetrics are the metrics of the pod resources API: of all calls, and by call.
type podResourceMetrics struct {
	total            *prometheus.CounterVec
	requests, errors map[string]*prometheus.CounterVec
}

// podResourceCalls are the calls, with the kubelet's names.
var podResourceCalls = []string{"list", "get", "get_allocatable"}

const podResourcePrefix = "kubelet_pod_resources_endpoint_"

func newPodResources() podResourceMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: podResourcePrefix + name,
			Help: help}, []string{"server_api_version"})
	}
	n := podResourceMetrics{
		total:    counter("requests_total", "Calls of the pod resources API."),
		requests: map[string]*prometheus.CounterVec{}, errors: map[string]*prometheus.CounterVec{},
	}
	for _, call := range podResourceCalls {
		n.requests[call] = counter("requests_"+call, "Calls of "+call+" of the pod resources API.")
		n.errors[call] = counter("errors_"+call,
			"Calls of "+call+" of the pod resources API that failed.")
	}
	return n
}

func (n *podResourceMetrics) collectors() []prometheus.Collector {
	all := []prometheus.Collector{n.total}
	for _, call := range podResourceCalls {
		all = append(all, n.requests[call], n.errors[call])
	}
	return all
}

// PodResourceCalls counts the calls of the pod resources API, except those that were rejected by
// the rate limit.
func (n *Metrics) PodResourceCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	const version = "v1"
	call := strings.TrimSuffix(operationName(path.Base(info.FullMethod)), "_resources")
	response, err := handle(ctx, request)
	n.podResources.total.WithLabelValues(version).Inc()
	if requests := n.podResources.requests[call]; requests != nil {
		requests.WithLabelValues(version).Inc()
		if err != nil {
			n.podResources.errors[call].WithLabelValues(version).Inc()
		}
	}
	return response, err
}
