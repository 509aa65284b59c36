package portmetrics

import (
	"context"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type runtimeMetrics struct {
	operations    *prometheus.CounterVec
	durations     *prometheus.HistogramVec
	errors        *prometheus.CounterVec
	sandboxes     *prometheus.HistogramVec
	sandboxErrors *prometheus.CounterVec
}

func newRuntime() runtimeMetrics {
	operation, handler := []string{"operation_type"}, []string{"runtime_handler"}
	return runtimeMetrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls of the container runtime."}, operation),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Time that the container runtime took to respond to a call.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, operation),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Calls of the container runtime that failed."}, operation),
		sandboxes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds",
			Help: "Time that the container runtime took to create a sandbox."}, handler),
		sandboxErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total",
			Help: "Sandboxes that the container runtime failed to create."}, handler),
	}
}

// RuntimeCalls counts the calls to the container runtime. Streams are not counted, because they
// last as long as the agent.
func (n *Metrics) RuntimeCalls(ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	started := time.Now()
	err := invoke(ctx, method, request, reply, conn, opts...)
	duration, operation := time.Since(started).Seconds(), operationName(path.Base(method))
	n.runtime.operations.WithLabelValues(operation).Inc()
	n.runtime.durations.WithLabelValues(operation).Observe(duration)
	if err != nil {
		n.runtime.errors.WithLabelValues(operation).Inc()
	}
	if m, ok := request.(*runtimeapi.RunPodSandboxRequest); ok {
		n.runtime.sandboxes.WithLabelValues(m.RuntimeHandler).Observe(duration)
		if err != nil {
			n.runtime.sandboxErrors.WithLabelValues(m.RuntimeHandler).Inc()
		}
	}
	return err
}

// operationName returns the kubelet's name of a runtime method, such as "run_podsandbox".
func operationName(method string) string {
	var word strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			word.WriteByte('_')
		}
		word.WriteRune(unicode.ToLower(r))
	}
	return word.String()
}
