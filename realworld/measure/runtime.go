package measure

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

type runtimeNumbers struct {
	operations    *prometheus.CounterVec
	durations     *prometheus.HistogramVec
	errors        *prometheus.CounterVec
	sandboxes     *prometheus.HistogramVec
	sandboxErrors *prometheus.CounterVec
}

func newRuntime() runtimeNumbers {
	operation, handler := []string{"operation_type"}, []string{"runtime_handler"}
	return runtimeNumbers{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls of the container runtime."}, operation),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Time that the container runtime took to answer a call.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, operation),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Calls of the container runtime that failed."}, operation),
		sandboxes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds",
			Help: "Time that the container runtime took to make a sandbox."}, handler),
		sandboxErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total",
			Help: "Sandboxes that the container runtime failed to make."}, handler),
	}
}

// RuntimeCalls counts the calls over a connection to the container runtime. Streams are not
// counted: they last as long as the agent.
func (n *Numbers) RuntimeCalls(ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, request, reply, conn, opts...)
	took, operation := time.Since(began).Seconds(), operationOf(path.Base(method))
	n.runtime.operations.WithLabelValues(operation).Inc()
	n.runtime.durations.WithLabelValues(operation).Observe(took)
	if err != nil {
		n.runtime.errors.WithLabelValues(operation).Inc()
	}
	if m, is := request.(*runtimeapi.RunPodSandboxRequest); is {
		n.runtime.sandboxes.WithLabelValues(m.RuntimeHandler).Observe(took)
		if err != nil {
			n.runtime.sandboxErrors.WithLabelValues(m.RuntimeHandler).Inc()
		}
	}
	return err
}

// operationOf is the kubelet's word for a method of the runtime, as in "run_podsandbox".
func operationOf(method string) string {
	var word strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			word.WriteByte('_')
		}
		word.WriteRune(unicode.ToLower(r))
	}
	return word.String()
}
