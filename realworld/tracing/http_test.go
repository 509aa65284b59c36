package tracing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/tracing/tracingtest"
)

// A request of the agent and the server's handling of it are in one trace. A request to the agent
// begins a trace of its own, which links the client's.
func TestRequestsAreTraced(t *testing.T) {
	c := tracingtest.New(t)
	tracer := newTracer(t, c.Address, always)
	var traceparent string
	server := httptest.NewServer(tracer.Handler(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { traceparent = r.Header.Get("Traceparent") })))
	defer server.Close()
	client := &http.Client{Transport: tracer.Transport(http.DefaultTransport)}
	defer client.CloseIdleConnections()
	answer, err := client.Get(server.URL + "/exec/default/web/c?command=hush")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	spans := map[string]tracingtest.Span{}
	for _, s := range c.Spans() {
		spans[s.Path] = s
	}
	sent, served := spans["HTTP GET"], spans["GET /exec"]
	if len(spans) != 2 || sent.Span == nil || served.Span == nil {
		t.Fatalf("spans %v", spans)
	}
	if len(served.Links) != 1 || string(served.Links[0].SpanId) != string(sent.SpanId) ||
		string(served.TraceId) == string(sent.TraceId) || traceparent == "" {
		t.Errorf("the served span has the links %v, the request the header %q", served.Links,
			traceparent)
	}
	if strings.Contains(served.String(), "hush") {
		t.Errorf("the span has the command: %v", served)
	}
}

// Handlers of streams take over the connection, and lift its deadlines.
func TestTracedStreams(t *testing.T) {
	tracer := newTracer(t, "127.0.0.1:1", always)
	defer func() { _ = tracer.Close() }() // there is no collector
	server := httptest.NewServer(tracer.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			control := http.NewResponseController(w)
			if err := control.SetReadDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			if err := control.Flush(); err != nil {
				t.Error(err)
			}
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})))
	defer server.Close()
	if answer, err := http.Get(server.URL); err == nil {
		_ = answer.Body.Close() // it ends early
	}
}
