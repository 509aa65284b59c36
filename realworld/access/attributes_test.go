package access

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// routes maps patterns of the secure port to the subresource that each needs.
var routes = map[string]string{
	"/healthz/{check}": "healthz", "GET /pods": "pods", "GET /metrics/cadvisor": "metrics",
	"/stats/": "stats", "/logs/": "log", "POST /checkpoint/{ns}/{pod}/{name}": "checkpoint",
	"/exec/{ns}/{pod}/{name}": "proxy", "/debug/state": "proxy", "GET /debug/pprof/": "proxy",
	"/containerLogs/{ns}/{pod}/{name}": "proxy", "/configz": "configz", "/flagz": "configz",
}

// FuzzSubresources searches for a path that is authorized as one route and served by another.
func FuzzSubresources(f *testing.F) {
	for _, path := range []string{"/pods", "/metrics/../exec/a/b/c", "/logs/%2e%2e/exec/a/b/c",
		"//exec/a/b/c", "/%65xec/a/b/c", "/pods%2f..%2fexec/a/b/c", "/exec/a/b/c?x=/pods",
		"/metrics/%2e./debug/state"} {
		f.Add("GET", path)
		f.Add("CONNECT", path)
	}
	mux := http.NewServeMux()
	for pattern := range routes {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		target, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL = method, target
		handler, pattern := mux.Handler(r)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		if answer.Code != http.StatusNotFound || pattern == "" {
			return // redirected, or not served
		}
		if got := subresourcesOf(r.URL.Path); !slices.Contains(got, routes[pattern]) ||
			routes[pattern] == "proxy" && len(got) > 1 {
			t.Errorf("%s %q is authorized as %q and served by %s", method, path, got, pattern)
		}
	})
}
