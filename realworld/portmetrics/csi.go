package portmetrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// csiDriversMax bounds the drivers that have a label value of their own. Their names come from
// plugins, of which a node has a handful.
const csiDriversMax = 64

// csiMetrics are the metrics of the calls of CSI drivers.
type csiMetrics struct {
	durations *prometheus.HistogramVec

	mu      sync.Mutex
	drivers map[string]bool // that have a label value of their own
}

func newCSI() *csiMetrics {
	return &csiMetrics{drivers: map[string]bool{}, durations: prometheus.NewHistogramVec(
		prometheus.HistogramOpts{
			Name:    "csi_operations_seconds",
			Help:    "Time that a CSI driver took to respond to a call, by the code of its answer.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
}

// driverLabel returns the label value of a driver.
func (n *csiMetrics) driverLabel(driver string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.drivers[driver] && len(n.drivers) >= csiDriversMax {
		return other
	}
	n.drivers[driver] = true
	return driver
}

// CSICalls returns what counts the calls of a CSI driver, for volumes of a kind whose plugin it has
// replaced, or for others.
func (n *Metrics) CSICalls(driver string, isMigrated bool) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		started := time.Now()
		err := invoke(ctx, method, request, reply, conn, opts...)
		n.csi.durations.WithLabelValues(n.csi.driverLabel(driver), method, status.Code(err).String(),
			strconv.FormatBool(isMigrated)).Observe(time.Since(started).Seconds())
		return err
	}
}
