package web

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/component-base/metrics/prometheus/slis"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// bodyBytesMax bounds the body of a request. Streams to containers (exec, attach, port-forward) are
// not bodies: their connections are upgraded to another protocol first.
const bodyBytesMax = 1 << 20

// Routes are functions that register the handlers of other packages.
type Routes []func(*http.ServeMux)

func (r Routes) register(mux *http.ServeMux) {
	for _, register := range r {
		register(mux)
	}
}

// Secure configures what the secure port serves in addition to the read-only port.
type Secure struct {
	Config  *kubeletconfig.KubeletConfiguration // with defaults
	Version string                              // of Kubernetes, as "v1.36.3"
	Flags   map[string]string                   // of the command line; no secrets
	// Containers are the routes to containers (exec, logs, …), with enableDebuggingHandlers only.
	Containers Routes
	// SystemLog is /logs/, with enableDebuggingHandlers and enableSystemLogHandler only.
	SystemLog Routes
	// Guard authenticates and authorizes every request before any other handler sees it.
	Guard func(http.Handler) http.Handler
}

// Secure returns the handler of the secure port.
func (p *Port) Secure(s Secure) http.Handler {
	mux := http.NewServeMux()
	p.handleMetricsAndPods(mux)
	slis.SLIMetricsWithReset{}.Install(mux) // DELETE resets them, as in the kubelet
	if *s.Config.EnableDebuggingHandlers {
		p.handleDebugging(mux, s)
	} else {
		handleDisabled(mux)
	}
	return s.Guard(markAuthorized(boundRequests(mux)))
}

// handleMetricsAndPods registers what both the read-only and the secure port serve.
func (p *Port) handleMetricsAndPods(mux *http.ServeMux) {
	p.handleHealth(mux)
	mux.HandleFunc("GET /pods", p.servePods)
	mux.HandleFunc("GET /pods/{$}", p.servePods)
	mux.Handle("GET /metrics", p.metricsHandler())
	mux.Handle("GET /metrics/probes", p.probesHandler())
	p.opts.Routes.register(mux)
}

func (p *Port) handleDebugging(mux *http.ServeMux, s Secure) {
	c := s.Config
	mux.HandleFunc("GET /runningpods/{$}", p.serveRunningPods)
	mux.HandleFunc("GET /debug/state", p.serveState)
	mux.Handle("/configz", configz(c))
	handleZPages(mux, s)
	handleProfiles(mux, c)
	if *c.EnableDebugFlagsHandler {
		mux.HandleFunc("/debug/flags/v", serveVerbosity)
	} else {
		mux.HandleFunc("/debug/flags/v", disabledHandler("flags endpoint is disabled."))
	}
	if *c.EnableSystemLogHandler {
		s.SystemLog.register(mux)
	} else {
		mux.HandleFunc("/logs/", disabledHandler("logs endpoint is disabled."))
	}
	s.Containers.register(mux)
}

// handleDisabled registers a 405 for every debugging handler, as the kubelet does when
// enableDebuggingHandlers is off.
func handleDisabled(mux *http.ServeMux) {
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/",
		"/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		mux.HandleFunc(path, disabledHandler("Debug endpoints are disabled."))
	}
}

// disabledHandler responds with a 405 and the kubelet's text.
func disabledHandler(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusMethodNotAllowed)
	}
}

// longRunningPaths are the paths whose requests last as long as the client or the command does.
var longRunningPaths = []string{"/exec/", "/attach/", "/portForward/", "/run/", "/containerLogs/",
	"/logs/", "/checkpoint/", "/debug/pprof/"}

// boundRequests bounds the bodies of requests and lifts the deadlines of long-running ones. It runs
// after the guard, so that clients without authorization keep their deadlines.
func boundRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // an absent body is kept as it is, for requests that are proxied
			r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		}
		for _, path := range longRunningPaths {
			if strings.HasPrefix(r.URL.Path, path) {
				// An error says that the connection has no deadlines.
				control := http.NewResponseController(w)
				_ = control.SetReadDeadline(time.Time{})
				_ = control.SetWriteDeadline(time.Time{})
			}
		}
		next.ServeHTTP(w, r)
	})
}
