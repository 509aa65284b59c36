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

// requestSpans sends a traced request to a server whose handler is traced, and returns the span of
// the client and that of the server.
func requestSpans(t *testing.T, trace func(*Tracer, http.Handler) http.Handler) (
	sent, served tracingtest.Span) {
	c := tracingtest.New(t)
	tracer := newTracer(t, c.Address, always)
	var traceparent string
	server := httptest.NewServer(trace(tracer, http.HandlerFunc(
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
		spans[s.Name] = s
	}
	sent, served = spans["HTTP GET"], spans["GET /exec"]
	if len(spans) != 2 || sent.Span == nil || served.Span == nil || traceparent == "" {
		t.Fatalf("spans %v, the header %q", spans, traceparent)
	}
	if strings.Contains(served.String(), "hush") {
		t.Errorf("the span has the command: %v", served)
	}
	return sent, served
}

// A client's request and the server's handling of it are in one trace.
func TestRequestsAreTraced(t *testing.T) {
	sent, served := requestSpans(t, (*Tracer).Handler)
	if string(served.ParentSpanId) != string(sent.SpanId) || len(served.Links) > 0 ||
		string(served.TraceId) != string(sent.TraceId) {
		t.Errorf("the client sent %v, the server has %v", sent, served)
	}
}

// A request that needs no credentials begins a trace of its own, which links the client's.
func TestPublicRequestsAreLinked(t *testing.T) {
	sent, served := requestSpans(t, (*Tracer).PublicHandler)
	if len(served.Links) != 1 || string(served.Links[0].SpanId) != string(sent.SpanId) ||
		string(served.TraceId) == string(sent.TraceId) {
		t.Errorf("the served span has the links %v", served.Links)
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
