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

// serveLogs shows the log of a container, and, if it is to be followed, what is added to it until
// the container has ended.
func (a *API) serveLogs(w http.ResponseWriter, r *http.Request) {
	n, err := named(r)
	if err != nil {
		answerFailure(w, err)
		return
	}
	query, err := parseLogQuery(r.URL.Query(), time.Now(), a.opts.SplitStreams)
	if err != nil {
		answerFailure(w, err)
		return
	}
	log, err := a.openLog(r.Context(), n, query)
	if err != nil {
		answerFailure(w, err)
		return
	}
	defer log.close()
	out := newClient(w, a.opts.IdleTimeout)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if out.send(nil) != nil { // who follows a silent container must learn that it goes well
		return
	}
	log.printer = newPrinter(query, out.send)
	err = log.show(r.Context(), a.watcher)
	if err == nil || errors.Is(err, errEnough) {
		err = log.printer.flush()
	}
	if err != nil && r.Context().Err() == nil {
		_ = out.send([]byte(err.Error() + "\n")) // the status has been sent
	}
}

// log is a log that is being read.
type log struct {
	id      string // of the container
	running bool   // when the reading began
	path    logPath
	file    *os.File
	scanner scanner
	printer *printer
	follow  bool
}

func (l *log) close() { _ = l.file.Close() } // it was only read

// openLog finds out which log a request means, and opens it where its tail begins.
func (a *API) openLog(ctx context.Context, n names, query logQuery) (*log, error) {
	answer, err := a.find(ctx, n)
	if err != nil {
		return nil, err
	}
	l := &log{follow: query.follow, scanner: scanner{linesMax: -1}}
	if l.id, err = whoseLog(n, answer.Status, query.previous); err != nil {
		return nil, err
	}
	if err := a.locate(ctx, l); err != nil {
		return nil, err
	}
	wait := time.Duration(0)
	if l.running {
		wait = logAppearMax
	}
	if l.file, err = l.path.await(ctx, wait); err != nil {
		return nil, failed(http.StatusBadRequest, "failed to open log file: %v", err)
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

// whoseLog is the id of the container whose log is meant: of the run that is running, else of the
// last one that has ended; or of the one before that.
func whoseLog(n names, s *v1.ContainerStatus, previous bool) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		args = append([]any{n.container, n.pod}, args...)
		return "", failed(http.StatusBadRequest, "%s", fmt.Sprintf(format, args...))
	}
	if s == nil {
		return bad("container %q in pod %q is not available")
	}
	last := ""
	if s.LastTerminationState.Terminated != nil {
		last = s.LastTerminationState.Terminated.ContainerID
	}
	id := ""
	switch {
	case previous:
		if last == "" {
			return bad("previous terminated container %q in pod %q not found")
		}
		id = last
	case s.State.Running != nil:
		id = s.ContainerID
	case s.State.Terminated != nil:
		// The next run may have failed before there was a container.
		if id = s.State.Terminated.ContainerID; id == "" {
			id = last
		}
		if id == "" {
			return bad("container %q in pod %q is terminated")
		}
	case s.LastTerminationState.Terminated != nil:
		if id = last; id == "" {
			return bad("container %q in pod %q is terminated")
		}
	case s.State.Waiting != nil:
		return bad("container %q in pod %q is waiting to start: %s", waitingFor(s.State.Waiting.Reason))
	default:
		return bad("container %q in pod %q is waiting to start - no logs yet")
	}
	if _, after, ok := strings.Cut(id, "://"); ok {
		id = after
	}
	return id, nil
}

func waitingFor(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

// locate asks the runtime where the log of a container is.
func (a *API) locate(ctx context.Context, l *log) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.RuntimeTimeout)
	defer cancel()
	answer, err := a.opts.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: l.id})
	if status.Code(err) == codes.NotFound {
		return failed(http.StatusBadRequest, "unable to retrieve container logs for %s: "+
			"the runtime has no such container any more", l.id)
	}
	if err != nil {
		return failed(http.StatusInternalServerError,
			"unable to retrieve container logs for %s: %v", l.id, err)
	}
	path := answer.GetStatus().GetLogPath()
	if path == "" {
		return failed(http.StatusBadRequest, "container %s has no log", l.id)
	}
	l.running = answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	l.path, err = newLogPath(a.opts.LogsDir, path)
	return err
}

// buffers are lent to logs while they are read, and not while they are waited for: a thousand
// followers of silent containers have none.
var buffers = sync.Pool{New: func() any {
	buf := make([]byte, 64<<10)
	return &buf
}}

// show shows what there is of a log, and follows it if that is wanted.
func (l *log) show(ctx context.Context, w *watcher) error {
	if l.follow && l.running {
		return l.showAll(ctx, w)
	}
	return l.drain(ctx, true)
}

// drain shows what there is in the file now. If nothing can follow, a last line without an end is
// shown as well.
func (l *log) drain(ctx context.Context, final bool) error {
	lent := buffers.Get().(*[]byte)
	defer buffers.Put(lent)
	buf := *lent
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

// client sends to a client, and gives up on one that takes nothing for too long.
type client struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

func newClient(w http.ResponseWriter, patience time.Duration) *client {
	return &client{w, http.NewResponseController(w), patience}
}

// send sends at once, even if it is nothing but the header.
func (c *client) send(data []byte) error {
	// The deadline is also put off where the server has one for all responses.
	_ = c.control.SetWriteDeadline(time.Now().Add(c.patience)) // not all writers have one
	if len(data) > 0 {
		if _, err := c.w.Write(data); err != nil {
			return err
		}
	}
	return c.control.Flush()
}

// running says which containers run, or whether one does.
func (a *API) running(ctx context.Context, only string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.RuntimeTimeout)
	defer cancel()
	answer, err := a.opts.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
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
	for _, c := range answer.Containers {
		running[c.Id] = true
	}
	return running, nil
}
