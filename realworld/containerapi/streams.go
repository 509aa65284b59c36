package containerapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// streamQuery selects the streams of a process.
type streamQuery struct{ stdin, stdout, stderr, tty bool }

// parseStreamQuery decodes the parameters of exec and attach, which have the kubelet's own names.
func parseStreamQuery(q url.Values) (streamQuery, error) {
	s := streamQuery{
		stdin: q.Get("input") == "1", stdout: q.Get("output") == "1",
		stderr: q.Get("error") == "1", tty: q.Get("tty") == "1",
	}
	if s.tty {
		s.stderr = false // a terminal has a single output
	}
	if !s.stdin && !s.stdout && !s.stderr {
		return s, httpErrorf(http.StatusBadRequest,
			"you must specify at least 1 of stdin, stdout, stderr")
	}
	return s, nil
}

// requireUpgrade returns an error if a request is not an upgrade request. It is checked before the
// runtime prepares a stream.
func requireUpgrade(r *http.Request) error {
	if !httpstream.IsUpgradeRequest(r) {
		return httpErrorf(http.StatusBadRequest, "Upgrade request required")
	}
	return nil
}

func (a *API) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.serveProcess(w, r, &a.execSockets, func(ctx context.Context, names target, s streamQuery) (
		string, streamQuery, error) {
		command := q["command"]
		if len(command) == 0 {
			return "", s, httpErrorf(http.StatusBadRequest, "you must specify a command")
		}
		resolved, err := a.resolveRunning(ctx, names, names.noContainer())
		if err != nil {
			return "", s, err
		}
		response, err := a.opts.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: resolved.ContainerID, Cmd: command,
			Tty: s.tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr,
		})
		return response.GetUrl(), s, err
	})
}

func (a *API) serveAttach(w http.ResponseWriter, r *http.Request) {
	a.serveProcess(w, r, &a.attachSockets, func(ctx context.Context, names target, s streamQuery) (
		string, streamQuery, error) {
		resolved, err := a.resolveRunning(ctx, names, fmt.Sprintf(
			"container %s not found in pod %s_%s", names.container, names.pod, names.namespace))
		if err != nil {
			return "", s, err
		}
		s.tty = resolved.TTY // set when the container was created
		s.stderr = s.stderr && !s.tty
		response, err := a.opts.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: resolved.ContainerID,
			Tty:         s.tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr,
		})
		return response.GetUrl(), s, err
	})
}

// serveProcess connects a client with a process. request returns the runtime's URL, and the streams
// that the process really has; webSockets counts the requests over WebSocket.
func (a *API) serveProcess(w http.ResponseWriter, r *http.Request, webSockets *atomic.Int64,
	request func(context.Context, target, streamQuery) (string, streamQuery, error)) {
	streams, err := parseStreamQuery(r.URL.Query())
	if err == nil {
		err = requireUpgrade(r)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	location, err := a.streamLocation(r, func(ctx context.Context, names target) (
		location string, err error) {
		location, streams, err = request(ctx, names, streams)
		return location, err
	})
	if err != nil {
		writeError(w, err)
		return
	}
	a.serveStream(w, r, func(r *http.Request) http.Handler {
		if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			return proxyTo(location, r)
		}
		webSockets.Add(1)
		// Runtimes do not support version 5 of the protocol over WebSocket, so it is translated.
		options := translator.Options{Stdin: streams.stdin, Stdout: streams.stdout,
			Stderr: streams.stderr, Tty: streams.tty}
		return translator.NewStreamTranslatorHandler(location, backendTransport(r.Context()), 0,
			options)
	})
}

func (a *API) servePortForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	options := &portforward.V4Options{}
	err := requireUpgrade(r)
	if err == nil && !tunnel { // SPDY has the ports in the headers of its streams
		if options, err = portforward.NewV4Options(r); err != nil {
			err = httpErrorf(http.StatusBadRequest, "%v", err)
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	location, err := a.streamLocation(r, func(ctx context.Context, names target) (string, error) {
		resolved, err := a.resolve(ctx, names)
		if err != nil {
			return "", rewordMissingPod(err)
		}
		if resolved.SandboxID == "" {
			return "", httpErrorf(http.StatusInternalServerError, "pod not found (%q)",
				names.pod+"_"+names.namespace)
		}
		response, err := a.opts.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{
			PodSandboxId: resolved.SandboxID, Port: options.Ports,
		})
		return response.GetUrl(), err
	})
	if err != nil {
		writeError(w, err)
		return
	}
	a.serveStream(w, r, func(r *http.Request) http.Handler {
		if !tunnel {
			return proxyTo(location, r)
		}
		a.portForwardSockets.Add(1)
		return translator.NewTunnelingHandler(proxyTo(location, r))
	})
}

// streamLocation has the runtime prepare a stream and returns its URL.
func (a *API) streamLocation(r *http.Request,
	request func(context.Context, target) (string, error)) (*url.URL, error) {
	names, err := parseTarget(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.opts.RuntimeTimeout)
	defer cancel()
	text, err := request(ctx, names)
	if err != nil {
		return nil, err
	}
	return parseStreamURL(text)
}

// parseStreamURL parses the URL of a runtime's stream. The scheme may be missing, but not the host:
// the API serves no streams itself.
func parseStreamURL(text string) (*url.URL, error) {
	location, err := url.Parse(text)
	if err != nil {
		return nil, httpErrorf(http.StatusInternalServerError, "the runtime's streaming URL: %v", err)
	}
	if location.Scheme == "" {
		location.Scheme = "http"
	}
	if location.Host == "" || location.Scheme != "http" && location.Scheme != "https" {
		return nil, httpErrorf(http.StatusInternalServerError,
			"the runtime's streaming URL %q leads nowhere", text)
	}
	return location, nil
}
