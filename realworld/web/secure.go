package web

import (
	"net/http"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// bodyBytesMax bounds the body of a request. What clients send to containers is no body: their
// connections change to another protocol first.
const bodyBytesMax = 1 << 20

// Routes add the handlers of others.
type Routes []func(*http.ServeMux)

func (r Routes) register(mux *http.ServeMux) {
	for _, register := range r {
		register(mux)
	}
}

// Secure says what the secure port serves besides what the read-only port does.
type Secure struct {
	Config  *kubeletconfig.KubeletConfiguration // with defaults
	Version string                              // of Kubernetes, as "v1.36.3"
	Flags   map[string]string                   // of the command line; no secrets
	// Containers are about containers; they are there with enableDebuggingHandlers.
	Containers Routes
	// SystemLog is /logs/; it is there with enableSystemLogHandler as well.
	SystemLog Routes
	// Guard lets in who may come in. All requests go through it, and first.
	Guard func(http.Handler) http.Handler
}

// Secure handles the secure port.
func (p *Port) Secure(s Secure) http.Handler {
	mux := http.NewServeMux()
	p.handleNumbers(mux)
	if *s.Config.EnableDebuggingHandlers {
		p.handleDebugging(mux, s)
	} else {
		handleDisabled(mux)
	}
	return s.Guard(patient(mux))
}

// handleNumbers is what both ports serve.
func (p *Port) handleNumbers(mux *http.ServeMux) {
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
		mux.HandleFunc("/debug/flags/v", disabled("flags endpoint is disabled."))
	}
	if *c.EnableSystemLogHandler {
		s.SystemLog.register(mux)
	} else {
		mux.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
	}
	s.Containers.register(mux)
}

// handleDisabled answers for what could be there, if only it were switched on.
func handleDisabled(mux *http.ServeMux) {
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/",
		"/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
	}
}

// disabled answers as the kubelet does.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusMethodNotAllowed)
	}
}

// lasting are what may take as long as the client likes, or what is asked does.
var lasting = []string{"/exec/", "/attach/", "/portForward/", "/run/", "/containerLogs/", "/logs/",
	"/checkpoint/", "/debug/pprof/"}

// patient bounds the bodies of requests, and lifts the time limits of those that last. It is
// behind the guard: strangers find no patience.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // no body must stay http.NoBody: the request may be passed on
			r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		}
		for _, path := range lasting {
			if strings.HasPrefix(r.URL.Path, path) {
				// Where a connection has no time limits, there are none to lift.
				control := http.NewResponseController(w)
				_ = control.SetReadDeadline(time.Time{})
				_ = control.SetWriteDeadline(time.Time{})
			}
		}
		next.ServeHTTP(w, r)
	})
}
