package containerapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serveRun runs a command in a container and responds with its output. The response to a command
// that fails is an error with its error output.
func (a *API) serveRun(w http.ResponseWriter, r *http.Request) {
	output, err := a.runCommand(r)
	if err != nil {
		writeError(w, err)
		return
	}
	// The kubelet responds with this content type, whatever the output is.
	w.Header().Set("Content-Type", "application/json")
	_ = newFlushingWriter(w, a.opts.IdleTimeout).send(output) // the client may have disconnected
}

func (a *API) runCommand(r *http.Request) ([]byte, error) {
	names, err := parseTarget(r)
	if err != nil {
		return nil, err
	}
	text := r.URL.Query().Get("cmd")
	if text == "" {
		return nil, httpErrorf(http.StatusBadRequest, "you must specify a command: cmd is empty")
	}
	resolved, err := a.resolveRunning(r.Context(), names, names.noContainer())
	if err != nil {
		return nil, err
	}
	// The only timeout is that of the client.
	response, err := a.opts.Runtime.ExecSync(r.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: resolved.ContainerID, Cmd: strings.Split(text, " "),
	})
	if err != nil {
		return nil, httpErrorf(http.StatusInternalServerError, "%v", err)
	}
	if response.ExitCode != 0 {
		return nil, httpErrorf(http.StatusInternalServerError, "command '%s' exited with %d: %s",
			text, response.ExitCode, response.Stderr)
	}
	return append(response.Stdout, response.Stderr...), nil
}

// serveCheckpoint has the runtime checkpoint a container into an archive, and responds with the
// archive's path.
func (a *API) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	path, err := a.checkpoint(r)
	if err != nil {
		writeError(w, err)
		return
	}
	body, err := json.Marshal(map[string][]string{"items": {path}})
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = newFlushingWriter(w, a.opts.IdleTimeout).send(body) // the client may have disconnected
}

func (a *API) checkpoint(r *http.Request) (string, error) {
	names, err := parseTarget(r)
	if err != nil {
		return "", err
	}
	resolved, err := a.resolve(r.Context(), names)
	if err != nil {
		return "", rewordMissingContainer(err, httpErrorf(http.StatusNotFound,
			"container %s does not exist", names.container))
	}
	timeout, err := checkpointTimeout(r.URL.Query()["timeout"], a.opts.RuntimeTimeout)
	if err != nil {
		return "", err
	}
	path := filepath.Join(a.opts.CheckpointsDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		names.pod, names.namespace, names.container, time.Now().Format(time.RFC3339)))
	if err := a.createCheckpoint(r.Context(), resolved.ContainerID, path, timeout); err != nil {
		return "", httpErrorf(http.StatusInternalServerError, "checkpointing of %s/%s/%s failed (%v)",
			names.namespace, names.pod, names.container, err)
	}
	return path, nil
}

func (a *API) createCheckpoint(ctx context.Context, id, path string, timeout time.Duration) error {
	if id == "" {
		return fmt.Errorf("container not found")
	}
	if err := os.MkdirAll(a.opts.CheckpointsDir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := a.opts.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: id, Location: path, Timeout: int64(timeout / time.Second),
	})
	return err
}

// checkpointTimeoutMax bounds the timeout that a client may request.
const checkpointTimeoutMax = 24 * time.Hour

// checkpointTimeout returns the last of the values, or the runtime's timeout if that is longer. A
// value that cannot be parsed is a 404, as in the kubelet.
func checkpointTimeout(values []string, minimum time.Duration) (time.Duration, error) {
	if len(values) == 0 {
		return minimum, nil
	}
	seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	switch {
	case err != nil:
		return 0, httpErrorf(http.StatusNotFound, "cannot parse value of timeout parameter")
	case seconds < 0 || seconds > int64(checkpointTimeoutMax/time.Second):
		return 0, httpErrorf(http.StatusBadRequest, "timeout: must be between 0 and %d seconds",
			int64(checkpointTimeoutMax/time.Second))
	}
	return max(minimum, time.Duration(seconds)*time.Second), nil
}
