// Package measure counts what only the real ports know: how long the runtime and the API server
// take to answer, and what clients ask of the agent. What the core knows it counts itself.
//
// The names, labels and buckets are the kubelet's, for dashboards. The contract: counting never
// blocks and never fails; a label has only values of a closed list, whatever a client sends; a
// scrape reads the numbers with Gather. Start reading at Numbers.
package measure

import (
	"math"
	"regexp"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Options are what the numbers are told of the agent.
type Options struct {
	Version string // as in "v1.36.3"
	// ClientExpiry is when the certificate expires by which the agent is known to the API server;
	// the zero time if it has none. Nil if there is no API server.
	ClientExpiry func() time.Time
}

// Numbers are all that is measured. They are for many goroutines.
type Numbers struct {
	registry *prometheus.Registry
	runtime  runtimeNumbers
	http     httpNumbers

	podResources podResourceNumbers
}

// New makes numbers that are all zero, but for those of the way to the API server, which there is
// one of in a process.
func New(o Options) *Numbers {
	n := &Numbers{registry: prometheus.NewRegistry(), runtime: newRuntime(), http: newHTTP(),
		podResources: newPodResources()}
	n.registry.MustRegister(buildInfo(o.Version), n.runtime.operations, n.runtime.durations,
		n.runtime.errors, n.runtime.sandboxes, n.runtime.sandboxErrors, n.http.requests,
		n.http.durations, n.http.inFlight)
	n.registry.MustRegister(n.podResources.collectors()...)
	registerClient(n.registry)
	if o.ClientExpiry != nil {
		n.registry.MustRegister(timeToLive(o.ClientExpiry))
	}
	return n
}

// Gather implements prometheus.Gatherer.
func (n *Numbers) Gather() ([]*dto.MetricFamily, error) { return n.registry.Gather() }

// versionText takes a version apart: major, minor.
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
		Help: "One, for what the agent is built as.", ConstLabels: labels})
	info.Set(1)
	return info
}

// timeToLive is how long a certificate is still good for; infinitely long if there is none.
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
