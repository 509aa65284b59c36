// Package portmetrics counts events that only the real ports observe: the duration of calls to the
// runtime, the API server and CSI drivers, and the requests of clients. The core counts everything
// else itself.
//
// The names, labels and buckets are the kubelet's, for dashboards. The contract: counting never
// blocks and never fails; the values of a label are a closed list, whatever clients send; a scrape
// reads the metrics with Gather. Start reading at Metrics.
package portmetrics

import (
	"math"
	"regexp"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Options configure Metrics.
type Options struct {
	Version string // as in "v1.36.3"
	// ClientExpiry returns when the agent's client certificate for the API server expires; the zero
	// time if it has none. Nil without an API server.
	ClientExpiry func() time.Time
}

// Metrics are the metrics of the real ports. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	runtime  runtimeMetrics
	http     httpMetrics
	csi      *csiMetrics

	podResources podResourceMetrics
}

// New returns metrics that are all zero, except those of client-go, which are global to the
// process.
func New(o Options) *Metrics {
	n := &Metrics{registry: prometheus.NewRegistry(), runtime: newRuntime(), http: newHTTP(),
		csi: newCSI(), podResources: newPodResources()}
	n.registry.MustRegister(buildInfo(o.Version), n.runtime.operations, n.runtime.durations,
		n.runtime.errors, n.runtime.sandboxes, n.runtime.sandboxErrors, n.http.requests,
		n.http.durations, n.http.inFlight, n.csi.durations)
	n.registry.MustRegister(n.podResources.collectors()...)
	registerClient(n.registry)
	if o.ClientExpiry != nil {
		n.registry.MustRegister(timeToLive(o.ClientExpiry))
	}
	return n
}

// Gather implements prometheus.Gatherer.
func (n *Metrics) Gather() ([]*dto.MetricFamily, error) { return n.registry.Gather() }

// versionText matches the major and minor version.
var versionText = regexp.MustCompile(`^v?(\d+)\.(\d+)`)

func buildInfo(version string) prometheus.Collector {
	labels := prometheus.Labels{
		"major": "", "minor": "", "git_version": version, "git_commit": "", "git_tree_state": "",
		"build_date": "", "go_version": runtime.Version(), "compiler": runtime.Compiler,
		"platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if parts := versionText.FindStringSubmatch(version); parts != nil {
		labels["major"], labels["minor"] = parts[1], parts[2]
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "One, with the build of the agent as labels.", ConstLabels: labels})
	info.Set(1)
	return info
}

// timeToLive is the time until a certificate expires; infinite without one.
func timeToLive(expiry func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_client_ttl_seconds",
		Help: "Time until the client certificate expires; negative after that, infinite without " +
			"a certificate.",
	}, func() float64 {
		if at := expiry(); !at.IsZero() {
			return math.Trunc(time.Until(at).Seconds())
		}
		return math.Inf(1)
	})
}
