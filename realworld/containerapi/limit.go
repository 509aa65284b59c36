package containerapi

import (
	"context"
	"net/http"
	"sync"

	"seedlet.dev/world"
)

// concurrencyLimit bounds the number of concurrent requests of a kind, in total and for the pods of
// one namespace.
type concurrencyLimit struct {
	kind              string // "logs", "streams" or "commands"
	max, namespaceMax int

	mu          sync.Mutex
	inUse       int
	byNamespace map[string]int
	refused     requestRefusals
}

// requestRefusals counts the refused requests by the bound that was reached.
type requestRefusals struct{ namespace, total uint64 }

// acquire returns an error if a request about a pod of a namespace would exceed a bound. Release
// must follow a success.
func (l *concurrencyLimit) acquire(namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.inUse >= l.max:
		l.refused.total++
		return busy("%d requests for %s are being served already", l.max, l.kind)
	case l.byNamespace[namespace] >= l.namespaceMax:
		l.refused.namespace++
		return busy("%d requests for %s of the namespace are being served already", l.namespaceMax,
			l.kind)
	}
	if l.byNamespace == nil {
		l.byNamespace = map[string]int{}
	}
	l.inUse++
	l.byNamespace[namespace]++
	return nil
}

func busy(format string, bound int, kind string) error {
	return httpErrorf(http.StatusServiceUnavailable, format, bound, kind)
}

func (l *concurrencyLimit) release(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse--
	if l.byNamespace[namespace]--; l.byNamespace[namespace] == 0 {
		delete(l.byNamespace, namespace)
	}
}

// metrics returns the numbers of concurrent and refused requests, and their bounds.
func (l *concurrencyLimit) metrics() []world.Metric {
	l.mu.Lock()
	defer l.mu.Unlock()
	ofKind := world.Label{Name: "kind", Value: l.kind}
	metrics := []world.Metric{
		{Name: "seedlet_container_requests", Labels: []world.Label{ofKind},
			Help:  "Requests for logs, streams and commands that are being served.",
			Value: float64(l.inUse)},
		{Name: "seedlet_container_requests_max", Labels: []world.Label{ofKind},
			Help: "Bound on requests for logs, streams and commands.", Value: float64(l.max)},
		{Name: "seedlet_container_requests_of_namespace_max", Labels: []world.Label{ofKind},
			Help:  "Bound on requests for logs, streams and commands of one namespace.",
			Value: float64(l.namespaceMax)},
	}
	for _, r := range []struct {
		bound string
		n     uint64
	}{{"namespace", l.refused.namespace}, {"total", l.refused.total}} {
		metrics = append(metrics, world.Metric{Name: "seedlet_container_requests_refused_total",
			Help: "Requests for logs, streams and commands that were refused, by the bound that was " +
				"reached.", Counter: true, Value: float64(r.n),
			Labels: []world.Label{ofKind, {Name: "bound", Value: r.bound}}})
	}
	return metrics
}

// withLimit serves a request unless a limit is reached. The request's context is done when the
// client has disconnected or the API is closed.
func (a *API) withLimit(l *concurrencyLimit, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		a.requests.Add(1)
		defer a.requests.Done()
		namespace := req.PathValue("namespace")
		if err := l.acquire(namespace); err != nil {
			writeError(w, err)
			return
		}
		defer l.release(namespace)
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(a.ctx, cancel)()
		handler(w, req.WithContext(ctx))
	}
}
