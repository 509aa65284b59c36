package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/component-base/metrics/prometheus/slis"

	"seedlet.dev/world"
)

// syncloop is the name of the check that the core responds to a request within answerTimeout.
const syncloop = "syncloop"

// handleHealth registers /healthz in the form of all Kubernetes components: "ok", or a line for
// each check with ?verbose, and /healthz/NAME for a single check.
//
// The kubelet's checks decide: ping, log and syncloop. Others are shown and do not fail /healthz:
// pleg, which the core reports, and lanes, which the loop reports. Systemd's watchdog restarts an
// agent that is unhealthy, and a restart does not help against a runtime that hangs: the Node's
// Ready condition reports that. Neither does it help against calls that hang in the kernel.
func (p *Port) handleHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", p.serveHealth)
	mux.HandleFunc("GET /healthz/{$}", p.serveHealth)
	mux.HandleFunc("GET /healthz/{check}", p.serveCheck)
}

// deciding are the names of the checks that fail /healthz.
var deciding = []string{"ping", "log", syncloop}

// Healthy returns the first failing check that fails /healthz as an error.
func (p *Port) Healthy(ctx context.Context) error {
	for _, c := range p.checks(ctx) {
		if c.Problem != "" && slices.Contains(deciding, c.Name) {
			return fmt.Errorf("%s: %s", c.Name, c.Problem)
		}
	}
	return nil
}

func (p *Port) serveHealth(w http.ResponseWriter, r *http.Request) {
	checks := p.checks(r.Context())
	excluded := r.URL.Query()["exclude"]
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		if !slices.Contains(excluded, c.Name) {
			countCheck(r.Context(), c)
		}
		switch {
		case slices.Contains(excluded, c.Name):
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
		case c.Problem != "" && !slices.Contains(deciding, c.Name):
			fmt.Fprintf(&lines, "[-]%s failed, which does not decide: %s\n", c.Name, c.Problem)
		case c.Problem != "":
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.Name, c.Problem)
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case failed:
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
	case verbose:
		writeText(w, lines.String()+"healthz check passed\n")
	default:
		writeText(w, "ok")
	}
}

// countCheck counts the result of a check for /metrics/slis (KEP-3466).
func countCheck(ctx context.Context, c world.Check) {
	status := slis.Success
	if c.Problem != "" {
		status = slis.Error
	}
	_ = slis.ObserveHealthcheck(ctx, c.Name, "healthz", status) // returns no error
}

func (p *Port) serveCheck(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("check")
	for _, c := range p.checks(r.Context()) {
		if c.Name != name {
			continue
		}
		if c.Problem != "" {
			http.Error(w, "internal server error: "+c.Problem, http.StatusInternalServerError)
			return
		}
		writeText(w, "ok")
		return
	}
	http.NotFound(w, r)
}

// checks returns the results of the kubelet's checks (ping, log, syncloop), followed by those that
// the core and the loop report. The core may report a problem of its own under the name syncloop.
func (p *Port) checks(ctx context.Context) []world.Check {
	checks := []world.Check{{Name: "ping"}, {Name: "log", Problem: errorText(p.opts.CheckLog())}}
	loop := world.Check{Name: syncloop}
	answer, err := p.pending.request(ctx, func(id world.RequestID) any {
		return &world.HealthRequest{Request: id}
	})
	if err != nil {
		loop.Problem = errorText(err)
		if errors.Is(err, errTimeout) {
			loop.Problem = fmt.Sprintf("%v within %v", err, answerTimeout)
		}
		return append(checks, loop)
	}
	var others []world.Check
	for _, c := range answer.([]world.Check) {
		if c.Name == syncloop {
			loop.Problem = c.Problem
			continue
		}
		others = append(others, c)
	}
	return slices.Concat(checks, []world.Check{loop}, others)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func writeText(w http.ResponseWriter, s string) { writeCode(w, http.StatusOK, s) }

func writeCode(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(s)) // the client may have disconnected
}
