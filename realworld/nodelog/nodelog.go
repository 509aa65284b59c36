// Package nodelog serves the logs of the node: the files below /var/log and, with
// enableSystemLogQuery, queries for the logs of services (KEP-2258).
//
// The contract: no file outside the directory is served, whatever the request and the symbolic
// links in the directory say; only regular files and directories are opened. A query runs
// journalctl with arguments that cannot be taken for other options, for queryMax at most,
// queriesMax at once. The connection of a client that reads nothing for WriteTimeout is closed.
//
// Requests are authorized before they reach the handlers. Start reading at Register, then query.go.
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
	// queryMax bounds the duration of a query.
	queryMax = 30 * time.Second
	// queriesMax bounds the queries at a time: each is a process that reads the journal.
	queriesMax = 4
	// filesMax bounds the files that are served at a time.
	filesMax = 64
)

// Options configure a Server.
type Options struct {
	Dir          string        // the directory of logs, "/var/log"
	Query        bool          // enableSystemLogQuery
	WriteTimeout time.Duration // how long a client may read nothing
}

// Server serves the logs.
type Server struct {
	opts            Options
	files           http.Handler
	queriesInFlight atomic.Int64
	filesInFlight   atomic.Int64 // files that are being served
	journalctl      string       // the program
}

// New returns a server of the logs below Options.Dir.
func New(opts Options) *Server {
	return &Server{
		opts: opts, files: http.FileServerFS(logTree{opts.Dir}), journalctl: "journalctl",
	}
}

// Register registers the handlers at /logs/.
func (s *Server) Register(mux *http.ServeMux) {
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(s.serve)))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w = &deadlineWriter{w, http.NewResponseController(w), s.opts.WriteTimeout}
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
	if s.filesInFlight.Add(1) > filesMax {
		s.filesInFlight.Add(-1)
		writeTooMany(w, filesMax)
		return
	}
	defer s.filesInFlight.Add(-1)
	s.files.ServeHTTP(w, r)
}

func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request, q *query) {
	if err := q.check(logTree{s.opts.Dir}); err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.files) == 1 {
		named := r.Clone(r.Context())
		named.URL.Path = "/" + cleanFileName(q.files[0])
		info, err := fs.Stat(logTree{s.opts.Dir}, cleanFileName(q.files[0]))
		if err == nil && info.IsDir() {
			named.URL.Path += "/" // otherwise the file server redirects to it and keeps the query
		}
		named.URL.RawPath = ""
		s.serveFile(w, named)
		return
	}
	if s.queriesInFlight.Add(1) > queriesMax {
		s.queriesInFlight.Add(-1)
		writeTooMany(w, queriesMax)
		return
	}
	defer s.queriesInFlight.Add(-1)
	ctx, cancel := context.WithTimeout(r.Context(), queryMax)
	defer cancel()
	// A single deadline for the whole response: no write to the client may be under way when this
	// function returns.
	if p, ok := w.(*deadlineWriter); ok {
		_ = p.control.SetWriteDeadline(time.Now().Add(queryMax)) // not every writer has one
		w = p.ResponseWriter
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.writeServiceLogs(ctx, w, q)
}

func writeTooMany(w http.ResponseWriter, max int) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, fmt.Sprintf("%d such requests are being served already", max),
		http.StatusServiceUnavailable)
}

// writeServiceLogs writes the logs of services: first of those with units in the journal, then the
// log files of the others.
func (s *Server) writeServiceLogs(ctx context.Context, out io.Writer, q *query) {
	units := s.journalUnits(ctx)
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
		copyServiceFile(ctx, out, logTree{s.opts.Dir}, service)
	}
}

// copyJournal writes the journal's entries of services. The error output of journalctl is part of
// the response, because the status code has been sent already.
func (s *Server) copyJournal(ctx context.Context, out io.Writer, q *query, services []string) {
	cmd := exec.CommandContext(ctx, s.journalctl, q.arguments(services)...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if cmd.ProcessState == nil && err != nil {
		fmt.Fprintf(out, "\nerror: journal output not available\n")
	}
}

// deadlineWriter closes the connection of a client that reads nothing for timeout.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// Unwrap implements what http.ResponseController looks for.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write sends data and extends the write deadline, that of the server for all responses included.
func (p *deadlineWriter) Write(data []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.timeout)) // not every writer has a deadline
	return p.ResponseWriter.Write(data)
}
