// Package nodelog serves the logs of the node itself: the files below /var/log, and, where that is
// switched on, queries for the logs of its services.
//
// The contract: nothing outside the directory is shown, whatever the request and the links in the
// directory say; nothing but regular files and directories is opened. A query runs journalctl with
// arguments that only it can mean, for queryMax at most, and a few at once. A client that takes
// nothing for Patience is left.
//
// Who may call is decided before the handlers are reached. Start reading at Register, then
// query.go.
package nodelog

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"sync/atomic"
	"time"
)

// Bounds.
const (
	// queryMax is how long a query may take.
	queryMax = 30 * time.Second
	// queriesMax is how many there may be at once: each is a process that reads the journal.
	queriesMax = 4
	// filesMax is how many files may be served at once.
	filesMax = 64
)

// Options are what the handlers are made of.
type Options struct {
	Dir      string        // the directory of logs, "/var/log"
	Query    bool          // enableSystemLogQuery
	Patience time.Duration // how long a client may take nothing
}

// Server serves the logs.
type Server struct {
	opts       Options
	files      http.Handler
	queries    atomic.Int64 // that are being served
	serving    atomic.Int64 // files that are
	journalctl string       // the program
}

// New makes a server.
func New(opts Options) *Server {
	return &Server{
		opts: opts, files: http.FileServerFS(tree{opts.Dir}), journalctl: "journalctl",
	}
}

// Register puts the handlers at their paths.
func (s *Server) Register(mux *http.ServeMux) {
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(s.serve)))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w = &patient{w, http.NewResponseController(w), s.opts.Patience}
	if !s.opts.Query {
		s.serveFile(w, r)
		return
	}
	q, err := parseQuery(r.URL.Query())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case q == nil:
		s.serveFile(w, r)
	case r.URL.Path != "" && r.URL.Path != "/":
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
	default:
		s.serveQuery(w, r, q)
	}
}

func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	if s.serving.Add(1) > filesMax {
		s.serving.Add(-1)
		busy(w, filesMax)
		return
	}
	defer s.serving.Add(-1)
	s.files.ServeHTTP(w, r)
}

func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request, q *query) {
	if err := q.check(tree{s.opts.Dir}); err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.files) == 1 {
		named := r.Clone(r.Context())
		named.URL.Path = "/" + slashed(q.files[0])
		if info, err := fs.Stat(tree{s.opts.Dir}, slashed(q.files[0])); err == nil && info.IsDir() {
			named.URL.Path += "/" // else the client would be sent there, with its query
		}
		named.URL.RawPath = ""
		s.serveFile(w, named)
		return
	}
	if s.queries.Add(1) > queriesMax {
		s.queries.Add(-1)
		busy(w, queriesMax)
		return
	}
	defer s.queries.Add(-1)
	ctx, cancel := context.WithTimeout(r.Context(), queryMax)
	defer cancel()
	// One deadline for all: nobody may be writing to the client any more when this returns.
	if p, ok := w.(*patient); ok {
		_ = p.control.SetWriteDeadline(time.Now().Add(queryMax)) // not all writers have one
		w = p.ResponseWriter
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.answer(ctx, w, q)
}

func busy(w http.ResponseWriter, max int) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, fmt.Sprintf("%d such requests are being served already", max),
		http.StatusServiceUnavailable)
}

// answer writes what is logged by services: first that of those in the journal, then the files of
// the others.
func (s *Server) answer(ctx context.Context, out io.Writer, q *query) {
	units := s.units(ctx)
	var inJournal, inFiles []string
	for _, service := range q.services {
		if units[service+".service"] || units[service] {
			inJournal = append(inJournal, service)
		} else {
			inFiles = append(inFiles, service)
		}
	}
	if len(inJournal) > 0 {
		s.copyJournal(ctx, out, q, inJournal)
	}
	if len(inFiles) > 0 && q.hasOptions() {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\n"+
			"try without specifying options\n", inFiles)
		return
	}
	for _, service := range inFiles {
		copyFile(ctx, out, tree{s.opts.Dir}, service)
	}
}

// copyJournal writes what the journal has of services. What journalctl has to say against it is
// part of the answer, as nothing else could be said any more.
func (s *Server) copyJournal(ctx context.Context, out io.Writer, q *query, services []string) {
	cmd := exec.CommandContext(ctx, s.journalctl, q.arguments(services)...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if cmd.ProcessState == nil && err != nil {
		fmt.Fprintf(out, "\nerror: journal output not available\n")
	}
}

// patient gives up on a client that takes nothing for too long.
type patient struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write sends data. The deadline is also put off where the server has one for all responses.
func (p *patient) Write(data []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.patience)) // not all writers have one
	return p.ResponseWriter.Write(data)
}
