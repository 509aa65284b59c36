package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"k8s.io/component-base/tracing"
)

// Transport traces the requests of a client: those to the API server. The server's own spans join
// the trace.
func (t *Tracer) Transport(transport http.RoundTripper) http.RoundTripper {
	return tracing.WrapperFor(t.provider)(transport)
}

// Handler traces the requests to a server of clients that are authenticated: those to the secure
// port of the agent. Its spans join the client's trace (the kubelet's InstallTracingFilter). The
// queries of requests are in no span, because commands are in them.
func (t *Tracer) Handler(handler http.Handler) http.Handler {
	return t.handler(handler)
}

// PublicHandler is Handler for the requests of any client. The client's trace is linked, and is not
// the parent: a client without credentials must not decide what is sampled.
func (t *Tracer) PublicHandler(handler http.Handler) http.Handler {
	return t.handler(handler,
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }))
}

func (t *Tracer) handler(handler http.Handler, options ...otelhttp.Option) http.Handler {
	return otelhttp.NewHandler(handler, "kubelet", append(options,
		otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(tracing.Propagators()),
		otelhttp.WithSpanNameFormatter(requestName))...)
}

// requestName returns the name of the span of a request: the method and the first element of the
// path, so that there are few names.
func requestName(_ string, r *http.Request) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return r.Method + " /" + first
}
