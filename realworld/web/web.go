// Package web is the requests port: the HTTP API of the node. It turns requests into events and the
// core's answers into responses.
//
// Three handlers share one Port: Health for the health port (10248), ReadOnly for the read-only
// port (10255), and Secure for the port with authentication (10250). The contract: a request that
// needs the core is responded to within answerTimeout plus the time to send the response; if the
// core does not answer in time, or a queue is full, the response is a 503. Paths, status codes and
// texts are the kubelet's. The state of the core (/debug/state) is served to one client at a time,
// and pods are encoded one by one, so the memory that clients occupy is bounded.
//
// Start reading at Port, then secure.go for the routes, health.go, pods.go, metrics.go and debug.go
// for the handlers, server.go and connections.go for the listeners and their bounds.
package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/prometheus/slis"

	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// answerTimeout is how long a request waits for the core. The core answers in the step that handles
// the request, so a core that takes longer is stuck.
const answerTimeout = 2 * time.Second

// Options configure a Port.
type Options struct {
	// Offer hands a request to the core and reports whether its queue had room. A request whose
	// context is done when its turn comes may be dropped. Offer is called from many goroutines.
	Offer func(context.Context, world.Event) bool
	// Loop returns the metrics of the loop. It is called by Do only, on the loop's goroutine.
	Loop func() ([]world.Metric, loop.Histogram)
	// LoopCheck returns the health check of the loop's lanes. It is called by Do only.
	LoopCheck func() world.Check
	// Gatherer gathers further metrics for /metrics; nil for none.
	Gatherer prometheus.Gatherer
	// ServerMetrics returns the metrics of other servers, for /metrics; nil for none.
	ServerMetrics func() []world.Metric
	// CheckLog reports whether the log sink is stuck.
	CheckLog func() error
	// Routes register the stats and metrics handlers of other packages, which both the read-only
	// and the secure port serve.
	Routes Routes
}

// Port is a world.Port for requests.
type Port struct {
	opts    Options
	pending pending
	state   sync.Mutex // held by the one request for the state
}

// New returns a port without listeners.
func New(opts Options) *Port {
	return &Port{
		opts: opts,
		pending: pending{offer: opts.Offer, waiting: map[world.RequestID]chan any{},
			refused: map[error]uint64{}},
	}
}

// Do completes the request that an answer of the core belongs to.
func (p *Port) Do(eff world.Effect) {
	switch m := eff.Body.(type) {
	case *world.PodsAnswer:
		p.pending.complete(m.Request, m)
	case *world.VolumeStatsAnswer:
		p.pending.complete(m.Request, m)
	case *world.RunningPodsAnswer:
		p.pending.complete(m.Request, m)
	case *world.ContainerAnswer:
		p.pending.complete(m.Request, m)
	case *world.StateAnswer:
		p.pending.complete(m.Request, m)
	case *world.HealthAnswer:
		p.pending.complete(m.Request, append(slices.Clone(m.Checks), p.opts.LoopCheck()))
	case *world.MetricsAnswer:
		// The metrics of the loop may be read on its goroutine only, which runs Do.
		metrics, steps := p.opts.Loop()
		p.pending.complete(m.Request, scrape{core: m.Metrics, loop: metrics, steps: steps})
	default:
		panic(fmt.Sprintf("web: %T answers no request", m))
	}
}

// Health returns the handler of the health port.
func (p *Port) Health() http.Handler {
	mux := http.NewServeMux()
	p.handleHealth(mux)
	return mux
}

// ReadOnly returns the handler of the read-only port.
func (p *Port) ReadOnly() http.Handler {
	mux := http.NewServeMux()
	p.handleMetricsAndPods(mux)
	slis.SLIMetrics{}.Install(readOnly{mux})
	handleDisabled(mux)
	return mux
}

// readOnly registers handlers for GET and HEAD.
type readOnly struct{ mux *http.ServeMux }

// Handle implements the mux of package slis.
func (r readOnly) Handle(path string, handler http.Handler) { r.mux.Handle("GET "+path, handler) }

// request hands a client's request to the core and returns the answer. Without an answer it
// responds with a 503 itself and reports false.
func (p *Port) request(w http.ResponseWriter, r *http.Request,
	body func(world.RequestID) any) (any, bool) {
	answer, err := p.pending.request(r.Context(), body)
	if err != nil {
		writeUnavailable(w, err)
		return nil, false
	}
	return answer, true
}

func writeUnavailable(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
