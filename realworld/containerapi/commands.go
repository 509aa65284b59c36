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

// serveRun runs a command in a container and answers with what it has put out. A command that
// fails is an error with its error output.
func (a *API) serveRun(w http.ResponseWriter, r *http.Request) {
	output, err := a.run(r)
	if err != nil {
		answerFailure(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json") // so the kubelet, whatever it is
	_ = newClient(w, a.opts.IdleTimeout).send(output)  // a client that has gone needs no answer
}

func (a *API) run(r *http.Request) ([]byte, error) {
	n, err := named(r)
	if err != nil {
		return nil, err
	}
	text := r.URL.Query().Get("cmd")
	if text == "" {
		return nil, failed(http.StatusBadRequest, "you must specify a command: cmd is empty")
	}
	found, err := a.findRunning(r.Context(), n)
	if err != nil {
		return nil, err
	}
	// It has all the time that its client has.
	answer, err := a.opts.Runtime.ExecSync(r.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: found.ContainerID, Cmd: strings.Split(text, " "),
	})
	if err != nil {
		return nil, failed(http.StatusInternalServerError, "%v", err)
	}
	if answer.ExitCode != 0 {
		return nil, failed(http.StatusInternalServerError, "command '%s' exited with %d: %s",
			text, answer.ExitCode, answer.Stderr)
	}
	return append(answer.Stdout, answer.Stderr...), nil
}

// serveCheckpoint has the runtime write the state of a container into an archive, and answers with
// its path.
func (a *API) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	path, err := a.checkpoint(r)
	if err != nil {
		answerFailure(w, err)
		return
	}
	body, err := json.Marshal(map[string][]string{"items": {path}})
	if err != nil {
		answerFailure(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = newClient(w, a.opts.IdleTimeout).send(body) // a client that has gone needs no answer
}

func (a *API) checkpoint(r *http.Request) (string, error) {
	n, err := named(r)
	if err != nil {
		return "", err
	}
	found, err := a.find(r.Context(), n)
	if err != nil {
		return "", err
	}
	timeout, err := checkpointTimeout(r.URL.Query()["timeout"], a.opts.RuntimeTimeout)
	if err != nil {
		return "", err
	}
	path := filepath.Join(a.opts.CheckpointsDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		n.pod, n.namespace, n.container, time.Now().Format(time.RFC3339)))
	if err := a.makeCheckpoint(r.Context(), found.ContainerID, path, timeout); err != nil {
		return "", failed(http.StatusInternalServerError, "checkpointing of %s/%s/%s failed (%v)",
			n.namespace, n.pod, n.container, err)
	}
	return path, nil
}

func (a *API) makeCheckpoint(ctx context.Context, id, path string, timeout time.Duration) error {
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

// checkpointTimeoutMax bounds what a client may ask for.
const checkpointTimeoutMax = 24 * time.Hour

// checkpointTimeout is the last value given, if it is longer than what calls of the runtime have
// anyway. That a bad one is not found is the kubelet's answer.
func checkpointTimeout(values []string, usual time.Duration) (time.Duration, error) {
	if len(values) == 0 {
		return usual, nil
	}
	seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	switch {
	case err != nil:
		return 0, failed(http.StatusNotFound, "cannot parse value of timeout parameter")
	case seconds < 0 || seconds > int64(checkpointTimeoutMax/time.Second):
		return 0, failed(http.StatusBadRequest, "timeout: must be between 0 and %d seconds",
			int64(checkpointTimeoutMax/time.Second))
	}
	return max(usual, time.Duration(seconds)*time.Second), nil
}
