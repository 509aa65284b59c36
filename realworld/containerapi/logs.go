package containerapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serveLogs responds with the log of a container. If the log is followed, the response continues
// until the container has ended.
func (a *API) serveLogs(w http.ResponseWriter, r *http.Request) {
	names, err := parseTarget(r)
	if err != nil {
		writeError(w, err)
		return
	}
	query, err := parseLogQuery(r.URL.Query(), time.Now(), a.opts.SplitStreams)
	if err != nil {
		writeError(w, err)
		return
	}
	log, err := a.openLog(r.Context(), names, query)
	if err != nil {
		writeError(w, err)
		return
	}
	defer log.close()
	out := newFlushingWriter(w, a.opts.IdleTimeout)
	out.pauses = query.follow
	defer out.setDeadline() // of what ends the response
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if out.send(nil) != nil { // the client of a silent container must get the status code
		return
	}
	log.printer = newPrinter(query, out.send)
	err = log.stream(r.Context(), a.watcher)
	if err == nil || errors.Is(err, errLimitReached) {
		err = log.printer.flush()
	}
	if err != nil && r.Context().Err() == nil {
		_ = out.send([]byte(err.Error() + "\n")) // too late for a status code
	}
}

// log is a container log that is being read.
type log struct {
	statusID string // of the container, as in a status: containerd://ID
	id       string // without the name of the runtime
	running  bool   // when the reading began
	path     logPath
	file     *os.File
	scanner  scanner
	printer  *printer
	follow   bool
}

func (l *log) close() { _ = l.file.Close() } // it was only read

// openLog resolves a request to a log, and opens the log at the start of the requested tail.
func (a *API) openLog(ctx context.Context, names target, query logQuery) (*log, error) {
	response, err := a.resolve(ctx, names)
	if err != nil {
		return nil, err
	}
	l := &log{follow: query.follow, scanner: scanner{linesMax: -1}}
	if l.statusID, err = logContainerID(names, response.Status, query.previous); err != nil {
		return nil, err
	}
	l.id = l.statusID
	if _, id, has := strings.Cut(l.statusID, "://"); has {
		l.id = id
	}
	if err := a.locate(ctx, l); err != nil {
		return nil, err
	}
	wait := time.Duration(0)
	if l.running {
		wait = logAppearMax
	}
	if l.file, err = l.path.openWithin(ctx, wait); err != nil {
		return nil, httpErrorf(http.StatusBadRequest, "failed to open log file: %v", err)
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	l.scanner.offset, err = tailStart(ctx, l.file, query.tailLines, *buf)
	if err != nil {
		l.close()
		return nil, fmt.Errorf("finding the last lines of %s: %w", l.path, err)
	}
	if !query.follow {
		l.scanner.linesMax = query.tailLines
	}
	return l, nil
}

// logContainerID returns the ID, as in a status, of the container whose log is requested: the
// running one, else the last one that has ended; with previous, the one before.
func logContainerID(names target, s *v1.ContainerStatus, previous bool) (string, error) {
	badRequest := func(format string, args ...any) (string, error) {
		args = append([]any{names.container, names.pod}, args...)
		return "", httpErrorf(http.StatusBadRequest, "%s", fmt.Sprintf(format, args...))
	}
	if s == nil {
		return badRequest("container %q in pod %q is not available")
	}
	last := ""
	if s.LastTerminationState.Terminated != nil {
		last = s.LastTerminationState.Terminated.ContainerID
	}
	id := ""
	switch {
	case previous:
		if last == "" {
			return badRequest("previous terminated container %q in pod %q not found")
		}
		id = last
	case s.State.Running != nil:
		id = s.ContainerID
	case s.State.Terminated != nil:
		// The next run may have failed before its container was created.
		if id = s.State.Terminated.ContainerID; id == "" {
			id = last
		}
		if id == "" {
			return badRequest("container %q in pod %q is terminated")
		}
	case s.LastTerminationState.Terminated != nil:
		if id = last; id == "" {
			return badRequest("container %q in pod %q is terminated")
		}
	case s.State.Waiting != nil:
		return badRequest("container %q in pod %q is waiting to start: %s",
			waitingMessage(s.State.Waiting.Reason))
	default:
		return badRequest("container %q in pod %q is waiting to start - no logs yet")
	}
	return id, nil
}

func waitingMessage(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

// locate queries the runtime for the path of a container's log.
func (a *API) locate(ctx context.Context, l *log) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.RuntimeTimeout)
	defer cancel()
	response, err := a.opts.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: l.id})
	if status.Code(err) == codes.NotFound {
		return httpErrorf(http.StatusBadRequest, "unable to retrieve container logs for %s: "+
			"the runtime has no such container any more", l.statusID)
	}
	if err != nil {
		return httpErrorf(http.StatusInternalServerError,
			"unable to retrieve container logs for %s: %v", l.statusID, err)
	}
	if got := response.GetStatus().GetId(); got != l.id { // its log may be another tenant's
		return httpErrorf(http.StatusInternalServerError, "unable to retrieve container logs for %s: "+
			"the runtime has answered about %q", l.statusID, got)
	}
	path := response.GetStatus().GetLogPath()
	if path == "" {
		return httpErrorf(http.StatusBadRequest, "container %s has no log", l.id)
	}
	l.running = response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	l.path, err = newLogPath(a.opts.LogsDir, path)
	return err
}

// buffers are used by logs while they are read, and returned while they wait for changes: a
// thousand followers of silent containers use none.
var buffers = sync.Pool{New: func() any {
	buf := make([]byte, 64<<10)
	return &buf
}}

// stream sends the log, and follows it if requested.
func (l *log) stream(ctx context.Context, w *watcher) error {
	if l.follow && l.running {
		return l.streamUntilEnd(ctx, w)
	}
	return l.drain(ctx, true)
}

// drain sends the content of the file up to its current end. If nothing can follow (final), a last
// line without a newline is sent too.
func (l *log) drain(ctx context.Context, final bool) error {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := *pooled
	for {
		n, err := l.file.ReadAt(buf, l.scanner.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading log file %s: %w", l.path, err)
		}
		full := n == len(buf)
		err = l.scanner.scan(buf[:n], full, final && !full, l.printer.print)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !full {
			return l.printer.flush()
		}
	}
}

// flushingWriter writes a response without buffering, and fails if the client reads nothing for the
// idle timeout.
type flushingWriter struct {
	w           http.ResponseWriter
	control     *http.ResponseController
	idleTimeout time.Duration
	// pauses is set if nothing may be written for long. HTTP/2 resets a stream at its deadline even
	// if nothing is being written.
	pauses bool
}

func newFlushingWriter(w http.ResponseWriter, idleTimeout time.Duration) *flushingWriter {
	return &flushingWriter{w: w, control: http.NewResponseController(w), idleTimeout: idleTimeout}
}

// setDeadline sets the time until which the client has to read what is written. It also replaces
// the deadline that the server has for all responses.
func (c *flushingWriter) setDeadline() {
	_ = c.control.SetWriteDeadline(time.Now().Add(c.idleTimeout)) // not all writers support deadlines
}

// send writes and flushes data; without data it sends the header.
func (c *flushingWriter) send(data []byte) error {
	c.setDeadline()
	if len(data) > 0 {
		if _, err := c.w.Write(data); err != nil {
			return err
		}
	}
	if err := c.control.Flush(); err != nil {
		return err
	}
	if c.pauses {
		_ = c.control.SetWriteDeadline(time.Time{})
	}
	return nil
}

// listRunning returns the running containers; of one container only if an id is given.
func (a *API) listRunning(ctx context.Context, only string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.RuntimeTimeout)
	defer cancel()
	response, err := a.opts.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{
			Id: only,
			State: &runtimeapi.ContainerStateValue{
				State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for _, c := range response.Containers {
		running[c.Id] = true
	}
	return running, nil
}
