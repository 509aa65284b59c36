package containerapi

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// streamQuery is which streams of a process a client wants.
type streamQuery struct{ stdin, stdout, stderr, tty bool }

// parseStreamQuery reads the parameters of exec and attach, which have names of the kubelet's own.
func parseStreamQuery(q url.Values) (streamQuery, error) {
	s := streamQuery{
		stdin: q.Get("input") == "1", stdout: q.Get("output") == "1",
		stderr: q.Get("error") == "1", tty: q.Get("tty") == "1",
	}
	if s.tty {
		s.stderr = false // a terminal has one output
	}
	if !s.stdin && !s.stdout && !s.stderr {
		return s, failed(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return s, nil
}

// needUpgrade refuses a request that does not ask for a stream, before the runtime gets one
// ready.
func needUpgrade(r *http.Request) error {
	if !httpstream.IsUpgradeRequest(r) {
		return failed(http.StatusBadRequest, "Upgrade request required")
	}
	return nil
}

func (a *API) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.serveProcess(w, r, func(ctx context.Context, n names, s streamQuery) (
		string, streamQuery, error) {
		command := q["command"]
		if len(command) == 0 {
			return "", s, failed(http.StatusBadRequest, "you must specify a command")
		}
		found, err := a.findRunning(ctx, n)
		if err != nil {
			return "", s, err
		}
		answer, err := a.opts.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: found.ContainerID, Cmd: command,
			Tty: s.tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr,
		})
		return answer.GetUrl(), s, err
	})
}

func (a *API) serveAttach(w http.ResponseWriter, r *http.Request) {
	a.serveProcess(w, r, func(ctx context.Context, n names, s streamQuery) (
		string, streamQuery, error) {
		found, err := a.findRunning(ctx, n)
		if err != nil {
			return "", s, err
		}
		s.tty = found.TTY // that was decided when the process began
		s.stderr = s.stderr && !s.tty
		answer, err := a.opts.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: found.ContainerID,
			Tty:         s.tty, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr,
		})
		return answer.GetUrl(), s, err
	})
}

// serveProcess joins a client and a process. ask gets the runtime's URL, and says which streams
// there really are.
func (a *API) serveProcess(w http.ResponseWriter, r *http.Request,
	ask func(context.Context, names, streamQuery) (string, streamQuery, error)) {
	streams, err := parseStreamQuery(r.URL.Query())
	if err == nil {
		err = needUpgrade(r)
	}
	if err != nil {
		answerFailure(w, err)
		return
	}
	location, err := a.askURL(r, func(ctx context.Context, n names) (location string, err error) {
		location, streams, err = ask(ctx, n, streams)
		return location, err
	})
	if err != nil {
		answerFailure(w, err)
		return
	}
	handler := a.proxy(r, location)
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		// Version 5 of the protocol over WebSocket is more than runtimes speak.
		handler = translator.NewStreamTranslatorHandler(location, nil, 0, translator.Options{
			Stdin: streams.stdin, Stdout: streams.stdout, Stderr: streams.stderr, Tty: streams.tty,
		})
	}
	handler.ServeHTTP(newPatient(w, a.opts.IdleTimeout), r)
}

func (a *API) servePortForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	options := &portforward.V4Options{}
	err := needUpgrade(r)
	if err == nil && !tunnel { // SPDY names the ports in its streams
		if options, err = portforward.NewV4Options(r); err != nil {
			err = failed(http.StatusBadRequest, "%v", err)
		}
	}
	if err != nil {
		answerFailure(w, err)
		return
	}
	location, err := a.askURL(r, func(ctx context.Context, n names) (string, error) {
		found, err := a.find(ctx, n)
		if err != nil {
			return "", err
		}
		if found.SandboxID == "" {
			return "", failed(http.StatusInternalServerError, "pod not found (%q)",
				n.pod+"_"+n.namespace)
		}
		answer, err := a.opts.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{
			PodSandboxId: found.SandboxID, Port: options.Ports,
		})
		return answer.GetUrl(), err
	})
	if err != nil {
		answerFailure(w, err)
		return
	}
	handler := a.proxy(r, location)
	if tunnel {
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(newPatient(w, a.opts.IdleTimeout), r)
}

// askURL has the runtime make a stream ready and tells where.
func (a *API) askURL(r *http.Request,
	ask func(context.Context, names) (string, error)) (*url.URL, error) {
	n, err := named(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.opts.RuntimeTimeout)
	defer cancel()
	text, err := ask(ctx, n)
	if err != nil {
		return nil, err
	}
	return streamURL(text)
}

// streamURL reads the URL that a runtime gives. It may leave out the scheme, not the host: this
// API serves no streams of its own.
func streamURL(text string) (*url.URL, error) {
	location, err := url.Parse(text)
	if err != nil {
		return nil, failed(http.StatusInternalServerError, "the runtime's streaming URL: %v", err)
	}
	if location.Scheme == "" {
		location.Scheme = "http"
	}
	if location.Host == "" || location.Scheme != "http" && location.Scheme != "https" {
		return nil, failed(http.StatusInternalServerError,
			"the runtime's streaming URL %q leads nowhere", text)
	}
	return location, nil
}
