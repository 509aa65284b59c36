// Package web is the requests port: the node's HTTP API, which turns requests into events and
// the core's answers into responses.
//
// Three handlers share one Port: Health for the health port (10248), ReadOnly for the read-only
// port (10255), and Secure for the one that asks who is there (10250). The contract: what the core
// is asked is answered within answerTimeout plus the time it takes to send the answer; what cannot
// be answered in time, or for want of room, is a 503. Paths, codes and texts are the kubelet's.
//
// Start reading at Port, then secure.go for what is where, health.go, pods.go, metrics.go and
// debug.go, and server.go for the listeners and their bounds.
package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// answerTimeout is how long the core has for an answer. It answers within the step that takes
// the request, so a core that takes longer is stuck.
const answerTimeout = 2 * time.Second

// Options are what a port is made of.
type Options struct {
	// Offer hands a request to the core and reports whether there was room for it. Called from
	// many goroutines.
	Offer func(world.Event) bool
	// Loop reads the loop's own numbers. Called on the loop's goroutine only, from Do.
	Loop func() ([]world.Metric, loop.Histogram)
	// Measured is what else there is to show on /metrics; nil if there is nothing.
	Measured prometheus.Gatherer
	// Counted are the numbers of others who serve requests, for /metrics; nil if there are none.
	Counted func() []world.Metric
	// CheckLog reports whether the log sink is stuck.
	CheckLog func() error
	// Routes are the handlers of others that the read-only port and the secure one have: numbers.
	Routes Routes
}

// Port is a world.Port for requests.
type Port struct {
	opts    Options
	pending pending
}

// New makes a port.
func New(opts Options) *Port {
	return &Port{
		opts:    opts,
		pending: pending{offer: opts.Offer, waiting: map[world.RequestID]chan any{}},
	}
}

// Do hands an answer to the request that waits for it.
func (p *Port) Do(eff world.Effect) {
	switch m := eff.Body.(type) {
	case *world.PodsAnswer:
		p.pending.answer(m.Request, m)
	case *world.RunningPodsAnswer:
		p.pending.answer(m.Request, m)
	case *world.ContainerAnswer:
		p.pending.answer(m.Request, m)
	case *world.StateAnswer:
		p.pending.answer(m.Request, m)
	case *world.HealthAnswer:
		p.pending.answer(m.Request, m)
	case *world.MetricsAnswer:
		// The loop's numbers belong to its goroutine, which is the one that is here.
		metrics, steps := p.opts.Loop()
		p.pending.answer(m.Request, numbers{core: m.Metrics, loop: metrics, steps: steps})
	default:
		panic(fmt.Sprintf("web: %T answers no request", m))
	}
}

// Health handles the health port.
func (p *Port) Health() http.Handler {
	mux := http.NewServeMux()
	p.handleHealth(mux)
	return mux
}

// ReadOnly handles the read-only port.
func (p *Port) ReadOnly() http.Handler {
	mux := http.NewServeMux()
	p.handleNumbers(mux)
	handleDisabled(mux)
	return mux
}

// ask puts a request of an HTTP client to the core, and answers the client itself if the core
// does not.
func (p *Port) ask(w http.ResponseWriter, r *http.Request,
	body func(world.RequestID) any) (any, bool) {
	answer, err := p.pending.ask(r.Context(), body)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, false
	}
	return answer, true
}
