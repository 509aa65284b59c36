package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"seedlet.dev/world"
)

// syncloop is the check that the core itself is alive: that it answers, in time.
const syncloop = "syncloop"

// handleHealth serves /healthz in the form that the kubelet and all other Kubernetes components
// have: "ok", or with ?verbose a line for each check; and each check below it by its name.
func (p *Port) handleHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", p.serveHealth)
	mux.HandleFunc("GET /healthz/{$}", p.serveHealth)
	mux.HandleFunc("GET /healthz/{check}", p.serveCheck)
}

// Healthy says what keeps the agent from being well, as /healthz does.
func (p *Port) Healthy(ctx context.Context) error {
	for _, c := range p.checks(ctx) {
		if c.Problem != "" {
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
		switch {
		case slices.Contains(excluded, c.Name):
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
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

// checks are those of the kubelet, ping, log and syncloop, and what else the core reports. A
// check of the core called syncloop is part of ours.
func (p *Port) checks(ctx context.Context) []world.Check {
	checks := []world.Check{{Name: "ping"}, {Name: "log", Problem: text(p.opts.CheckLog())}}
	loop := world.Check{Name: syncloop}
	answer, err := p.pending.ask(ctx, func(id world.RequestID) any {
		return &world.HealthRequest{Request: id}
	})
	if err != nil {
		loop.Problem = text(err)
		if errors.Is(err, errSilent) {
			loop.Problem = fmt.Sprintf("%v within %v", err, answerTimeout)
		}
		return append(checks, loop)
	}
	var others []world.Check
	for _, c := range answer.(*world.HealthAnswer).Checks {
		if c.Name == syncloop {
			loop.Problem = c.Problem
			continue
		}
		others = append(others, c)
	}
	return slices.Concat(checks, []world.Check{loop}, others)
}

func text(err error) string {
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
	_, _ = w.Write([]byte(s)) // a client that has gone needs no answer
}
