package identity

import (
	"math"
	"sync"
	"time"

	"seedlet.dev/world"
)

// Metrics returns the metrics of the requests for client certificates.
func (i *Identity) Metrics() []world.Metric {
	return []world.Metric{{
		Name:    "kubelet_certificate_manager_client_expiration_renew_errors",
		Help:    "Failed requests for a client certificate.",
		Counter: true, Value: float64(i.renewErrors.Load()),
	}}
}

// Metrics returns the metrics of a serving certificate that is signed through the API server; none
// of another one, as in the kubelet.
func (s *Serving) Metrics() []world.Metric {
	r := s.request
	if r == nil {
		return nil
	}
	timeToLive := math.Inf(1)
	if current := r.current.Load(); current != nil {
		timeToLive = math.Trunc(time.Until(current.Leaf.NotAfter).Seconds())
	}
	return []world.Metric{{
		Name: "kubelet_certificate_manager_server_ttl_seconds",
		Help: "Time until the serving certificate expires; negative after that, infinite without " +
			"a certificate.",
		Value: timeToLive,
	}, {
		Name:      "kubelet_certificate_manager_server_rotation_seconds",
		Help:      "Age of serving certificates when the next one replaced them.",
		Histogram: r.rotations.export(),
	}, {
		Name:    "kubelet_server_expiration_renew_errors",
		Help:    "Failed requests for a serving certificate.",
		Counter: true, Value: float64(r.renewErrors.Load()),
	}}
}

// rotationBounds are the kubelet's: from a minute to four years, in seconds.
var rotationBounds = [...]float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000,
	31104000, 124416000}

// rotationAges is a histogram of the ages of replaced certificates. The zero value is ready.
type rotationAges struct {
	mu     sync.Mutex
	counts [len(rotationBounds)]uint64 // cumulative, by rotationBounds
	count  uint64
	sum    float64
}

func (h *rotationAges) observe(age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	h.sum += age.Seconds()
	for i, bound := range rotationBounds {
		if age.Seconds() <= bound {
			h.counts[i]++
		}
	}
}

func (h *rotationAges) export() *world.Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := h.counts
	return &world.Histogram{Bounds: rotationBounds[:], Counts: counts[:], Count: h.count, Sum: h.sum}
}
